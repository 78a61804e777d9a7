"""What `drill` and `sweep` ask for alike: the options, and what they mean in scenes, settings and luck."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from fleet.cli.context import Operator
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.sim.drills import replay
from fleet.sim.drills.drill import default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Variation
from fleet.sim.markets.market import PLENTY
from fleet.sim.policies import catalogue

SEEDS = 5
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def scene_options(command: Callable[..., None]) -> Callable[..., None]:
    """What both commands ask for."""
    options: Sequence[Decorator] = (
        click.option("--days", type=click.FloatRange(0.01, 3650), default=45, show_default=True, help="Of a region."),
        click.option(
            "--seeds",
            type=click.IntRange(1, 10_000),
            help=f"Random seeds: markets of a region (default {SEEDS}), or runs of one market file.",
        ),
        click.option("--desired", type=click.IntRange(1, 20), help="Boxes that should serve; from the settings."),
        click.option("--on-demand-base", type=click.IntRange(0, 20), help="Boxes of those that are always on-demand."),
        click.option(
            "--supply",
            type=click.IntRange(1),
            default=PLENTY,
            help="Boxes a region's pool carries; default: unlimited.",
        ),
        click.option("--boots", type=click.FloatRange(0.1, 10), default=1, help="2: boots twice as slow."),
        click.option("--lost", type=click.FloatRange(0, 1), default=0, help="Share of events that never arrive."),
        click.option(
            "--warned",
            type=click.FloatRange(0, 1),
            help="Share of losses that AWS announces minutes ahead; 0.3 is assumed.",
        ),
        click.option("--wrong-scores", type=click.FloatRange(0, 1), help="Share of wrong answers; 0.05 is assumed."),
        click.option(
            "--spot-quota",
            type=click.IntRange(0),
            metavar="VCPUS",
            help="Spot vCPUs of the account; default: unlimited.",
        ),
        click.option("--on-demand-quota", type=click.IntRange(0), metavar="VCPUS", help="Counted apart from spot's."),
        click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting, as in cdk.json."),
        click.option("--no-valve", is_flag=True, help="Never give up on spot, however many failovers."),
        click.option("--workers", type=click.IntRange(1), help="Processes; default: all cores."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def seeds_of(place: Scene, options: dict[str, Any]) -> int:
    """How many markets; of a file, which is one market, how many random seeds."""
    given: int | None = options["seeds"]
    if given is not None and given > 1 and place.history:
        raise UserError("--seeds: a history happened once; only regions and market files have random seeds")
    return given or (SEEDS if place.seeded else 1)


def variation_of(options: dict[str, Any]) -> Variation:
    """What is turned in the simulated cloud."""
    return Variation(
        boots_factor=options["boots"],
        events_lost_share=options["lost"],
        warned_share=options["warned"],
        scores_wrong_share=options["wrong_scores"],
        spot_vcpu_quota=options["spot_quota"],
        on_demand_vcpu_quota=options["on_demand_quota"],
    )


def own_settings(operator: Operator) -> Settings:
    """The fleet's own settings; where there is no `cdk.json`, every setting is at its default."""
    here = operator.settings_path.exists() or operator.settings_path != Path("cdk.json")
    return operator.settings if here else default_settings()


def settings_of(operator: Operator, place: Scene, options: dict[str, Any]) -> Settings:
    """The fleet's own settings with what the command line changes, checked as `cdk.json` is.

    A history brings its own size and rhythm of scans.
    """
    raw = dataclasses.asdict(own_settings(operator))
    raw["initial_mode"] = "spot-armed"  # a history says how it began
    capacity = raw["capacity"]
    desired = options["desired"]
    if place.history:
        record = replay.load(place.history)
        raw["bridge" if record.fleet.policy == "bridge" else "watchdog"]["scan_seconds"] = record.scan_seconds
        desired = desired or record.fleet.desired
    if desired is not None:
        capacity["max"] = max(2 * desired, capacity["max"])
        capacity["min"] = desired
    if options["on_demand_base"] is not None:
        capacity["on_demand_base"] = options["on_demand_base"]
    for change in options["changes"]:
        key, equals, text = change.partition("=")
        section: Any = raw
        *path, last = key.split(".")
        for part in path:
            section = section.get(part) if isinstance(section, dict) else None
        if not equals or not isinstance(section, dict) or last not in section:
            raise UserError(f"--set {change}: expected KEY=VALUE with a key of cdk.json, as watchdog.grace_seconds=900")
        section[last] = _value(text)
    settings = validation.check(raw, "--set")
    return catalogue.without_valve(settings) if options["no_valve"] else settings


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
