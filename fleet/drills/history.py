"""A recorded history as a drill: its market, boots, alarm and scores; what was not recorded is assumed aloud."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fleet.drills import reading
from fleet.drills.behaviour import AlarmModel, Behaviour, Boots, Events, Scores
from fleet.drills.market import PLENTY, Market, Step, pool
from fleet.errors import UserError
from fleet.outsiders import one_line
from fleet.pools import POOLS
from fleet.settings import Watchdog

FOLDER = Path(__file__).parent / "histories"

# Plain choices where a history is silent. All lags exact, so that a replay has no luck in it.
LAUNCH_TO_KERNEL_SECONDS = 30  # 15 to 90 measured
KERNEL_TO_SERVING_SECONDS = 267  # the median of 27
ALARM_LAG_SECONDS = 330  # OK was told 6 min after the target was healthy
LEAD_SECONDS = 40 * 60  # before the first thing that happens
TAIL_SECONDS = 90 * 60  # after the last
KERNEL_AFTER_SELLING_SECONDS = 60  # where only the replacement's kernel start was recorded

MODES = ("spot-armed", "on-demand-failover", "on-demand-pinned")
ALARM_STATES = ("OK", "ALARM", "INSUFFICIENT_DATA")
KEYS = {
    "(top)": {"name", "fleet", "market", "boots", "boot_band_seconds", "alarm", "scan", "outcome"},
    "fleet": {"desired", "pools", "lever_at_start", "mode_at_start", "failovers_in_last_24h_at_start", "thresholds"},
    "scan": {"first", "every_seconds", "scores"},
    "market": {"at", "event", "count"},
}


@dataclass(frozen=True)
class History:
    """One receipt, ready to run."""

    name: str
    market: Market
    behaviour: Behaviour
    desired: int
    lever: int
    mode: str
    failovers: int  # in the 24 hours before the start
    alarm_minutes: int
    scan_seconds: int
    scans_from: float
    outcome: dict[str, Any]
    assumptions: tuple[str, ...]


def names() -> list[str]:
    """Histories that the project holds."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str | Path) -> History:
    """A history by name (any unique part of one) or by path; raises UserError with the place of the damage."""
    path = Path(name)
    if not path.suffix:
        found = [FOLDER / f"{known}.json" for known in names() if str(name) in known]
        if len(found) != 1:
            raise UserError(f"history {name!r}: {'several match' if found else 'unknown'}; known: {', '.join(names())}")
        path = found[0]
    return _Reader(path, reading.parsed(path)).history()


class _Reader:
    """Reads one receipt, naming the place of whatever is odd."""

    def __init__(self, path: Path, raw: Any) -> None:
        self._path, self._raw = path, raw
        self._said: list[str] = []

    def history(self) -> History:
        self._known(self._raw, "(top)")
        fleet, scan = self._object(self._raw, "fleet"), self._object(self._raw, "scan")
        self._known(fleet, "fleet")
        self._known(scan, "scan")
        labels = self._pools(fleet)
        steps, rearm_at = self._market(labels)
        alarm = tuple(
            (self._time(item, "at", f"alarm[{i}]"), self._one_of(ALARM_STATES, item, "state", f"alarm[{i}]"))
            for i, item in enumerate(self._list(self._raw, "alarm", ""))
        )
        every = self._number(scan, "every_seconds", "scan", 300, 3600)
        scores: list[tuple[float | None, int]] = [
            (self._time(item, "at", f"scan.scores[{i}]"), self._number(item, "score", f"scan.scores[{i}]", 1, 10))
            for i, item in enumerate(self._list(scan, "scores", "scan"))
        ]
        scans_from = self._time(scan, "first", "scan")
        if scans_from is None and rearm_at is not None:
            scans_from = rearm_at - 2 * every
            scores = [(rearm_at - every, 3), (rearm_at, 3)]
            self._say("scan times and scores: so that two good scores in a row end at the recorded re-arm")
        times = [step.at for step in steps] + [at for at, _ in alarm if at is not None]
        times += [scans_from] if scans_from is not None else []
        if not times:
            raise self._odd("market", "nothing with a time in it")
        start, end = min(times) - LEAD_SECONDS, max(times) + TAIL_SECONDS
        if end - start > reading.LONGEST_SECONDS:
            raise self._odd("(top)", "its times span more than ten years")
        if scans_from is None:
            scans_from = start + every
            self._say(f"scan times: every {every / 60:.0f} min from the start")
        steps = [Step(start, label, PLENTY) for label in labels] + steps
        name = one_line(self._text(self._raw, "name", ""))
        return History(
            name=name,
            market=Market(name, tuple(map(pool, labels)), start, end, lambda: iter(steps)),
            behaviour=self._behaviour(alarm, scores),
            desired=self._number(fleet, "desired", "fleet", 1, 20),
            lever=self._number(fleet, "lever_at_start", "fleet", 0, 100),
            mode=self._one_of(MODES, fleet, "mode_at_start", "fleet"),
            failovers=self._failovers(fleet),
            alarm_minutes=self._alarm_minutes(fleet),
            scan_seconds=every,
            scans_from=scans_from,
            outcome=self._object(self._raw, "outcome"),
            assumptions=tuple(self._said),
        )

    def _pools(self, fleet: dict[str, Any]) -> list[str]:
        labels = self._list(fleet, "pools", "fleet")
        for i, label in enumerate(labels):
            if not isinstance(label, str) or not reading.TYPE.fullmatch(label):
                raise self._odd(f"fleet.pools[{i}]", f"{label!r:.40}; expected an instance type such as g6.xlarge")
            if label not in POOLS:
                self._say(f"{label}: of unknown price, billed as g6.xlarge")
        if not labels or len(set(labels)) != len(labels):
            raise self._odd("fleet.pools", "expected one pool or more, each once")
        return labels

    def _failovers(self, fleet: dict[str, Any]) -> int:
        key = "failovers_in_last_24h_at_start"
        count = self._number(fleet, key, "fleet", 0, 10) if key in fleet else 0
        if count:
            self._say(f"{count} failovers in the 24 h before the start: evenly spread")
        return count

    def _alarm_minutes(self, fleet: dict[str, Any]) -> int:
        thresholds = fleet.get("thresholds")
        if thresholds is None:
            return Watchdog().alarm_minutes
        return self._number(thresholds, "alarm_minutes", "fleet.thresholds", 3, 60)

    def _market(self, labels: list[str]) -> tuple[list[Step], float | None]:
        """Steps of all pools alike; when a human's arming let spot back in, if the history says so."""
        steps: list[Step] = []
        last: float | None = None
        rearm_at: float | None = None
        unrecorded = 0
        for i, item in enumerate(self._list(self._raw, "market", "")):
            place = f"market[{i}]"
            kind, at = self._text(item, "event", place), self._time(item, "at", place)
            self._known(item, "market", place)
            count = self._number(item, "count", place, 1, 1000) if "count" in item else 1
            if at is None:
                if kind != "reclaim" or last is None or unrecorded:
                    raise self._odd(f"{place}.at", f"{kind} without a time; only reclaims between two times may be")
                unrecorded = count
                continue
            if last is not None and at < last:
                raise self._odd(f"{place}.at", f"{item['at']} is earlier than the event before")
            if unrecorded and last is not None:
                steps += self._spread(unrecorded, last, at, labels)
                unrecorded = 0
            last = at
            match kind:
                case "reclaim" | "no_healthy_target_from":
                    steps += [Step(at, label, 0) for label in labels]
                case "sells_from":
                    steps += [Step(at, label, PLENTY) for label in labels]
                case "kernel_starts_from":
                    self._say("the market sells again 60 s before the replacement's kernel started")
                    steps += [Step(at - KERNEL_AFTER_SELLING_SECONDS, label, PLENTY) for label in labels]
                case "refuses_from":
                    steps += [Step(at, label, 0, spares=True) for label in labels]
                case "rearm":
                    rearm_at = at
                case _:
                    allowed = "reclaim, sells_from, kernel_starts_from, refuses_from, no_healthy_target_from, rearm"
                    raise self._odd(f"{place}.event", f"{kind!r}; allowed: {allowed}")
        if unrecorded:
            raise self._odd("market", "reclaims without times at the end; only reclaims between two times may be")
        return steps, rearm_at

    def _spread(self, count: int, after: float, before: float, labels: list[str]) -> list[Step]:
        """Reclaims whose times were not recorded: evenly spread, answered at once by the other pools."""
        self._say(f"{count} reclaims without recorded times: evenly spread, the market sells again after 15 s")
        gap = (before - after) / (count + 1)
        times = [after + gap * (i + 1) for i in range(count)]
        return [step for at in times for label in labels for step in (Step(at, label, 0), Step(at + 15, label, PLENTY))]

    def _behaviour(
        self, alarm: tuple[tuple[float | None, str], ...], scores: list[tuple[float | None, int]]
    ) -> Behaviour:
        boots = self._list(self._raw, "boots", "")
        for i, boot in enumerate(boots):
            if boot is not None and (type(boot) not in (int, float) or not 0 <= boot <= 7200):
                raise self._odd(f"boots[{i}]", f"{boot!r:.40}; allowed are null and seconds from 0 to 7200")
        serving = float(KERNEL_TO_SERVING_SECONDS)
        if None in boots:
            self._say(f"boots that were not recorded: kernel to serving {serving:.0f} s, the median of 27")
        self._say(f"alarm: as recorded for the watchdog, {ALARM_LAG_SECONDS} s late for policies that do not hear it")
        if any(at is None for at, _ in alarm):
            self._say("alarm back to OK: told 6 min after the target was healthy, as where it was recorded")
        kernel = float(LAUNCH_TO_KERNEL_SECONDS)
        return Behaviour(
            boots=Boots(
                launch_to_kernel=(kernel, kernel, kernel),
                kernel_to_serving=(serving, serving, serving),
                recorded_kernel_to_serving=(None, *boots),  # the first launch is the box that serves at the start
            ),
            alarm=AlarmModel(recorded=alarm, lag=(ALARM_LAG_SECONDS, ALARM_LAG_SECONDS)),
            events=Events(delay=(1, 1)),
            scores=Scores(recorded=tuple((at, score) for at, score in scores if at is not None)),
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

    # --- reading -----------------------------------------------------------------------------------------------

    def _say(self, assumption: str) -> None:
        if assumption not in self._said:
            self._said.append(assumption)

    def _odd(self, place: str, what: str) -> UserError:
        return UserError(f"{self._path}: {place}: {what}")

    def _known(self, raw: Any, keys: str, place: str = "") -> None:
        """Notes aside, nothing is there that would be passed over."""
        if not isinstance(raw, dict):
            raise self._odd(place or keys, "expected an object")
        if unknown := sorted(set(raw) - KEYS[keys] - {"note"}):
            raise self._odd(place or keys, f"{', '.join(unknown)}: allowed are {', '.join(sorted(KEYS[keys]))}, note")

    def _get(self, raw: Any, key: str, place: str) -> Any:
        if not isinstance(raw, dict):
            raise self._odd(place or "(top)", "expected an object")
        if key not in raw:
            raise self._odd(f"{place}.{key}".lstrip("."), "missing")
        return raw[key]

    def _object(self, raw: Any, key: str) -> dict[str, Any]:
        value = self._get(raw, key, "")
        if not isinstance(value, dict):
            raise self._odd(key, "expected an object")
        return value

    def _list(self, raw: Any, key: str, place: str) -> list[Any]:
        value = self._get(raw, key, place)
        if not isinstance(value, list):
            raise self._odd(f"{place}.{key}".lstrip("."), "expected a list")
        return value

    def _text(self, raw: Any, key: str, place: str) -> str:
        value = self._get(raw, key, place)
        if not isinstance(value, str):
            raise self._odd(f"{place}.{key}".lstrip("."), f"{value!r} is no text")
        return value

    def _one_of(self, allowed: tuple[str, ...], raw: Any, key: str, place: str) -> str:
        value = self._text(raw, key, place)
        if value not in allowed:
            raise self._odd(f"{place}.{key}", f"{value!r}; allowed: {', '.join(allowed)}")
        return value

    def _number(self, raw: Any, key: str, place: str, low: int, high: int) -> int:
        value = self._get(raw, key, place)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._odd(f"{place}.{key}", f"{value!r:.40}; allowed are whole numbers from {low} to {high}")
        return value

    def _time(self, raw: Any, key: str, place: str) -> float | None:
        value = self._get(raw, key, place)
        if value is None:
            return None
        try:
            at = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise self._odd(f"{place}.{key}", f"{value!r} is no ISO 8601 time") from None
        if at.utcoffset() != timedelta(0):
            raise self._odd(f"{place}.{key}", f"{value!r} is not UTC")
        return at.timestamp()
