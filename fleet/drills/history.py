"""A recorded history as a drill: its market, boots, alarm and scores; what was not recorded is assumed aloud."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fleet.drills.behaviour import AlarmModel, Behaviour, Boots, Events, Scores
from fleet.drills.market import PLENTY, Market, Step, pool
from fleet.errors import UserError

FOLDER = Path(__file__).parent / "histories"

# Plain choices where a history is silent. All lags exact, so that a replay has no luck in it.
LAUNCH_TO_KERNEL_SECONDS = 30  # 15 to 90 measured
KERNEL_TO_SERVING_SECONDS = 267  # the median of 27
ALARM_LAG_SECONDS = 330  # OK was told 6 min after the target was healthy
LEAD_SECONDS = 40 * 60  # before the first thing that happens
TAIL_SECONDS = 90 * 60  # after the last


@dataclass(frozen=True)
class History:
    """One receipt, ready to run."""

    name: str
    market: Market
    behaviour: Behaviour
    lever: int
    mode: str
    scans_from: float
    outcome: dict[str, Any]
    assumptions: tuple[str, ...]
    raw: dict[str, Any] = field(repr=False)


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
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from None
    return _Reader(path, raw).history()


class _Reader:
    """Reads one receipt, naming the place of whatever is odd."""

    def __init__(self, path: Path, raw: Any) -> None:
        self._path, self._raw = path, raw
        self._said: list[str] = []

    def history(self) -> History:
        fleet = self._object(self._raw, "fleet")
        labels = self._list(fleet, "pools", "fleet")
        pools = tuple(pool(str(label)) for label in labels)
        steps, rearm_at = self._market([str(label) for label in labels])
        alarm = tuple(
            (self._time(item, "at", f"alarm[{i}]"), self._text(item, "state", f"alarm[{i}]"))
            for i, item in enumerate(self._list(self._raw, "alarm", ""))
        )
        scan = self._object(self._raw, "scan")
        scores: list[tuple[float | None, int]] = [
            (self._time(item, "at", f"scan.scores[{i}]"), self._number(item, "score", f"scan.scores[{i}]"))
            for i, item in enumerate(self._list(scan, "scores", "scan"))
        ]
        scans_from = self._time(scan, "first", "scan")
        if scans_from is None and rearm_at is not None:
            scans_from = rearm_at - 2 * 1800
            scores = [(rearm_at - 1800, 3), (rearm_at, 3)]
            self._say("scan times and scores: so that two good scores in a row end at the recorded re-arm")
        times = [step.at for step in steps] + [at for at, _ in alarm if at is not None]
        times += [scans_from] if scans_from is not None else []
        if not times:
            raise self._odd("market", "nothing with a time in it")
        start = min(times) - LEAD_SECONDS
        if scans_from is None:
            scans_from = start + 1800
            self._say("scan times: every 30 min from the start")
        lever = self._number(fleet, "lever_at_start", "fleet")
        mode = self._text(fleet, "mode_at_start", "fleet")
        if mode not in ("spot-armed", "on-demand-failover", "on-demand-pinned"):
            raise self._odd("fleet.mode_at_start", f"{mode!r} is no mode")
        at_start = [Step(start, label, PLENTY) for label in labels]
        steps = at_start + steps
        name = self._text(self._raw, "name", "")
        market = Market(name, pools, start, max(times) + TAIL_SECONDS, lambda: iter(steps))
        return History(
            name=name,
            market=market,
            behaviour=self._behaviour(alarm, scores),
            lever=lever,
            mode=mode,
            scans_from=scans_from,
            outcome=self._object(self._raw, "outcome"),
            assumptions=tuple(self._said),
            raw=self._raw,
        )

    def _market(self, labels: list[str]) -> tuple[list[Step], float | None]:
        """Steps of all pools alike; when a human's arming let spot back in, if the history says so."""
        steps: list[Step] = []
        rearm_at: float | None = None
        unrecorded: list[tuple[int, float]] = []
        events = self._list(self._raw, "market", "")
        for i, item in enumerate(events):
            place = f"market[{i}]"
            kind, at = self._text(item, "event", place), self._time(item, "at", place)
            if at is None:
                if kind != "reclaim":
                    raise self._odd(f"{place}.at", f"{kind} without a time")
                unrecorded.append((int(item.get("count", 1)), steps[-1].at if steps else rearm_at or 0.0))
                continue
            if unrecorded:
                count, after = unrecorded.pop()
                steps += self._spread(count, after, at, labels)
            match kind:
                case "reclaim" | "no_healthy_target_from":
                    steps += [Step(at, label, 0) for label in labels]
                case "sells_from":
                    kernel = "kernel of the replacement starts" in str(item.get("note", ""))
                    if kernel:
                        self._say("the market sells again 60 s before the replacement's kernel started")
                    steps += [Step(at - 60 if kernel else at, label, PLENTY) for label in labels]
                case "refuses_from":
                    steps += [Step(at, label, 0, spares=True) for label in labels]
                case "rearm":
                    rearm_at = at
                case _:
                    allowed = "reclaim, sells_from, refuses_from, no_healthy_target_from, rearm"
                    raise self._odd(f"{place}.event", f"{kind!r}; allowed: {allowed}")
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
        boots = [None if boot is None else float(boot) for boot in self._list(self._raw, "boots", "")]
        serving = float(KERNEL_TO_SERVING_SECONDS)
        if None in boots:
            self._say(f"boots that were not recorded: kernel to serving {serving:.0f} s, the median of 27")
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

    def _number(self, raw: Any, key: str, place: str) -> int:
        value = self._get(raw, key, place)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._odd(f"{place}.{key}", f"{value!r} is no whole number")
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
