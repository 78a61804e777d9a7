"""The last decisions, from a log whose pages are partial or empty, as the embedded AWS cannot be brought to answer."""

import json
from collections.abc import Iterator
from typing import Any

from fleet.config.settings import Settings
from fleet.ops import fleet_view

Page = list[dict[str, Any]]


class Log:
    """Pages of the newest window and of the hours before it, with a token on each but the last."""

    def __init__(self, recent: list[Page], earlier: list[Page]) -> None:
        self.windows = {"recent": recent, "earlier": earlier}
        self.asked: list[tuple[int, int | None]] = []

    def pages(self, service: str, operation: str, **request: Any) -> Iterator[dict[str, Any]]:
        assert (service, operation) == ("logs", "FilterLogEvents")
        pages = self.windows["earlier" if "endTime" in request else "recent"]
        for number, events in enumerate(pages, 1):
            self.asked.append((request["startTime"], request.get("endTime")))
            yield {"events": events} | ({"nextToken": str(number)} if number < len(pages) else {})


def decision(at: int) -> dict[str, Any]:
    return {"timestamp": at * 1000, "message": json.dumps({"decision": {"action": f"at {at}"}})}


def last(settings: Settings, log: Log) -> tuple[list[str], bool]:
    found, complete = fleet_view.last_decisions(log, settings)  # type: ignore[arg-type]
    return [decided.record["action"] for decided in found], complete


def test_the_last_decisions_of_both_windows_are_in_order_and_no_moment_is_asked_twice_or_never(
    settings: Settings,
) -> None:
    log = Log([[], [decision(3)]], [[decision(1), decision(2)]])
    assert last(settings, log) == (["at 1", "at 2", "at 3"], True)
    (recent, none), _, (earlier, end) = log.asked
    assert (none, end) == (None, recent - 1)
    hours = (fleet_view.DECISIONS_SINCE_HOURS * 3600 - 2 * settings.scan_seconds) * 1000
    assert abs(recent - earlier - hours) <= 1  # rounded


def test_a_long_log_never_hides_the_newest_decisions_behind_old_ones(settings: Settings) -> None:
    log = Log([[decision(9)]], [[decision(1)], [], [], [decision(8)]])
    assert last(settings, log) == (["at 1", "at 9"], False)
    assert len(log.asked) == 3


def test_a_token_that_is_left_in_the_newest_window_is_told(settings: Settings) -> None:
    log = Log([[], [], [], [decision(9)]], [[decision(1)]])
    assert last(settings, log) == ([], False)
    assert len(log.asked) == 3


def test_a_lit_alarm_of_a_fleet_whose_name_goes_on_as_a_gateways_is_not_told(answers: Any) -> None:
    lit = ["llm-gateway-down", "llm-gateway-no-healthy-target"]  # the second of a fleet llm-gateway

    def described(
        AlarmNames: tuple[str, ...] = (), AlarmNamePrefix: str = "nothing", StateValue: str = ""
    ) -> dict[str, Any]:
        found = [name for name in lit if name in AlarmNames or name.startswith(AlarmNamePrefix)]
        return {"MetricAlarms": [{"AlarmName": name} for name in found]}

    service = {"status": "ACTIVE", "deployments": [], "runningCount": 2, "desiredCount": 2}
    aws = answers({"ecs DescribeServices": {"services": [service]}, "cloudwatch DescribeAlarms": described})
    assert fleet_view.gateway_view(aws, "llm").lit == ("gateway-down",)
