"""No rival and no policy stays for two hours in a state that its own rule would leave."""

from dataclasses import dataclass, field

import pytest

from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.drills import drill
from fleet.sim.drills.drill import Drill, default_settings
from fleet.sim.markets import levels, synthetic
from fleet.sim.policies.catalogue import POLICIES, without_valve

pytestmark = pytest.mark.slow

LONGEST_SECONDS = 2 * 3600.0
PLAIN = without_valve(default_settings())
RETURNS_AFTER = {  # seconds for which spot must have sold for the policy's own rule to return to it
    "spot-only": 0.0,
    "alarm": PLAIN.watchdog.cooldown_seconds + 3600,
    "bridge": PLAIN.bridge.return_after_seconds,
    "fallback": 0,
    "timer-0": 0,
    "timer-30": 1800,
    "timer-240": 4 * 3600,
}


@dataclass
class Stuck:
    """Reads a log and keeps the longest time in each state that calls for a move, in seconds."""

    returns_after: float
    longest: dict[str, float] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _sells: dict[str, bool] = field(default_factory=dict)
    _serving: set[str] = field(default_factory=set)
    _kinds: dict[str, str] = field(default_factory=dict)
    _sells_since: float | None = None
    _lever: int = 0

    def see(self, event: Event) -> None:
        at, fields = event.at.timestamp(), event.fields
        self._hold(at)
        match event.kind:
            case "market":
                self._sells[fields["pool"]] = fields["sells"]
                self._sells_since = (self._sells_since or at) if any(self._sells.values()) else None
            case "box.launched":
                self._kinds[fields["box"]] = fields["purchase"]
            case "box.serving":
                self._serving.add(fields["box"])
            case "box.unserving":
                self._serving.discard(fields["box"])
            case "lever":
                self._lever = fields["percentage"]
        self._hold(at)

    def _hold(self, at: float) -> None:
        sold = 0.0 if self._sells_since is None else at - self._sells_since
        bought = any(self._kinds[box] == "on-demand" for box in self._serving)
        states = {
            "dark while spot sells": not self._serving and self._sells_since is not None,
            "on-demand beside a lever at 0 while spot sells": bought and self._lever == 0 and sold > 0,
            "lever at 100 in a calm that the rule has waited for": self._lever == 100 and sold > self.returns_after,
        }
        for state, holds in states.items():
            since = self._since.setdefault(state, at) if holds else self._since.pop(state, at)
            self.longest[state] = max(self.longest.get(state, 0.0), at - since)


@pytest.mark.parametrize("name", RETURNS_AFTER)
@pytest.mark.parametrize("scene", ["fitted", "levels"])
def test_nobody_stays_for_two_hours_in_a_state_that_the_own_rule_would_leave(name: str, scene: str) -> None:
    days = 3 if name == "bridge" else 12  # it scans every two minutes
    for region in synthetic.regions():
        make = synthetic.market(synthetic.region(region), 201, days=days)
        market = make if scene == "fitted" else levels.market(region, 201, days=days)
        stuck = Stuck(RETURNS_AFTER[name])
        drill.run(Drill(market, PLAIN, Behaviour(), seed=201, emit=stuck.see), POLICIES[name])
        assert max(stuck.longest.values()) < LONGEST_SECONDS, (region, stuck.longest)
