"""Where answers reach a terminal: whatever an outsider wrote arrives there as text, and as nothing else."""

import io
import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fleet.core.untrusted import printable


class Terminal(Console):
    """rich's console without markup; what is not printable never leaves it. Plain text where it is no terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything that is drawn passes here, tables and live views too; `control` is rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def say(text: str, *, err: bool = False) -> None:
    """Lines of ours that may quote an outsider."""
    click.echo(printable(text), err=err)


def take_every_letter() -> None:
    """A terminal of few letters shows the others by their numbers, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
