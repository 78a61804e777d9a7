"""What a preflight check is: a function from the ground (settings and AWS) to one finding with its remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError
from fleet.config.settings import Settings
from fleet.core import names
from fleet.ops import fleet_view


class Level(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105  a word, not a secret
    WARN = "warn"  # works today, or could not matter; read the remedy
    FAIL = "fail"  # would fail a deploy or a failover


@dataclass(frozen=True)
class Ground:
    """What every check may look at."""

    settings: Settings
    aws: Aws

    @cached_property
    def function(self) -> dict[str, Any] | None:
        """The watchdog's configuration (its role, its environment); None before the first deploy."""
        name = names.watchdog_function(self.settings.fleet_name)
        return self.aws.find("lambda", "GetFunctionConfiguration", FunctionName=name)

    @cached_property
    def group(self) -> dict[str, Any] | None:
        """The Auto Scaling group as AWS describes it; None before the first deploy."""
        try:
            return fleet_view.described(self.aws, self.settings.fleet_name)
        except MissingError:
            return None

    @cached_property
    def parameters(self) -> dict[str, str]:
        """State and lever by name; an absent one is left out."""
        fleet = self.settings.fleet_name
        wanted = [names.state_parameter(fleet), names.lever_parameter(fleet)]
        found = self.aws.call("ssm", "GetParameters", Names=wanted)["Parameters"]
        return {parameter["Name"]: parameter["Value"] for parameter in found}


@dataclass(frozen=True)
class Finding:
    """What one check found. `remedy` is empty only for a pass."""

    level: Level
    found: str
    remedy: str = ""


Check = Callable[[Ground], Finding]


def passed(found: str) -> Finding:
    """Nothing to do."""
    return Finding(Level.PASS, found)


def warned(found: str, remedy: str) -> Finding:
    """Works today; the remedy says what to think about."""
    return Finding(Level.WARN, found, remedy)


def not_deployed(found: str) -> Finding:
    """There is nothing to check yet: no pass, since nothing was looked at."""
    return warned(f"not deployed yet: {found}", "run `fleetctl preflight` again after `make deploy`")


def failed(found: str, remedy: str) -> Finding:
    """Would fail a deploy or a failover."""
    return Finding(Level.FAIL, found, remedy)
