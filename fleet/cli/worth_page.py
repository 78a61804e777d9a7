"""The page of `fleetctl worth`: dollars a month and the GPU's share over the rate, the table, the sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter

from fleet.config import prices
from fleet.config.gateway_settings import Gateway
from fleet.eventlog import html_report, timeline
from fleet.sim.callers import worth
from fleet.sim.callers.traffic import Traffic
from fleet.sim.callers.worth import Option

ALONE = "the cloud model alone"

COLORS = (timeline.SPOT, timeline.ON_DEMAND, timeline.GOOD)
LOWEST, HIGHEST = 10.0, 100_000.0  # requests a day, of the curves
PLAIN = FuncFormatter(lambda value, _: f"{value:,.0f}")


@dataclass(frozen=True)
class Worth:
    """What was found. The first option is the fleet as set."""

    traffic: Traffic
    gateway: Gateway
    options: Sequence[Option]
    notes: tuple[str, ...]

    @property
    def answer_usd(self) -> float:
        """Of one answer by the cloud model."""
        return worth.answer_usd(self.traffic, self.gateway)

    def rows(self) -> list[dict[str, str]]:
        """The table."""
        each, traffic = self.answer_usd, self.traffic
        alone = worth.cloud_alone(traffic, each)
        return [
            *(
                self._row(
                    option.name,
                    option.month(traffic, each),
                    f"{option.gpu_share(traffic):.1%}",
                    _rate(worth.break_even(option, traffic, each)),
                )
                for option in self.options
            ),
            self._row(ALONE, alone, "-", "-"),
        ]

    def _row(self, name: str, usd: float, share: str, pays: str) -> dict[str, str]:
        thousand = usd / (self.traffic.a_day * prices.DAYS) * 1000
        by_gpu = {"by the GPU": share, "cheaper than the cloud from, a day": pays}
        return {"way": name, "USD": f"{usd:,.2f}", "USD / 1,000": f"{thousand:,.2f}", **by_gpu}

    def moved(self) -> list[str]:
        """What moves the answer, the most first."""
        times = worth.times_dearer(self.options[0], self.traffic, self.answer_usd)
        head = (
            f"The cloud model would cost as much as {self.options[0].name} at {times:,.2g} times its price; with half"
        )
        return [
            f"{head}, or twice, of:",
            *(
                f"  {each.what}: {each.halved:,.2g} or {each.doubled:,.2g} times"
                for each in worth.movers(self.options[0], self.traffic, self.gateway)
            ),
        ]

    def verdict(self) -> str:
        """Plainly."""
        option, traffic, each = self.options[0], self.traffic, self.answer_usd
        more = option.month(traffic, each) - worth.cloud_alone(traffic, each)
        if more <= 0:
            return f"Worth having at {traffic.a_day:g} requests a day: ${-more:,.2f} a month less than {ALONE}."
        rate = worth.break_even(option, traffic, each)
        told = (
            f"Not worth having for its cost at {traffic.a_day:g} requests a day: ${more:,.2f} a month more than {ALONE}"
        )
        if rate is not None:
            return f"{told}. From {_rate(rate)} a day on it is."
        most = option.most() * 24 * prices.DAYS
        return (
            f"{told}, and at no other rate: the most that its GPU can answer "
            f"in a month would cost ${most * each:,.2f} there, and ${option.fixed_month():,.2f} here."
        )

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        each, traffic = self.answer_usd, self.traffic
        return {
            "requests_a_day": traffic.a_day,
            "cloud_usd_per_answer": each,
            "ways": [
                {
                    "way": option.name,
                    "usd_a_month": round(option.month(traffic, each), 2),
                    "gpu_share": option.gpu_share(traffic),
                    "break_even_a_day": worth.break_even(option, traffic, each),
                    "times_the_clouds_price": worth.times_dearer(option, traffic, each),
                }
                for option in self.options
            ]
            + [{"way": ALONE, "usd_a_month": round(worth.cloud_alone(traffic, each), 2), "gpu_share": 0.0}],
            "moved_by": {
                moved.what: [moved.halved, moved.doubled]
                for moved in worth.movers(self.options[0], traffic, self.gateway)
            },
            "verdict": self.verdict(),
            "assumed": list(self.notes),
        }


def _rate(rate: float | None) -> str:
    return "never" if rate is None else f"{rate:,.0f}"


def write(found: Worth, out: Path) -> Path:
    """The page, its picture beside it."""
    picture = html_report.Picture("dollars a month over the rate", draw(found, out / "worth.svg"))
    notes = [found.verdict(), *found.moved(), *found.notes]
    title = f"Is it worth having? {found.traffic.a_day:g} requests a day"
    return html_report.page(out, title=title, chapters=[], tables={"": found.rows()}, charts=[picture], notes=notes)


def draw(found: Worth, path: Path) -> Path:
    """Dollars a month, and the share that the GPU answers, over requests a day; a line where the asked rate is."""
    top = max(HIGHEST, found.traffic.a_day * 3)
    rates = [LOWEST * (top / LOWEST) ** (step / 60) for step in range(61)]
    each = found.answer_usd
    with timeline.picture(path, 11, 4.4, left_spine=True) as figure:
        usd, share = figure.subplots(1, 2)
        for color, option in zip(COLORS, found.options, strict=False):
            traffics = [replace(found.traffic, a_day=rate) for rate in rates]
            even = worth.break_even(option, found.traffic, each)
            label = f"{option.name}: " + ("never cheaper" if even is None else f"cheaper from {even:,.0f} a day")
            usd.plot(rates, [option.month(traffic, each) for traffic in traffics], color=color, label=label)
            share.plot(rates, [100 * option.gpu_share(traffic) for traffic in traffics], color=color)
            if even is not None and LOWEST <= even <= top:
                at = option.month(replace(found.traffic, a_day=even), each)
                usd.plot([even], [at], "o", color=color, markeredgecolor=timeline.INK)
        alone = [worth.cloud_alone(replace(found.traffic, a_day=rate), each) for rate in rates]
        usd.plot(rates, alone, color=timeline.BAD, label=ALONE)
        for axes in (usd, share):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(PLAIN)
            axes.axvline(found.traffic.a_day, color="#999999", linewidth=1, linestyle=":")
            axes.set_xlabel("requests a day")
            axes.grid(color="#EEEEEE", linewidth=0.8)
        usd.set_yscale("log")
        usd.set_ylim(bottom=1)
        usd.yaxis.set_major_formatter(PLAIN)
        usd.set_title("USD a month", loc="left", fontweight="bold")
        usd.legend(frameon=False, fontsize=8)
        share.set_ylim(0, 103)
        share.set_title("answered by the GPU, %", loc="left", fontweight="bold")
    return path
