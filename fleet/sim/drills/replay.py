"""A receipt as a drill: its market, boots, alarm and scores; what was not recorded is assumed aloud."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.config.pools import POOLS
from fleet.config.settings import Watchdog
from fleet.core import boot_length
from fleet.core.errors import UserError
from fleet.eventlog import receipts
from fleet.eventlog.receipts import Fleet, Happening, Receipt
from fleet.sim.cloud.behaviour import AlarmModel, Behaviour, Boots, Events, Scores
from fleet.sim.cloud.recording import Recording, seconds
from fleet.sim.markets import reading
from fleet.sim.markets.market import PLENTY, ZONE, Market, MarketPool, Step, pool

FOLDER = Path(__file__).parents[1] / "histories"

# Plain choices where a history is silent. All lags exact, so that a replay has no luck in it.
KERNEL_TO_SERVING_SECONDS = 267  # the median of 27
ALARM_LAG_SECONDS = 330  # OK was told 6 min after the target was healthy
LEAD_SECONDS = 40 * 60  # before the first thing that happens
TAIL_SECONDS = 90 * 60  # after the last
KERNEL_AFTER_SELLING_SECONDS = 60  # where only the replacement's kernel start was recorded


@dataclass(frozen=True)
class History:
    """One receipt, ready to run."""

    name: str
    market: Market
    behaviour: Behaviour
    fleet: Fleet  # at the start; thresholds that are empty were not recorded
    alarm_minutes: int
    scan_seconds: int
    scans_from: float
    recording: Recording | None  # box by box; None: the receipt tells of the market alone
    outcome: dict[str, Any]
    assumptions: tuple[str, ...]


def names() -> list[str]:
    """Histories that the project holds."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str | Path) -> History:
    """A history by name (any unique part of one) or by path; raises UserError with the place of the damage."""
    path = Path(name)
    if not path.suffix:
        (path,) = FOLDER.glob(f"*{name}*.json")
    return _Reader(path, receipts.parsed(path, reading.parsed(path))).history()


class _Reader:
    """Puts one receipt in order, naming the place of whatever contradicts itself."""

    def __init__(self, path: Path, receipt: Receipt) -> None:
        self._path, self._receipt = path, receipt
        self._said: list[str] = []

    def history(self) -> History:
        receipt, fleet, scan = self._receipt, self._receipt.fleet, self._receipt.scan
        logged = [item for item in receipt.market if item.event in receipts.LOGGED]
        pools = tuple(self._pool(i, label) for i, label in enumerate(fleet.pools))
        if len({one.label for one in pools}) != len(pools):
            raise self._odd("fleet.pools", "a pool stands twice")
        labels = [one.label for one in pools]
        steps = self._logged(logged, labels) if logged else self._spoken(labels)
        alarm = tuple((told.at.timestamp() if told.at else None, told.state) for told in receipt.alarm)
        scores = [(one.at.timestamp(), one.zones or {"": one.score or 1}) for one in scan.scores]
        scans_from = scan.first.timestamp() if scan.first else None
        rearm_at = next((seconds(item) for item in receipt.market if item.event == "rearm" and item.at), None)
        if scans_from is None and rearm_at is not None:
            every = scan.every_seconds
            scans_from = rearm_at - 2 * every
            scores = [(scans_from, {"": 1}), (rearm_at - every, {"": 3}), (rearm_at, {"": 3})]
            self._say("scan times and scores: so that two good scores in a row end at the recorded re-arm")
        start, end = self._span(steps, [at for at, _ in alarm if at is not None], scans_from)
        if scans_from is None:
            scans_from = start + scan.every_seconds
            self._say(f"scan times: every {scan.every_seconds / 60:.0f} min from the start")
        if not logged:
            steps = [Step(start, label, PLENTY) for label in labels] + steps
        if fleet.failovers_in_last_24h_at_start:
            self._say(f"{fleet.failovers_in_last_24h_at_start} failovers in the 24 h before the start: evenly spread")
        return History(
            name=receipt.name,
            market=Market(receipt.name, pools, start, end, lambda: iter(steps)),
            behaviour=self._behaviour(alarm, scores, by_box=bool(logged)),
            fleet=fleet,
            alarm_minutes=self._alarm_minutes(),
            scan_seconds=scan.every_seconds,
            scans_from=scans_from,
            recording=Recording(logged, receipt.wakes) if logged else None,
            outcome=receipt.outcome,
            assumptions=tuple(self._said),
        )

    def _pool(self, number: int, label: str) -> MarketPool:
        """`g6.xlarge`, `g6.xlarge@us-east-2a` or, of a fleet with one type, `us-east-2a`."""
        if ZONE.fullmatch(label):
            return pool("g6.xlarge", label, label)
        instance_type, _, zone = label.partition("@")
        if instance_type not in POOLS:
            self._say(f"{instance_type}: of unknown price, billed as g6.xlarge")
        return pool(instance_type, zone or "us-east-2a", label)

    def _alarm_minutes(self) -> int:
        minutes = self._receipt.fleet.thresholds.get("alarm_minutes", Watchdog().alarm_minutes)
        if not 3 <= minutes <= 60:
            raise self._odd("fleet.thresholds.alarm_minutes", f"{minutes}; allowed are whole numbers from 3 to 60")
        return minutes

    def _span(self, steps: Sequence[Step], alarms: Sequence[float], scans_from: float | None) -> tuple[float, float]:
        if (window := self._receipt.window) is not None:
            start, end = window.since.timestamp(), window.until.timestamp()
        else:
            times = [step.at for step in steps] + list(alarms) + ([scans_from] if scans_from is not None else [])
            if not times:
                raise self._odd("market", "nothing with a time in it")
            start, end = min(times) - LEAD_SECONDS, max(times) + TAIL_SECONDS
        if not 0 < end - start <= reading.LONGEST_SECONDS:
            raise self._odd("window", "it must end after it begins, and span at most ten years")
        return start, end

    def _spoken(self, labels: list[str]) -> list[Step]:
        """Steps of all pools alike."""
        steps: list[Step] = []
        last: float | None = None
        unrecorded = 0
        for i, item in enumerate(self._receipt.market):
            place = f"market[{i}].at"
            if item.at is None:
                if item.event != "reclaim" or last is None or unrecorded:
                    raise self._odd(place, f"{item.event} without a time; only reclaims between two times may be")
                unrecorded = item.count
                continue
            at = seconds(item)
            if last is not None and at < last:
                raise self._odd(place, f"{item.at:%Y-%m-%dT%H:%M:%SZ} is earlier than the event before")
            if unrecorded and last is not None:
                steps += self._spread(unrecorded, last, at, labels)
                unrecorded = 0
            last = at
            match item.event:
                case "reclaim" | "no_healthy_target_from":
                    steps += [Step(at, label, 0) for label in labels]
                case "sells_from":
                    steps += [Step(at, label, PLENTY) for label in labels]
                case "kernel_starts_from":
                    self._say("the market sells again 60 s before the replacement's kernel started")
                    steps += [Step(at - KERNEL_AFTER_SELLING_SECONDS, label, PLENTY) for label in labels]
                case "refuses_from":
                    steps += [Step(at, label, 0, spares=True) for label in labels]
        if unrecorded:
            raise self._odd("market", "reclaims without times at the end; only reclaims between two times may be")
        return steps

    def _logged(self, logged: Sequence[Happening], labels: list[str]) -> list[Step]:
        """The market as its pools were told, or else as launches found it: one that failed found every pool dry."""
        for number, item in enumerate(logged):
            if item.at is None:
                raise self._odd(f"market[{number}].at", f"{item.event} without a time")
        start = min(map(seconds, logged))
        told = [item for item in logged if item.event == "market"]
        if not told:
            self._say(
                "a pool sells from a launch there on, to a notice there or a launch that fails; else it is unknown"
            )
        kinds = {item.box: item for item in logged if item.event == "box.launched"}
        steps = [] if told else [Step(start, label, PLENTY) for label in labels]
        for item in logged:
            at, kind = seconds(item), kinds.get(item.box)
            spot = kind is not None and kind.purchase == "spot" and kind.pool in labels
            if item.event == "notice" and spot and kind is not None:
                steps.append(Step(at, str(kind.pool), 0))
            elif told and item.event == "market" and item.pool in labels:
                steps.append(
                    Step(at, str(item.pool), PLENTY if item.sells else 0, spares=True, purchase=item.purchase or "spot")
                )
            elif not told and item.event == "box.launched" and spot:
                steps.append(Step(at, str(item.pool), PLENTY))
            elif not told and item.event == "launch.failed" and not item.box:
                steps += [Step(at, label, 0, spares=True, purchase=item.purchase or "spot") for label in labels]
        return steps

    def _spread(self, count: int, after: float, before: float, labels: list[str]) -> Iterator[Step]:
        """Reclaims whose times were not recorded: evenly spread, answered at once by the other pools."""
        self._say(f"{count} reclaims without recorded times: evenly spread, the market sells again after 15 s")
        gap = (before - after) / (count + 1)
        for at in (after + gap * (i + 1) for i in range(count)):
            for label in labels:
                yield from (Step(at, label, 0), Step(at + 15, label, PLENTY))

    def _behaviour(
        self,
        alarm: tuple[tuple[float | None, str], ...],
        scores: list[tuple[float, dict[str, int]]],
        *,
        by_box: bool,
    ) -> Behaviour:
        boots, serving = self._receipt.boots, float(KERNEL_TO_SERVING_SECONDS)
        if None in boots and not by_box:
            self._say(f"boots that were not recorded: kernel to serving {serving:.0f} s, the median of 27")
        if alarm:
            self._say(
                f"alarm: as recorded for the watchdog, {ALARM_LAG_SECONDS} s late for policies that do not hear it"
            )
        else:
            self._say(f"alarm: not recorded, so modelled, told {ALARM_LAG_SECONDS} s late")
        if any(at is None for at, _ in alarm):
            self._say("alarm back to OK: told 6 min after the target was healthy, as where it was recorded")
        self._say(f"scores: {len(scores)} readings as recorded, drawn where a policy reads at other times")
        kernel = float(boot_length.LAUNCH_TO_KERNEL_SECONDS)
        return Behaviour(
            boots=Boots(
                launch_to_kernel=(kernel, kernel, kernel),
                kernel_to_serving=(serving, serving, serving),
                # where boxes are not told one by one, the first launch is the box that serves at the start
                recorded_kernel_to_serving=boots if by_box else (None, *boots),
            ),
            alarm=AlarmModel(recorded=alarm or None, lag=(ALARM_LAG_SECONDS, ALARM_LAG_SECONDS)),
            events=Events(delay=(1, 1)),
            scores=Scores(recorded=tuple(scores)),
            first_attempt=(2, 2),
            flip_attempt=(7, 7),
            rebalance_attempt=(15, 15),
            agent_poll=(5, 5),
            recommendation_ahead_share=0,
            recommendation_with_notice_share=0,
            hook_poll=(5, 5),
            register_after_kernel=(35, 35),
            registration=(150, 150),
            probes=(20, 20),
        )

    def _say(self, assumption: str) -> None:
        if assumption not in self._said:
            self._said.append(assumption)

    def _odd(self, place: str, what: str) -> UserError:
        return UserError(f"{self._path}: {place}: {what}")
