"""The three acts: what is done to the deployed fleet, what it must answer, and the events that the log keeps.

The deployed function has no clock input: the embedded AWS sets launch and alarm times back, so that ages are those of
the night, and the log carries the night's own times.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from fleet.config.pools import Pool
from fleet.core import names
from fleet.demo.nights import Night
from fleet.demo.screen import Narrator
from fleet.eventlog.events import Event
from fleet.localaws.deployed import Deployed

LONG_AGO_SECONDS = 86400  # the group's age by then: past every grace for a new group


class DemoError(Exception):
    """The fleet did not do what the demo says it does."""


class Log(list[Event]):
    """The event log of one night."""

    def add(self, at: datetime, kind: str, **fields: Any) -> None:
        """Append an event."""
        self.append(Event(at, kind, fields))

    def launched(self, at: datetime, box: str, purchase: str, pool: Pool) -> None:
        """A box's billing begins, at the pool's price."""
        price = pool.spot_usd if purchase == "spot" else pool.on_demand_usd
        self.add(at, "box.launched", box=box, purchase=purchase, pool=pool.instance_type, usd_per_hour=price)


def must(condition: bool, what: str) -> None:
    """What the demo claims is checked as it is said."""
    if not condition:
        raise DemoError(f"the fleet did not do what it promises: {what}")


def _pool(fleet: Deployed) -> Pool:
    """The demo's boxes are all of the fleet's first pool."""
    return fleet.settings.pool(fleet.settings.pools[0])


def _serving_box(log: Log, fleet: Deployed, start: datetime) -> str:
    """The night begins with one spot box that serves."""
    (box,) = fleet.boxes()
    log.add(start, "start", name=f"{start:%d %B %Y}", desired=1)
    log.launched(start, box["InstanceId"], "spot", _pool(fleet))
    log.add(start, "box.serving", box=box["InstanceId"])
    return str(box["InstanceId"])


def _taken(log: Log, fleet: Deployed, screen: Narrator, box: str, at: datetime) -> None:
    """AWS takes the box, and the market sells no other."""
    fleet.market(spot=False)
    fleet.reclaim()
    must(fleet.boxes() == [], "with the market closed, no box replaces the reclaimed one")
    log.add(at, "notice", box=box)
    log.add(at, "box.unserving", box=box, why="reclaim")
    log.add(at, "box.ended", box=box, why="reclaim")
    log.add(at, "market", pool=fleet.settings.pools[0], sells=False)
    log.add(at, "launch.failed", purchase="spot", pool=fleet.settings.pools[0], why="no spot capacity")
    screen.at(at, f"AWS takes {box}. The market sells no other: nobody serves.", "red")


def _woken(log: Log, fleet: Deployed, screen: Narrator, at: datetime, woke: Callable[[], None]) -> dict[str, Any]:
    """Something wakes the deployed function; its record goes into the log at the night's own time."""
    before = len(fleet.decisions())
    woke()
    runs = fleet.decisions()[before:]
    must(len(runs) == 1 and "result" in runs[0], f"one invocation that ends well, but: {runs}")
    record: dict[str, Any] = runs[0]["result"]
    log.add(at, "decision", **record)
    screen.at(at, f"watchdog ({runs[0]['seconds']:.1f} s, the deployed zip): {record['reason']}", "yellow")
    return runs[0]


def declined(fleet: Deployed, night: Night, screen: Narrator) -> Log:
    """Act 1: the alarm finds a young box, and the watchdog waits."""
    log = Log()
    start = night.gone - timedelta(minutes=4)
    old = _serving_box(log, fleet, start)
    _taken(log, fleet, screen, old, night.gone)

    fleet.market(spot=True)
    (box,) = fleet.boxes()
    fleet.set_health("initial")
    log.add(night.launched, "market", pool=fleet.settings.pools[0], sells=True)
    log.launched(night.launched, box["InstanceId"], "spot", _pool(fleet))
    screen.at(night.launched, f"The market sells again: {box['InstanceId']} launches and warms up.")
    log.add(night.serving, "box.serving", box=box["InstanceId"])
    screen.at(night.serving, "It serves. The alarm, minutes behind, does not know yet.")

    age = (night.alarm - night.launched).total_seconds()
    fleet.age_boxes(age)
    log.add(night.alarm, "alarm", state="ALARM")
    screen.at(night.alarm, f"ALARM: no healthy target for 12 minutes. The box is {age / 60:.0f} minutes old.", "red")
    run = _woken(log, fleet, screen, night.alarm, lambda: fleet.set_alarm("ALARM"))
    must(any(names.LINE_SKIPPED_YOUNG in line for line in run["log"]), f"logs {names.LINE_SKIPPED_YOUNG!r}")
    must((fleet.lever(), fleet.percentage(), fleet.mails()) == ("0", 0, []), "no flip, no mail")
    screen.at(night.alarm, "The lever stays 0. Nobody is mailed.", "green")

    fleet.set_health("healthy")
    log.add(night.ok, "alarm", state="OK")
    _woken(log, fleet, screen, night.ok, lambda: fleet.set_alarm("OK"))
    log.add(night.ok + timedelta(minutes=8), "end")
    return log


def failed_over(fleet: Deployed, night: Night, screen: Narrator) -> Log:
    """Act 2: nothing is on its way, and the watchdog buys on-demand."""
    log = Log()
    start = night.gone.replace(minute=0, second=0)
    old = _serving_box(log, fleet, start)
    _taken(log, fleet, screen, old, night.gone)
    fleet.age_group(LONG_AGO_SECONDS)

    log.add(night.alarm, "alarm", state="ALARM")
    screen.at(night.alarm, "ALARM: no healthy target for 12 minutes, and no box on its way.", "red")
    _woken(log, fleet, screen, night.failover, lambda: fleet.set_alarm("ALARM"))
    must(fleet.lever() == "100" and fleet.percentage() == 100, "100 in the parameter and in the group")
    log.add(night.failover, "lever", percentage=fleet.percentage())
    log.add(night.failover, "mode", mode=fleet.state()["mode"])
    screen.at(night.failover, "The lever is 100, in the parameter and in the group.", "green")
    mails = fleet.mails()
    must(len(mails) == 1, f"exactly one mail, but {len(mails)}")
    log.add(night.failover, "mail", subject=mails[0]["subject"], body=mails[0]["body"])
    screen.at(night.failover, f"Mail: {mails[0]['subject']}")

    (box,) = fleet.boxes()
    must("InstanceLifecycle" not in box, "the new box is on-demand")
    log.launched(night.launched, box["InstanceId"], "on-demand", _pool(fleet))
    screen.at(night.launched, f"{box['InstanceId']} launches, on-demand.")
    fleet.set_health("healthy")
    log.add(night.serving, "box.serving", box=box["InstanceId"])
    minutes = (night.serving - night.gone).total_seconds() / 60
    screen.at(night.serving, f"It serves, {minutes:.0f} minutes after the reclaim. Without a watchdog: 4 h 37 min.")
    log.add(night.ok, "alarm", state="OK")
    _woken(log, fleet, screen, night.ok, lambda: fleet.set_alarm("OK"))
    log.add(start + timedelta(hours=1), "end")
    return log


def deployed_again(fleet: Deployed, deploy: Callable[[], Any], morning: datetime, screen: Narrator) -> Log:
    """Act 3: somebody deploys changed user data while the fleet is failed over."""
    log = Log()
    (box,) = fleet.boxes()
    log.add(morning, "start", name=f"{morning:%d %B %Y}, the next morning", desired=1)
    log.launched(morning, box["InstanceId"], "on-demand", _pool(fleet))
    log.add(morning, "box.serving", box=box["InstanceId"])
    screen.at(morning, f"Somebody deploys changed user data. So far: template version {fleet.template_version()}.")
    must(fleet.template_version() == "1", "the first deploy is template version 1")
    with screen.step("cdk deploy: changed user data"):
        deploy()
    done = morning + timedelta(minutes=5)
    must(fleet.template_version() == "2", "the group is pinned to template version 2")
    must(fleet.lever() == "100" and fleet.percentage() == 100, "the deploy keeps the lever")
    log.add(done, "deploy", template_version=2, lever=fleet.percentage())
    screen.at(done, "Template version 2, and the group is pinned to it. The lever stays 100.", "green")
    log.add(morning + timedelta(minutes=20), "end")
    return log
