"""What came of the callers, told: a row for each policy, and a picture over the timeline of who answered."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from matplotlib.patches import Patch

from fleet.config import prices
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.core.untrusted import printable
from fleet.eventlog import timeline
from fleet.sim.callers.caller_options import traffic_of
from fleet.sim.callers.listener import Plan
from fleet.sim.callers.recorded import ledger_tally, read
from fleet.sim.callers.tally import (
    BIN_SECONDS,
    CLOUD,
    CUT,
    GPU,
    LEFT,
    NOBODY,
    OUTCOMES,
    REFUSED,
    Tally,
    merged,
)
from fleet.sim.experiments.experiment import Row
from fleet.sim.policies import catalogue

CAPTION = (
    "of all requests; first token and whole answer of those answered, seconds: median / 95 % / 99 %;\n"
    "USD: boxes, gateway and tokens of the cloud model, for 1,000 answers"
)
COLORS = {
    GPU: timeline.SPOT,
    CLOUD: timeline.ON_DEMAND,
    CUT: timeline.BAD,
    NOBODY: timeline.INK,
    REFUSED: "#BBBBBB",
    LEFT: "#DDDDDD",
}
WORDS = {
    GPU: "the GPU",
    CLOUD: "the cloud model",
    CUT: "cut",
    NOBODY: "nobody",
    REFUSED: "refused by a cap",
    LEFT: "left",
}
SHORT = {GPU: "GPU", CLOUD: "cloud", CUT: "cut", NOBODY: "nobody", REFUSED: "refused", LEFT: "left"}
LEDGER = "the ledger itself"
COLUMNS = 110  # of the picture
MONTH_SECONDS = prices.DAYS * 86400


def plan_of(callers: str, traffic: Sequence[str], span: tuple[float, float], *, lane: bool, cloud: bool) -> Plan:
    """Who asks, from the command line; raises UserError. `span`: of the drill, epoch seconds."""
    plan = Plan(lane=lane) if cloud else Plan(lane=lane, cloud=None)
    try:
        rate = float(callers)
    except ValueError:
        path = Path(callers)
        if not path.exists():
            raise UserError(f"--callers {callers}: expected requests a day, or a file that exists") from None
        if traffic:
            raise UserError("--traffic: of callers who are drawn; those of a file are as it says") from None
        wishes = read(path, *span)
        return replace(plan, recorded=wishes, ledger=ledger_tally(path, wishes))
    return replace(plan, traffic=traffic_of(traffic, rate))


def notes(plan: Plan, settings: Settings) -> tuple[str, ...]:
    """What the page says of them."""
    told = plan.traffic.assumptions
    if plan.recorded is not None:
        told = (f"{len(plan.recorded)} requests from a file; what it does not say of one is as for those drawn",)
    gateway = () if settings.gateway else ("The settings have no gateway: one at its defaults is assumed",)
    line = "The lane keeps a box's line" if plan.lane else "A box's engine keeps its line, first come, first served"
    low, high = plan.cloud.seconds if plan.cloud else (0.0, 0.0)
    cloud = f"the cloud model takes {low:g} to {high:g} s" if plan.cloud else "there is no cloud model"
    if plan.cloud and settings.gateway and not settings.gateway.fallback.url:
        cloud = "the settings name no cloud model"
    return (*told, *gateway, f"{line}; {cloud}")


def tally_of(row: Row) -> Tally:
    """Of all its seeds."""
    return merged(result.callers for result in row.results if result.callers is not None)


def lines(rows: Sequence[Row], ledger: Tally | None = None) -> list[dict[str, str]]:
    """The table; ends that no request met under any policy are left out. A ledger's own line comes last."""
    tallies = [tally_of(row) for row in rows]
    all_told = [*tallies, ledger] if ledger else tallies
    met = [each for each in OUTCOMES if each in (GPU, CLOUD) or any(tally.outcomes[each] for tally in all_told)]
    found = [_cells(row, tally, met) for row, tally in zip(rows, tallies, strict=True)]
    if ledger:
        found.append(dict.fromkeys(found[0], "-") | {"policy": LEDGER} | _shares(ledger, met))
    return found


def off(rows: Sequence[Row], plan: Plan, settings: Settings) -> str:
    """How far the model is off: the fleet's own policy as it is simulated, beside its ledger; empty without both."""
    name = catalogue.POLICIES[settings.policy].name
    own = next((row for row in rows if row.name == name), None)
    if plan.ledger is None or own is None:
        return ""
    here, there = tally_of(own), plan.ledger
    points = ", ".join(
        f"{WORDS[each]} {(here.share(each) - there.share(each)) * 100:+.2f} points"
        for each in OUTCOMES
        if here.outcomes[each] or there.outcomes[each]
    )
    usd = f"the cloud model ${here.cloud_usd:.2f} for ${there.cloud_usd:.2f}"
    return f"How far the model is off, {name} here beside the ledger: {points}; {usd}"


def _shares(tally: Tally, met: Sequence[str]) -> dict[str, str]:
    return {SHORT[each]: f"{tally.share(each):.2%}" if tally.outcomes[each] else "-" for each in met}


def _cells(row: Row, tally: Tally, met: Sequence[str]) -> dict[str, str]:
    seconds = sum(result.measure.end - result.measure.start for result in row.results)
    boxes = sum(result.measure.cost_usd for result in row.results)
    gateway = prices.month(prices.GATEWAY) * seconds / MONTH_SECONDS + prices.REQUEST_USD * tally.asked
    usd = (boxes + gateway + tally.cloud_usd) / tally.answers * 1000 if tally.answers else 0.0
    continued = {"continued": str(tally.continued)} if tally.continued else {}
    return {
        "policy": row.name,
        **_shares(tally, met),
        **continued,
        "in budget": f"{tally.in_budget / max(1, tally.asked):.1%}",
        "first, s": _latencies(tally.first),
        "whole, s": _latencies(tally.whole),
        "wasted": f"{tally.wasted / max(1, tally.decoded):.2%}",
        "USD, 1,000": f"{usd:.2f}",
    }


def _latencies(seconds: Sequence[float]) -> str:
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [*(seconds or [0.0])] * 99
    return " / ".join(f"{cuts[percent - 1]:.0f}" for percent in (50, 95, 99))


def draw(tallies: dict[str, Tally], end: float, path: Path, *, title: str) -> Path:
    """Who answered over the timeline of the first seed, a strip for each policy."""
    with timeline.picture(path, 12, 1.1 + 1.0 * len(tallies), left_spine=True) as figure:
        start = next(iter(tallies.values())).start
        width = max(1, round((end - start) / BIN_SECONDS / COLUMNS))  # of a bar, in bins
        panels = figure.subplots(len(tallies), 1, sharex=True, squeeze=False)
        for axes, (name, tally) in zip(panels[:, 0], tallies.items(), strict=True):
            bins = int((end - tally.start) // BIN_SECONDS // width) + 1
            hours = [(nth * width) * BIN_SECONDS / 3600 for nth in range(bins)]
            below = [0.0] * bins
            for outcome in OUTCOMES:
                counts = [0.0] * bins
                for (at, who), count in tally.bins.items():
                    if who == outcome:
                        counts[min(bins - 1, at // width)] += count
                axes.bar(
                    hours, counts, width * BIN_SECONDS / 3600, below, align="edge", color=COLORS[outcome], linewidth=0
                )
                below = [a + b for a, b in zip(below, counts, strict=True)]
            axes.set_ylabel(printable(name), rotation=0, ha="right", va="center", fontsize=9)
            axes.set_xlim(0, (end - tally.start) / 3600)
            axes.tick_params(length=0)
        panels[-1, 0].set_xlabel("hours")
        shown = [each for each in OUTCOMES if any(tally.outcomes[each] for tally in tallies.values())]
        figure.legend(
            handles=[Patch(facecolor=COLORS[each], label=WORDS[each]) for each in shown],
            loc="outside lower center",
            ncols=len(shown),
            frameon=False,
        )
        told = f"{title}: requests in {width * BIN_SECONDS / 60:g} min, by who answered"
        figure.suptitle(printable(told), x=0.01, ha="left", fontweight="bold")
    return path
