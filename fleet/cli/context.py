"""What every subcommand starts from: the settings and the access to AWS, made on demand, once per command."""

import errno
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from fleet.account.access import Aws
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core.errors import UserError


@dataclass
class Operator:
    """Who runs `fleetctl`, and on which fleet."""

    settings_path: Path

    @cached_property
    def settings(self) -> Settings:
        """The checked settings; raises SettingsError with every problem at once."""
        return validation.load(str(self.settings_path))

    @cached_property
    def aws(self) -> Aws:
        """AWS in the fleet's region."""
        return Aws(self.settings.region)


def folder(command: str, out: Path) -> None:
    """Make the folder that --out names before anything is asked; UserError where that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(out))
    except OSError as error:
        raise UserError(
            f"{command}: --out is {out}; allowed: a folder that can be made and written ({error})"
        ) from None


def print_json(value: Any) -> None:
    """One object, for scripts."""
    click.echo(json.dumps(value, indent=2, default=str))


pass_operator = click.make_pass_decorator(Operator)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
