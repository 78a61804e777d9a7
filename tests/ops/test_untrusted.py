"""What a box, a model, an image's owner or an operator wrote is shown as text: no markup, no escape, no traceback."""

import io
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from fleet.cli import context
from fleet.cli.fleetctl import main
from fleet.core.terminal import Terminal, plain_table
from fleet.core.untrusted import code, one_line, plain, printable
from fleet.eventlog import html_report
from fleet.eventlog.events import Event
from fleet.localaws.deployed import Deployed
from fleet.ops import live_history
from fleet.ops.live_history import BootStage

BOX = "i-0123456789abcdef0"
# Clears the screen, hides a link, turns the direction of writing, ends a table of rich's, is half of a pair.
EVIL = (
    "\x1b[2J\x1b]8;;http://evil\x1b\\here\x9b1m \u202egnp.exe [/x] [bold]\\[/bold] $5 #123 $6 \udcff {{ 7*7 }} <b>|</b>"
)
SAFE_LINES = set("\n\t\u200c\u200d")


def shown(text: str) -> bool:
    return all(char.isprintable() or char in SAFE_LINES for char in text)


def log_line(text: str, stream: str = f"{BOX}/boot") -> dict[str, Any]:
    return {"logStreamName": stream, "message": text}


def test_texts_that_others_wrote_are_printable_and_their_letters_stay() -> None:
    assert one_line("a\n\x1bb\u2028c", 6) == "a  b c"
    assert (
        printable("bonjour\u00a0! \U0001f469\u200d\U0001f4bb\n\tend") == "bonjour ! \U0001f469\u200d\U0001f4bb\n\tend"
    )
    assert printable("\x1b[2J\udcff\r\x07") == "\ufffd[2J\ufffd \ufffd"
    assert plain({"a\x00": ["\x1b", 1, None, {"b": "\x07"}]}) == {"a\ufffd": ["\ufffd", 1, None, {"b": "\ufffd"}]}
    assert code("`|\n<!-- @all") == "`'¦ <!-- @all`"


def test_a_stage_is_read_whatever_its_reason_says_and_lines_that_tell_none_are_counted() -> None:
    line = '12.00 BOOTSTAGE stage={} outcome={} start=1.00 end=2.00 seconds=1.00 why="end= start=x BOOTSTAGE"'
    lines = [
        log_line(line.format("warm_up", "failed")),
        log_line(line.format("warm_up", "failed"), f"{BOX}/live"),  # the same line, shipped again
        log_line("12.00 BOOTSTAGE stage=open outcome=done start=1.00"),
        log_line("12.00 BOOTSTAGE stage=open outcome=done start=nan end=inf"),
        log_line("12.00 BOOTSTAGE stage=open outcome=done start=3.00 end=2.00"),
        log_line("12.00 BOOTSTAGE stage=open outcome=done start=1.00 end=99999999.00"),
        log_line("12.00 BOOTSTAGE stage=\x1b[2J outcome=done start=1.00 end=2.00"),
        log_line("12.00 BOOTSTAGE"),
        log_line(line.format("open", "done"), "../../etc"),
    ]
    assert live_history.stages_of(lines) == ((BootStage(BOX, "warm_up", 1.0, 2.0, "failed"),), 7)


def test_a_box_that_floods_its_log_is_drawn_with_so_many_stages_and_no_more() -> None:
    flood = [log_line(f"1.00 BOOTSTAGE stage=s{n} outcome=done start=1.00 end=2.00") for n in range(1000)]
    found, skipped = live_history.stages_of(flood)
    assert (len(found), skipped) == (live_history.STAGES_AT_MOST, 1000 - live_history.STAGES_AT_MOST)


# --- on the deployed fleet -------------------------------------------------------------------------------------


@pytest.fixture
def fleetctl(live: Deployed, tmp_path: Path) -> Callable[..., Result]:
    """On a terminal that takes escapes: click strips none here."""

    def run(*arguments: str) -> Result:
        environment = {**live.aws.environment(), "COLUMNS": "200", "FORCE_COLOR": "1", "TERM": "xterm"}
        return CliRunner().invoke(main, arguments, env=environment, color=True)

    return run


OURS = ("\x1b[1m", "\x1b[2m", "\x1b[0m", "\x1b[31m", "\x1b[32m", "\x1b[1;32m", "\x1b[1;31m")


def without_our_colours(text: str) -> str:
    for escape in OURS:
        text = text.replace(escape, "")
    return text


def test_a_stolen_box_cannot_end_or_paint_status_by_its_tag(live: Deployed, fleetctl: Callable[..., Result]) -> None:
    box = live.boxes()[0]["InstanceId"]
    tag = {"Key": "fleet:boot", "Value": "".join(char for char in EVIL if char not in "\x1b\udcff")}  # XML has neither
    live.aws.client("ec2", role=live.role("group", "BoxRole")).create_tags(Resources=[box], Tags=[tag])
    done = fleetctl("status")
    assert done.exit_code == 0, done.output
    assert shown(without_our_colours(done.output))
    assert "evil" not in done.output  # the tag is one of two words, or none


def test_history_is_drawn_from_the_log_that_a_stolen_box_wrote(
    live: Deployed, fleetctl: Callable[..., Result], tmp_path: Path
) -> None:
    box = live.boxes()[0]["InstanceId"]
    logs = live.aws.client("logs", role=live.role("group", "BoxRole"))
    now = int(datetime.now(UTC).timestamp() * 1000)
    for stream, message in {
        f"{box}/boot": '9.00 BOOTSTAGE stage=warm_up outcome=failed start=1.00 end=2.00 seconds=1.00 why="end= of it"',
        f"{box}/live": "BOOTSTAGE [/x] \x1b[2J",
        "x [/bold]": "9.00 BOOTSTAGE stage=warm_up outcome=done start=1.00 end=2.00",
    }.items():
        logs.create_log_stream(logGroupName="/llm/box", logStreamName=stream)
        logs.put_log_events(
            logGroupName="/llm/box", logStreamName=stream, logEvents=[{"timestamp": now, "message": message}]
        )
    done = fleetctl("history", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "warm_up 1" in done.output
    assert "2 lines of the boxes' log were skipped" in done.output
    assert shown(without_our_colours(done.output))


def test_what_an_operator_gives_as_a_reason_is_recorded_drawn_and_mailed_as_text(
    live: Deployed, fleetctl: Callable[..., Result], tmp_path: Path
) -> None:
    assert fleetctl("pin", "--why", EVIL, "--yes").exit_code == 0
    for words in (("status",), ("history", "--out", str(tmp_path))):
        done = fleetctl(*words)
        assert done.exit_code in (0, 3), done.output
        assert "$5 #123 $6" in done.output
        assert shown(without_our_colours(done.output))
    assert shown(live.mails()[-1]["body"])
    assert "$5 #123 $6" in (tmp_path / "report.html").read_text()


def test_the_models_answer_reaches_the_terminal_as_text(monkeypatch: pytest.MonkeyPatch, fleet_of: Any) -> None:
    said = json.dumps({"model": "m", "answer": EVIL, "seconds": 0.4})
    aws = fleet_of({BOX: "healthy"}, {"Status": "Success", "StandardOutputContent": said})
    monkeypatch.setattr(context, "Aws", lambda region: aws)
    done = CliRunner().invoke(main, ["ask", "hello"], color=True)
    assert done.exit_code == 0, done.output
    assert "[/x] [bold]\\[/bold] $5" in done.stdout
    assert shown(done.output)


@pytest.mark.parametrize("words", [[EVIL], ["--" + EVIL], ["status", EVIL], ["history", "--days", EVIL]])
def test_words_that_are_refused_are_told_as_text(words: list[str]) -> None:
    done = CliRunner().invoke(main, words, color=True)
    assert done.exit_code == 2
    assert shown(done.output)


# --- drawn -----------------------------------------------------------------------------------------------------


def evil_log() -> Iterator[Event]:
    at = datetime(2026, 7, 22, tzinfo=UTC)
    yield Event(at, "start", {"name": EVIL, "desired": 1})
    yield Event(at, "box.launched", {"box": EVIL, "purchase": "spot", "pool": EVIL, "usd_per_hour": 1.0})
    yield Event(at, "box.serving", {"box": EVIL})
    yield Event(at, "decision", {"action": "pinned", "reason": EVIL, "signal": {"wake": EVIL}, "outcome": EVIL})
    yield Event(at, "mail", {"subject": EVIL, "body": EVIL})
    yield Event(at, "boot.stage", {"box": EVIL, "stage": EVIL, "start": 1.0, "end": 2.0, "outcome": EVIL})
    yield Event(at.replace(hour=1), "box.ended", {"box": EVIL, "why": EVIL})
    yield Event(at.replace(hour=2), "end", {})


def test_a_page_and_its_pictures_hold_what_others_wrote_as_text(tmp_path: Path) -> None:
    page = html_report.render(list(evil_log()), tmp_path, title=EVIL).read_text(encoding="utf-8")
    assert shown(page)
    assert "$5 #123 $6" in page
    assert "<b>|</b>" not in page
    for picture in tmp_path.glob("*.svg"):
        assert shown("".join(ElementTree.parse(picture).getroot().itertext()))  # noqa: S314  drawn by us


def test_what_is_drawn_on_a_terminal_is_text_whatever_draws_it() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, width=200, color_system=None)
    table = plain_table(EVIL, "")
    table.add_row(EVIL, EVIL)
    for thing in (EVIL, table):
        terminal.print(thing)
    assert shown(out.getvalue())
    assert "[/x] [bold]\\[/bold]" in out.getvalue()


def test_a_terminal_of_few_letters_ends_no_command(tmp_path: Path) -> None:
    done = CliRunner(charset="ascii").invoke(main, ["--settings", str(tmp_path / "ä\udcff"), "status"])
    assert done.exit_code == 2
    assert "ValueError" not in done.output
    assert os.linesep in done.output
