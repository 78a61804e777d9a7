"""The deployed fleet on the embedded AWS: what the templates became, and the alarm's way to the function."""

from fleet.core import names
from fleet.localaws.deployed import Deployed
from tests.embedded_fleet import lose_the_last_box_in_a_drought


def test_fleet_is_in_service_on_spot_with_its_lever_at_zero(live: Deployed) -> None:
    assert [box.get("InstanceLifecycle") for box in live.boxes()] == ["spot"]
    assert (live.percentage(), live.lever()) == (0, "0")
    assert live.template_version() == "1"


def test_alarm_on_a_young_box_is_declined_with_the_verbatim_line(live: Deployed) -> None:
    live.age_boxes(600)
    live.set_health("initial")
    live.set_alarm("ALARM", seconds_ago=2)
    (run,) = live.decisions()
    assert any(names.LINE_SKIPPED_YOUNG in line for line in run["log"])
    assert (live.percentage(), live.lever(), live.mails()) == (0, "0", [])


def test_alarm_on_an_empty_group_flips_parameter_and_group_and_buys_on_demand(live: Deployed) -> None:
    lose_the_last_box_in_a_drought(live)
    (run,) = live.decisions()
    assert "error" not in run, run
    assert (live.percentage(), live.lever()) == (100, "100")
    assert [box.get("InstanceLifecycle", "on-demand") for box in live.boxes()] == ["on-demand"]
    assert len(live.mails()) == 1
