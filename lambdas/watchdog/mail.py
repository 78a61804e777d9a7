"""What the watchdog mails: what happened, why (the numbers), what it costs per day, what the reader may do."""

from dataclasses import dataclass, replace

from fleet.config.settings import Settings
from lambdas.watchdog import failures, shares
from lambdas.watchdog.state import Kind, Transition


@dataclass(frozen=True)
class Text:
    """The fixed words of one kind. `spot` says which price the fleet pays from here on; None: as before."""

    subject: str
    happened: str
    reader: str
    spot: bool | None = None


TEXTS = {
    Kind.FAILOVER: Text(
        "on-demand failover",
        "No box answered, so the watchdog switched the fleet to on-demand. A box usually serves within 6 minutes.",
        "Nothing. The watchdog goes back to spot by itself once the market has recovered.",
        spot=False,
    ),
    Kind.BRIDGED: Text(
        "on-demand ahead of a loss",
        "AWS warned that the only serving spot box may go, so the watchdog puts an on-demand box in its place.",
        "Nothing. The box serves until its successor does; the fleet goes back to spot once the market is calm.",
        spot=False,
    ),
    Kind.LIMITED: Text(
        "on-demand hours of the day used up",
        "The day's limit of on-demand hours is reached: the on-demand box ends, and the fleet waits for spot.",
        "Raise watchdog.on_demand_hours_per_day if callers should not wait. It counts anew from midnight UTC.",
        spot=True,
    ),
    Kind.REARMED: Text(
        "back on spot",
        "The market recovered. A spot box serves and the on-demand box leaves.",
        "Nothing.",
        spot=True,
    ),
    Kind.FELL_BACK: Text(
        "return to spot failed, still on-demand",
        "The watchdog tried to go back to spot and gave up. The box that serves was left alone.",
        "Nothing: it tries again by itself. To stop that: fleetctl pin.",
        spot=False,
    ),
    Kind.GAVE_UP: Text(
        "giving up on spot, pinned to on-demand",
        "Too many failovers: the watchdog no longer trusts the spot market and stays on-demand.",
        "Look at the history (fleetctl history), then fleetctl arm. Nothing goes back to spot before that.",
        spot=False,
    ),
    Kind.PINNED: Text(
        "pinned to on-demand",
        "An operator pinned the fleet. The watchdog stays on-demand and changes nothing.",
        "fleetctl arm ends it.",
        spot=False,
    ),
    Kind.ARMED: Text(
        "armed",
        "An operator armed the fleet: Launch is not suspended. On on-demand, failovers and cooldown are forgotten too.",
        "Nothing. If the fleet is on-demand, good placement scores on consecutive scans bring it back to spot.",
    ),
    Kind.RESUMED: Text(
        "launching resumed",
        "An operator let the group launch again, and the count of failed boots begins anew. Nothing else changed.",
        "Nothing, if the cause is mended; else the same number of failed boots suspends Launch again.",
    ),
    Kind.REPAIRED: Text(
        "purchase lever repaired",
        "Lever parameter or group did not show what the watchdog's state expects; it set them right.",
        "If somebody changed them on purpose: use fleetctl pin or arm instead.",
    ),
    Kind.REPAIR_WAITS: Text(
        "purchase lever disagrees, its repair waits for a deploy",
        "Lever parameter or group does not show what the watchdog's state expects while a deploy or a refresh is under "
        "way. A box serves, so the watchdog waits for its end; if nothing serves, no longer than the skip cap.",
        "Look at the deploy: does it hang? Its end is enough; the next scan then repairs the lever.",
    ),
    Kind.UNSUSPENDED: Text(
        "AWS had suspended launching, resumed",
        "Launches had failed for so long that AWS suspended the group itself. It was resumed and tries again.",
        "If it comes again, each wait is longer. Look at why launches fail: quota, image, pools, zones.",
    ),
    Kind.SUSPENDED: Text(
        "a process of the group is suspended",
        "Somebody suspended a process of the Auto Scaling group. The watchdog leaves it suspended; "
        "with Launch suspended nothing is launched, on-demand neither.",
        "fleetctl resume lets the group launch again; the page names the call for any other process.",
    ),
    Kind.BOOT_LOOP: Text(
        "boots keep failing, launching is suspended",
        "One boot after another failed before it served. Launch is suspended, to stop paying for boots.",
        "Read the boot log and mend the cause; then fleetctl resume and, where the mending needs one, make deploy.",
    ),
    Kind.DRY: Text(
        "on-demand is dry too",
        "Neither spot nor on-demand sells a box. The group keeps trying; this is the only mail about it.",
        "Add a pool or a zone.",
    ),
    Kind.REMINDED: Text(
        "still on-demand",
        "The fleet has not been back on spot for another day.",
        "fleetctl status says what it waits for; fleetctl arm ends a pin and what the watchdog holds against spot.",
        spot=False,
    ),
    Kind.REPLACED: Text(
        "many boxes replaced on recommendations",
        "AWS keeps recommending to replace spot boxes, and the group answers each time with another box.",
        "Add a pool or a zone that is interrupted less, or switch capacity rebalancing off and take the interruptions.",
    ),
    Kind.REFUSED: Text(
        "launches are refused",
        "AWS refuses to launch a box that the fleet lacks, and will until somebody mends it. The group keeps trying.",
        "See the page.",
    ),
}
OF_SEVERAL = {  # what happened, in a fleet of several boxes
    Kind.FAILOVER: "Boxes were missing, so the watchdog bought them on-demand. They usually serve within 6 minutes.",
    Kind.BRIDGED: "AWS warned that spot boxes may go, so the watchdog puts on-demand boxes in their place.",
    Kind.LIMITED: "The day's limit of on-demand hours is reached: what was bought ends, and the fleet waits for spot.",
    Kind.REARMED: "The market recovered. What was bought has been given back to spot, box by box.",
    Kind.FELL_BACK: "The watchdog tried to go back to spot and gave up. What serves was left alone, spot or on-demand.",
    Kind.DRY: "On-demand does not sell what the fleet lacks. The group keeps trying; this is the only mail about it.",
    Kind.GAVE_UP: "Too much of the fleet had to be bought: the watchdog no longer trusts spot and goes all on-demand.",
}
TELL_OF_LAUNCHES = {Kind.BOOT_LOOP, Kind.REFUSED, Kind.FELL_BACK}  # their `why` ends in AWS's words


def compose(transition: Transition, settings: Settings) -> tuple[str, str]:
    """Subject (ASCII, at most 100 characters, as SNS demands) and body."""
    text = TEXTS[transition.kind]
    if shares.floor(settings) > 1:
        text = replace(text, happened=OF_SEVERAL.get(transition.kind, text.happened))
    failure = failures.read(transition.why) if transition.kind in TELL_OF_LAUNCHES else failures.ENDED
    if transition.kind is Kind.REFUSED:
        text = replace(text, subject=f"{text.subject}: {failure.headline}", reader=failure.remedy)
    elif failure.lasting:
        text = replace(text, reader=f"{failure.remedy} {text.reader}")
    body = [
        text.happened,
        f"When: {transition.at:%Y-%m-%d %H:%M:%S} UTC",
        f"Why: {transition.why}",
        f"Cost: {_cost(settings, spot=text.spot, part=transition.part)}",
        f"What you may do: {text.reader}",
        f"More: docs/runbook/mail-{transition.kind}.md",
    ]
    return f"[{settings.fleet_name}] {text.subject}", "\n".join(body) + "\n"


def _cost(settings: Settings, *, spot: bool | None, part: int) -> str:
    boxes, base = max(settings.capacity.min, 1), settings.capacity.on_demand_base
    pools = [settings.pool(name) for name in settings.pools]

    def of(on_demand: int) -> str:
        return _per_day([on_demand * pool.on_demand_usd + (boxes - on_demand) * pool.spot_usd for pool in pools])

    dear, cheap = of(boxes), of(base)
    count = f"{boxes} box" + ("es" if boxes > 1 else "")
    if spot is None:
        return f"unchanged; {count}: {dear} a day on-demand, {cheap} on spot"
    if part and not spot:
        bought = base + shares.bought(part, settings)
        return f"{of(bought)} a day for {count}, {bought} of them on-demand (on spot: {cheap}; all on-demand: {dear})"
    now, else_ = (cheap, f"on-demand: {dear}") if spot else (dear, f"on spot: {cheap}")
    return f"{now} a day for {count} ({else_})"


def _per_day(usd_per_hour: list[float]) -> str:
    low, high = (f"${price * 24:.2f}" for price in (min(usd_per_hour), max(usd_per_hour)))
    return low if low == high else f"{low} to {high}"
