"""Where answers reach a terminal: whatever an outsider wrote arrives there as text, and as nothing else."""

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from fleet.core.untrusted import printable


class Terminal(Console):
    """rich's console without markup; what is not printable never leaves it. Plain text where it is no terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything that is drawn passes here, tables and live views too; `control` is rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain_table(*columns: str) -> Table:
    """Columns without lines between them; whatever is long goes on below."""
    table = Table(box=None, pad_edge=False, show_header=bool(any(columns)), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def figure_table(lines: Sequence[Mapping[str, str]], *, title: str, caption: str = "") -> Table:
    """A name and its figures a line, under the names of the first one's cells."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for number, column in enumerate(lines[0]):
        # A narrow terminal breaks a cell between its words: a figure that is cut off says nothing.
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*line.values())
    return table


def say(text: str, *, err: bool = False) -> None:
    """Lines of ours that may quote an outsider."""
    click.echo(printable(text), err=err)


def take_every_letter() -> None:
    """A terminal of few letters shows the others by their numbers, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
