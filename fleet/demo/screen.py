"""The demo's screen: steps with their seconds, lines with their historic times."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console
from rich.markup import escape


class Narrator:
    """Writes to the terminal; on a dumb one or in a pipe, plain lines."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()

    def heading(self, text: str) -> None:
        """A chapter of the demo."""
        self.console.print(f"\n[bold]{escape(text)}[/bold]")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Something that takes its time: a spinner meanwhile, its seconds afterwards."""
        began = time.monotonic()
        with self.console.status(escape(text)):
            yield
        self.console.print(f"  [green]✓[/green] {escape(text):<72} [dim]{time.monotonic() - began:5.1f} s[/dim]")

    def at(self, moment: datetime, text: str, style: str = "") -> None:
        """A line of a night, with the time at which it happened."""
        clock = f"[cyan]{moment:%d %b %H:%M:%S}[/cyan]"
        self.console.print(f"  {clock}  [{style}]{escape(text)}[/{style}]" if style else f"  {clock}  {escape(text)}")

    def fact(self, text: str) -> None:
        """A remark."""
        self.console.print(f"  {escape(text)}")

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.began
