"""The one renderer of event logs: a self-contained `report.html` for the demo, the drills, the live history, game days.

The page opens from a file, asks nothing of the network, and is the same for the same log.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
from markupsafe import Markup

from fleet.core.untrusted import printable
from fleet.eventlog import boot_chart, spans, timeline
from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure

SVG_LIVES_AT_MOST = 150  # above this many boxes a picture is a PNG: an SVG would be larger than what it shows
LONG_TABLE, ROWS_AT_MOST = 30, 200  # lines of a table: longer ones are closed, and end with a word on the rest
ZOOMS = 3
ZOOM_MARGIN_SECONDS = 900
LONG_SECONDS = 3 * 3600  # shorter logs need no zoom


@dataclass(frozen=True)
class Picture:
    """A drawn file and what it shows."""

    caption: str
    path: Path

    def inline(self) -> Markup:
        """The picture inside the page."""
        if self.path.suffix == ".svg":
            text = self.path.read_text(encoding="utf-8")
            return Markup(text[text.index("<svg") :])  # noqa: S704 - drawn by us
        data = base64.b64encode(self.path.read_bytes()).decode()
        return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(self.caption, data)


@dataclass(frozen=True)
class DecisionRow:
    """One decision, or a run of the same one. `quiet` changed nothing."""

    at: str
    signal: str
    action: str
    reason: str
    outcome: str
    quiet: bool
    count: int = 1


@dataclass(frozen=True)
class Chapter:
    """One log on the page: its pictures, its decisions and mails."""

    title: str
    facts: list[tuple[str, str]]
    pictures: list[Picture]
    decisions: list[DecisionRow]
    mails: list[dict[str, str]]


def render(events: Sequence[Event], out_dir: Path, *, title: str) -> Path:
    """Draw one log: `timeline.svg`, `timeline.png` and `report.html` in `out_dir`; the path of the page."""
    out_dir.mkdir(parents=True, exist_ok=True)
    told = spans.read(events)
    timeline.save(told, out_dir / "timeline.svg", title=title)
    timeline.save(told, out_dir / "timeline.png", title=title)
    return page(out_dir, title=title, chapters=[chapter(events, out_dir, title=title, prefix="timeline")])


def chapter(
    events: Iterable[Event], out_dir: Path, *, title: str, prefix: str, zooms: Sequence[spans.Span] | None = None
) -> Chapter:
    """Draw one log and collect what its page says of it. Files are named after `prefix`.

    `zooms` is what to draw in detail, alike for the chapters of a page; None: this log's own longest degraded windows.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    events = list(events)
    told = spans.read(events)
    suffix = ".svg" if len(told.lives) <= SVG_LIVES_AT_MOST else ".png"
    whole = timeline.save(told, out_dir / f"{prefix}{suffix}", title=title)
    pictures = [Picture(title, whole)]
    for number, zoom in enumerate(longest_windows(told) if zooms is None else zooms, 1):
        start, end = (timeline.clock(at)[:-3] for at in (zoom.start, zoom.end))
        caption = f"{start} to {end.rpartition(' ')[2]}: {_degraded_minutes(told, zoom):.0f} min degraded"
        path = out_dir / f"{prefix}-{number}.svg"
        timeline.save(told, path, title=caption, start=zoom.start, end=zoom.end)
        pictures.append(Picture(caption, path))
    if told.stages:
        pictures.append(Picture("boots by stage", boot_chart.save(told.stages, out_dir / f"{prefix}-boots.svg")))
    mails = [{"at": timeline.clock(m.at), "subject": m.text, "body": m.detail} for m in told.marks if m.kind == "mail"]
    return Chapter(title, _facts(events), pictures, _decisions(told.decisions), mails)


def page(
    out_dir: Path,
    *,
    title: str,
    chapters: Sequence[Chapter],
    tables: Mapping[str, Sequence[dict[str, str]]] | None = None,
    charts: Sequence[Picture] = (),
    notes: Sequence[str] = (),
) -> Path:
    """Write `report.html`. `tables`: rows of cells, by what is said above them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("report.html.j2").render(
        title=title,
        chapters=chapters,
        tables=tables or {},
        charts=charts,
        notes=notes,
        long=LONG_TABLE,
        most=ROWS_AT_MOST,
    )
    path = out_dir / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def longest_windows(told: spans.Spans) -> list[spans.Span]:
    """The longest degraded windows of a long log that somebody decided in, with a margin: worth a picture each."""
    if told.end - told.start < LONG_SECONDS or not told.decisions:
        return []
    windows = sorted(told.degraded(), key=lambda span: span.start - span.end)[:ZOOMS]
    return [
        spans.Span(max(told.start, s.start - ZOOM_MARGIN_SECONDS), min(told.end, s.end + ZOOM_MARGIN_SECONDS), s.value)
        for s in sorted(windows, key=lambda span: span.start)
    ]


def _degraded_minutes(told: spans.Spans, within: spans.Span) -> float:
    spans = ((max(s.start, within.start), min(s.end, within.end)) for s in told.degraded())
    return sum(max(0.0, end - start) for start, end in spans) / 60


def _degraded(measure: Measure) -> str:
    if measure.desired <= 1:
        return f"{measure.degraded_minutes:.1f} min"
    return f"{measure.box_minutes:.1f} box-minutes ({measure.dark_minutes:.1f} min without any box)"


def _facts(events: Sequence[Event]) -> list[tuple[str, str]]:
    measure = Measure()
    for event in events:
        measure.add(event)
    longest = max((window.seconds for window in measure.windows), default=0.0)
    return [
        ("degraded", f"{_degraded(measure)} in {len(measure.windows)} windows"),
        ("longest window", f"{longest / 60:.1f} min"),
        (
            "cost",
            f"${measure.cost_usd:.2f} (spot ${measure.usd['spot']:.2f}, on-demand ${measure.usd['on-demand']:.2f})",
        ),
        ("boxes launched", str(measure.counts["box.launched"])),
        ("notices", str(measure.counts["notice"])),
        ("failed launches", str(measure.counts["launch.failed"])),
        ("mails", str(measure.counts["mail"])),
    ]


def _decisions(events: Sequence[Event]) -> list[DecisionRow]:
    """Every decision with its reason; quiet ones in a row that are alike in all of it are one line."""
    rows: list[DecisionRow] = []
    for event in events:
        row = _decided(event)
        before = rows[-1] if rows else None
        if before and row.quiet and replace(before, at=row.at, count=1) == row:
            rows[-1] = replace(before, count=before.count + 1)
        else:
            rows.append(row)
    return rows


def _decided(event: Event) -> DecisionRow:
    fields = event.fields
    signal = fields.get("signal", "")
    wake = signal.get("wake", "") if isinstance(signal, dict) else str(signal)
    action = str(fields.get("action", ""))
    return DecisionRow(
        at=timeline.clock(event.at.timestamp()),
        signal=wake,
        action=action,
        reason=str(fields.get("reason", "")),
        outcome=str(fields.get("outcome", "")),
        quiet=action in spans.QUIET_ACTIONS,
    )
