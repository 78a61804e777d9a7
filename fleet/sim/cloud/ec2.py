"""The simulated EC2: what each pool carries, who runs there, who is taken back and when."""

import math
from collections.abc import Callable, Iterator

from fleet.core import names
from fleet.eventlog.receipts import Happening
from fleet.sim.cloud import payloads
from fleet.sim.cloud.recording import Recording
from fleet.sim.cloud.simulated_balancer import Balancer
from fleet.sim.cloud.simulation import SimulatedBox, Simulation, draw
from fleet.sim.markets.market import PLENTY, Market, MarketPool, Purchase, Step
from lambdas.watchdog.signals import ENDING, STATE_EVENT

REGISTERED_SECONDS = 65  # after its launch, of a box whose boot was recorded: kernel and registration, as measured
REMEMBERED = 200  # changes of supply
BEYOND_RECORDED = 1 << 40  # where the ids of boxes begin that the record does not know
CANCELLED_AFTER_SECONDS = 20  # a volume that cannot be attached
DESCRIBED_AT_MOST = 500  # boxes that have ended
# By why a box ended; any other end is a call's, also of a box that gave its boot up for its notice.
STATE_REASONS = {"reclaim": "Server.SpotInstanceTermination", "user data failed": "Client.InstanceInitiatedShutdown"}


class Ec2:
    """Launches, notices and ends, told to the balancer. The group listens."""

    def __init__(self, world: Simulation, market: Market, balancer: Balancer) -> None:
        self._world, self._balancer = world, balancer
        self.pools = {pool.label: pool for pool in market.pools}
        self.running: dict[str, SimulatedBox] = {}
        self._ended: dict[str, SimulatedBox] = {}  # oldest first
        self.on_risk: Callable[[SimulatedBox], None]
        self.on_gone: Callable[[SimulatedBox], None]
        self.on_boot_failed: Callable[[SimulatedBox], None]
        self.on_cancelled: Callable[[SimulatedBox], None]
        self._supply: dict[Purchase, dict[str, int]] = {
            "spot": dict.fromkeys(self.pools, 0),
            "on-demand": dict.fromkeys(self.pools, PLENTY),
        }
        self._price = {(purchase, p.label): p.usd(purchase) for p in market.pools for purchase in self._supply}
        self._launches = 0
        self._boots, self._lags = world.stream("boots"), world.stream("ec2")
        self._falls, self._victims = world.stream("falls"), world.stream("victims")
        self._sold: list[tuple[float, frozenset[str]]] = []  # zones that sold spot from then on
        self._steps: Iterator[Step] = market.steps()
        self._read_next()
        self._sold.append((-math.inf, self.zones_selling()))
        for pool in market.pools:
            world.log("market", pool=pool.label, sells=self._supply["spot"][pool.label] > 0)

    # --- the market --------------------------------------------------------------------------------------------

    def _read_next(self) -> None:
        """The next step, known as far ahead as a recommendation may come; what holds from the start at once."""
        for step in self._steps:
            if step.at > self._world.clock.now:
                ahead = self._world.behaviour.recommendation_ahead[1]
                self._world.clock.at(step.at - ahead, self._foresee, step)
                return
            self._set(step)

    def _foresee(self, step: Step) -> None:
        """Read one step ahead of its time: a recommendation may come before the fall that it announces."""
        behaviour, clock = self._world.behaviour, self._world.clock
        clock.at(step.at, self._apply, step)
        if step.purchase == "spot" and not step.spares and step.supply is not None and step.supply < PLENTY:
            chance, lead = self._falls.random(), draw(self._falls, behaviour.recommendation_ahead)
            if chance < behaviour.recommendation_ahead_share:
                clock.at(step.at - lead, self._recommend_excess, step)
        self._read_next()

    def _apply(self, step: Step) -> None:
        before = self._supply[step.purchase][step.pool]
        self._set(step)
        after = self._supply[step.purchase][step.pool]
        if (before > 0) != (after > 0):
            extra = {} if step.purchase == "spot" else {"purchase": step.purchase}
            self._world.log("market", pool=step.pool, sells=after > 0, **extra)
            self._sold = [*self._sold[-REMEMBERED:], (self._world.clock.now, self.zones_selling())]
        if step.purchase == "spot" and not step.spares and self._world.recording is None:
            for box in self._excess(step):
                self.notice(box)

    def _set(self, step: Step) -> None:
        if step.supply is not None:
            self._supply[step.purchase][step.pool] = step.supply
        if step.usd_per_hour is not None:
            self._price[step.purchase, step.pool] = step.usd_per_hour

    def _excess(self, step: Step) -> list[SimulatedBox]:
        """The boxes that a fall takes, those already recommended first."""
        here = [b for b in self.running.values() if b.purchase == "spot" and b.pool.label == step.pool]
        here = [b for b in here if b.noticed_at is None]
        count = 0 if step.supply is None else len(here) - step.supply
        if count <= 0:
            return []
        match self._world.behaviour.takes_first:
            case "newest":
                here.reverse()
            case "random":
                self._victims.shuffle(here)
        here.sort(key=lambda box: not box.at_risk)
        return here[:count]

    def sells(self, purchase: Purchase) -> list[MarketPool]:
        """Pools in which a launch would succeed now: spot the cheapest first, on-demand in the order of priority."""
        used: dict[str, int] = {}
        for box in self.running.values():
            if box.purchase == purchase:
                used[box.pool.label] = used.get(box.pool.label, 0) + 1
        supply = self._supply[purchase]
        selling = [pool for label, pool in self.pools.items() if supply[label] > used.get(label, 0)]
        if purchase == "spot":
            selling.sort(key=lambda pool: self._price[purchase, pool.label])
        return selling

    def zones_selling(self, late: float = 0.0) -> frozenset[str]:
        """Zones in which a spot launch would succeed now, or would have that many seconds ago."""
        if late:
            past = (zones for at, zones in reversed(self._sold) if at <= self._world.clock.now - late)
            return next(past, frozenset())
        return frozenset(pool.zone for pool in self.sells("spot"))

    # --- boxes -------------------------------------------------------------------------------------------------

    def launch(self, purchase: Purchase) -> SimulatedBox | str:
        """A new box, or why there is none."""
        recording = self._world.recording
        if recording and (tried := recording.attempt(self._world.clock.now, purchase)):
            return self._as_recorded(recording, tried) if tried.box else tried.why
        behaviour = self._world.behaviour
        quota = behaviour.spot_vcpu_quota if purchase == "spot" else behaviour.on_demand_vcpu_quota
        refused = behaviour.spot_refused_with if purchase == "spot" else behaviour.on_demand_refused_with
        selling = self.sells(purchase)
        if refused or not selling:
            return refused or "InsufficientInstanceCapacity"
        pool = selling[0]
        if quota is not None:
            used = sum(box.pool.vcpus for box in self.running.values() if box.purchase == purchase)
            if used + pool.vcpus > quota:
                return "MaxSpotInstanceCountExceeded" if purchase == "spot" else "VcpuLimitExceeded"
        box = self.start(purchase, pool)
        self._boot(box)
        return box

    def _as_recorded(self, recording: Recording, launch: Happening) -> SimulatedBox:
        """The box that was launched now in the life that is replayed, and what became of it."""
        box = self.adopt(launch)
        clock = self._world.clock
        box.registered_at = clock.now + REGISTERED_SECONDS
        if (serves := self._world.recorded("box.serving", box.id)) is not None:
            clock.at(serves, self._balancer.serve, box)
        elif (failed := recording.gave_up(box.id, on_notice=False)) is not None:
            clock.at(failed, self._boot_failed, box)
        return box

    def adopt(self, launch: Happening) -> SimulatedBox:
        """A recorded box, with the warnings and the notice that it had."""
        purchase, clock = launch.purchase or "spot", self._world.clock
        pool = self.pools.get(launch.pool or "", next(iter(self.pools.values())))
        box = self.start(purchase, pool, known=launch)
        for event, call in (("rebalance", self.recommend), ("notice", self.notice)):
            if (at := self._world.recorded(event, box.id)) is not None:
                clock.at(at, call, box)
        return box

    def start(self, purchase: Purchase, pool: MarketPool, known: Happening | None = None) -> SimulatedBox:
        """Billing begins."""
        number = self._launches + 1 if self._world.recording is None else self._launches + BEYOND_RECORDED
        box_id = known.box if known else f"i-{number:017x}"
        box = SimulatedBox(box_id, purchase, pool, self._world.clock.now)
        self._launches += 1
        self.running[box.id] = box
        usd = (known and known.usd_per_hour) or self._price[purchase, pool.label]
        self._world.log("box.launched", box=box.id, purchase=purchase, pool=pool.label, usd_per_hour=usd)
        return box

    def _boot(self, box: SimulatedBox) -> None:
        boots, clock = self._world.behaviour.boots, self._world.clock
        stream, number = self._boots, self._launches
        low, high, mode = boots.launch_to_kernel
        kernel = clock.now + (low if low == high else stream.triangular(low, high, mode))
        low, high, mode = boots.kernel_to_serving
        drawn, fate = low if low == high else stream.triangular(low, high, mode), stream.random()
        recorded = boots.recorded_kernel_to_serving[number - 1 : number]
        if recorded and recorded[0] is not None:
            drawn = recorded[0]
        if boots.cold_first and number == 1:
            drawn, box.warm = boots.cold_kernel_to_serving, False
        seconds = drawn * boots.factor
        box.registered_at = kernel + draw(stream, self._world.behaviour.register_after_kernel)
        if boots.cancelled_share and stream.random() < boots.cancelled_share:
            clock.after(CANCELLED_AFTER_SECONDS, self._cancel, box)
        elif number <= boots.dies_first:
            clock.at(kernel + boots.dies_after, self.end, box, "user data failed")
        elif number <= boots.failed_first or fate < boots.failed_share:
            clock.at(kernel + seconds * 0.9, self._boot_failed, box)
        elif fate >= boots.failed_share + boots.stuck_share:
            self._balancer.boots(box, box.registered_at, kernel + seconds)

    def _boot_failed(self, box: SimulatedBox) -> None:
        if box.ended_at is None:
            box.failed = box.noticed_at is None  # a box that heard its notice leaves for that
            self.on_boot_failed(box)

    def _cancel(self, box: SimulatedBox) -> None:
        if box.ended_at is None:
            box.state_reason = self._world.behaviour.boots.cancelled_with
            self.on_cancelled(box)

    def known(self, box_id: str) -> SimulatedBox | None:
        """A box as DescribeInstances knows it: for a while after its end, too."""
        if box := self.running.get(box_id):
            return box
        box = self._ended.get(box_id)
        since = self._world.clock.now - self._world.behaviour.known_after_end
        return box if box and box.ended_at is not None and box.ended_at >= since else None

    def recommend(self, box: SimulatedBox) -> None:
        """A rebalance recommendation."""
        if box.at_risk or box.ended_at is not None:
            return
        box.at_risk = True
        self._world.log("rebalance", box=box.id)
        self._world.publish("EC2 Instance Rebalance Recommendation", payloads.ec2, box.id)
        self.on_risk(box)

    def _recommend_excess(self, step: Step) -> None:
        for box in self._excess(step):
            self.recommend(box)

    def notice(self, box: SimulatedBox) -> None:
        """Two minutes are left."""
        if box.noticed_at is not None or box.ended_at is not None:
            return
        behaviour, clock = self._world.behaviour, self._world.clock
        box.noticed_at = clock.now
        self._world.log("notice", box=box.id)
        action = {"instance-action": "terminate"}
        self._world.publish("EC2 Spot Instance Interruption Warning", payloads.ec2, box.id, **action)
        if self._warned_with_its_notice(box):
            self.recommend(box)
        box.at_risk = True
        heard = clock.now + draw(self._lags, behaviour.agent_poll)
        clock.at(self._world.recorded("box.unserving", box.id) or heard, self._balancer.unserve, box, "notice")
        left = behaviour.notice_seconds
        if not behaviour.capacity_rebalancing:
            left = min(left, draw(self._lags, behaviour.gone_without_rebalancing))
        clock.after(left, self.end, box, "reclaim")
        self.on_risk(box)

    def _warned_with_its_notice(self, box: SimulatedBox) -> bool:
        if self._world.recording is None:
            return self._lags.random() < self._world.behaviour.recommendation_with_notice_share
        return self._world.recorded("rebalance", box.id) == self._world.recorded("notice", box.id)

    def end(self, box: SimulatedBox, why: str) -> None:
        """Billing ends."""
        if box.ended_at is not None:
            return
        box.ended_at = self._world.clock.now
        box.state_reason = box.state_reason or STATE_REASONS.get(why, "Client.UserInitiatedShutdown")
        self._ended[box.id] = self.running.pop(box.id)
        if len(self._ended) > DESCRIBED_AT_MOST:
            del self._ended[next(iter(self._ended))]
        self._balancer.unserve(box, why)
        self._world.log("box.ended", box=box.id, why=why)
        self._world.publish(STATE_EVENT, payloads.ec2, box.id, state=ENDING[0])
        self.on_gone(box)


def boot_tag(box: SimulatedBox, now: float) -> str | None:
    """What the box has told of its boot: nothing until it knows."""
    if box.failed:
        return names.BOOT_FAILED
    if math.isinf(box.registered_at) or now < box.registered_at:
        return None
    return names.BOOT_WARM if box.warm else names.BOOT_COLD
