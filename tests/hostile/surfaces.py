"""Where outsiders' writings come in, and what is made of them: each surface takes one hostile input to the texts shown.

A surface may refuse its input by the fleet's own errors, whose message is then what is shown. Anything else that is
raised would be a traceback.
"""

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hypothesis import strategies as st

from fleet.account.aws_errors import OperatorError
from fleet.cli import tables
from fleet.cli.fleetctl import main
from fleet.config import validation
from fleet.core import ask_document
from fleet.core.errors import UserError
from fleet.core.terminal import Terminal
from fleet.core.untrusted import printable
from fleet.eventlog import html_report, spans
from fleet.localaws import admission
from fleet.modelstore import upload
from fleet.ops import ask, deployed_stacks, lane, live_history, receipt, review, status
from fleet.ops.fleet_view import Decided, Told, View, _decided
from fleet.sim.drills import replay as receipts
from fleet.sim.markets import files as markets
from lambdas.watchdog import aws as watchdog_aws
from lambdas.watchdog import cloud
from lambdas.watchdog.handler import run
from lambdas.watchdog.record import Record
from lambdas.watchdog.state import StateError, loads
from lambdas.watchdog.world import World
from tests.hostile.inputs import as_json, bent, files, texts, values
from tests.synth import CDK_JSON, ROOT
from tests.watchdog.still_cloud import EMPTY, EVENTS, NOW, StillCloud, wake

Shown = Iterator[str]
BOX = "i-0123456789abcdef0"
SINCE = NOW - timedelta(hours=1, minutes=50)  # a longer log is drawn in more pictures
FLEET: dict[str, Any] = json.loads(CDK_JSON.read_text())["context"]["fleet"]
CHECKED = validation.check(FLEET)
HISTORIES = [json.loads(path.read_text()) for path in sorted(receipts.FOLDER.glob("*.json"))]
MARKET = (ROOT / "fleet/sim/traces/drought.market").read_text()
MODELFILE = 'FROM ./model.gguf\nPARAMETER num_ctx 4096\nTEMPLATE """{{ .Prompt }}"""\nSYSTEM "be kind"\n'
TEMPLATE = {
    "Parameters": {"Lever": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/llm/on-demand-percentage"}},
    "Resources": {
        "Group": {
            "Type": review.GROUP,
            "UpdatePolicy": {"AutoScalingInstanceRefresh": {"Preferences": {"MinHealthyPercentage": 100}}},
            "Properties": {"AutoScalingGroupName": "llm-gpu", "MixedInstancesPolicy": {"x": {"Ref": "Lever"}}},
        },
        "Template": {"Type": review.LAUNCH_TEMPLATE, "Properties": {"LaunchTemplateData": {"UserData": "one"}}},
    },
}
GGUF = "GGUF\x03\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" * 8
LINE = "48.10 BOOTSTAGE stage=restore outcome=done start=48.10 end=148.92 seconds=100.82 why={}"


@dataclass(frozen=True)
class Surface:
    """`share`: of the examples of a run; a picture costs a tenth of a second."""

    inputs: st.SearchStrategy[Any]
    shows: Callable[[Any], Shown]
    share: float = 1.0


def on_terminal(*things: Any) -> str:
    """What a terminal would be sent, without rich's own colours."""
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, width=160, color_system=None)
    for thing in things:
        terminal.print(thing)
    return out.getvalue()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# --- what AWS and the boxes tell ---------------------------------------------------------------------------------


def event(raw: Any) -> Shown:
    """An event wakes the watchdog; its record is read again, drawn up and mailed."""
    still = StillCloud()
    record: Record = run(raw, cloud=still, settings=still.settings, now=NOW)
    yield from (subject + body for subject, body in still.mails)
    line = {"timestamp": NOW.timestamp() * 1000, "message": json.dumps({"decision": record})}
    yield from _history(_decided([{"events": [line]}]))


def decision(raw: Any) -> Shown:
    """A line of the watchdog's log, which an older version or another program wrote."""
    line = {"timestamp": NOW.timestamp() * 1000, "message": as_json({"decision": raw})}
    yield from _history(_decided([{"events": [line]}]))


def _history(decided: tuple[Decided, ...], stages: tuple[live_history.BootStage, ...] = (), skipped: int = 0) -> Shown:
    living = {BOX: live_history.BoxRecord("spot", "g6.xlarge", NOW - timedelta(hours=1))}
    sources = live_history.Sources(SINCE, NOW + timedelta(hours=1), decided, (), (), stages, living, skipped)
    log, boxes = live_history.events(sources, CHECKED), live_history.lives(sources, CHECKED)
    receipt.receipt(log, CHECKED, boots=receipt.boots(boxes, SINCE)).dumps()
    yield from texts_of(spans.read(log))
    yield on_terminal(tables.history(log, boxes, Path("page"), lines=skipped))


def texts_of(told: spans.Spans) -> Shown:
    yield from (mark.text + mark.detail for mark in [*told.marks, *told.acts()])
    yield from (event.line() for event in [*told.decisions, *told.stages])


def log_line(raw: tuple[str, str]) -> Shown:
    """A line of a box's log, in a stream of its own choice."""
    stream, message = raw
    stages, skipped = live_history.stages_of([{"logStreamName": stream, "message": message}])
    yield from _history((), stages, skipped)


def tag(value: str) -> Shown:
    """The tag that a box gives itself, and the words of EC2 and the balancer around it."""
    raw = {"LaunchTime": NOW, "State": {"Name": value}, "Tags": [{"Key": "fleet:boot", "Value": value}]}
    box = cloud.Box(value, value, value, value)
    group = replace(EMPTY, boxes=(box,))
    world = World(
        lever=value,
        alarm=cloud.Alarm(value, NOW),
        group=group,
        instances={value: watchdog_aws._instance(raw, "llm")},
        health={value: value},
    )
    told = Decided(NOW, {"signal": {"wake": value}, "action": value, "reason": value, "outcome": value})
    view = View(world, None, value, (told,), decisions_complete=False, spot_usd={}, told=Told())
    yield on_terminal(tables.status(status.judge(view, CHECKED, NOW)))


def page(value: str) -> Shown:
    """A page with its pictures."""
    log = live_history.events(
        live_history.Sources(
            SINCE,
            NOW + timedelta(hours=1),
            (Decided(NOW, {"signal": {"wake": value}, "action": "pinned", "reason": value, "outcome": "done"}),),
            (live_history.Activity(True, "", NOW, NOW, False, value),),
            ((NOW, value),),
            (live_history.BootStage(BOX, value, 1.0, 2.0, value),),
            {BOX: live_history.BoxRecord("spot", value, NOW - timedelta(hours=1), ended=NOW, ended_why=value)},
        ),
        CHECKED,
    )
    with folder() as out:
        yield html_report.render(log, out, title=value).read_text(encoding="utf-8")


def stored_state(text: str) -> Shown:
    """The state parameter."""
    try:
        yield loads(text).dumps()
    except StateError as error:
        yield printable(str(error))


def answer(output: str) -> Shown:
    """What a box says that its engine said."""
    told = ask.said(BOX, output)
    yield printable(told.text.strip())
    yield printable(f"({told.model} on {told.box}, {told.seconds:.1f} s)")


def line(output: str) -> Shown:
    """What a box says of its line."""
    yield printable(str(lane.said(BOX, output)))


# --- what people and files tell ----------------------------------------------------------------------------------


def words(arguments: list[str]) -> Shown:
    """A command line; there is no AWS behind it."""
    environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    done = CliRunner().invoke(main, ["--settings", str(ROOT / "absent"), *arguments], env=environment, color=True)
    if done.exit_code == 1:
        raise AssertionError(done.output)
    yield done.output


def prompt(text: str) -> Shown:
    yield ask_document.encode(text)


def settings(raw: Any) -> Shown:
    with folder() as here:
        path = here / "cdk.json"
        path.write_bytes(raw if isinstance(raw, bytes) else as_json(raw).encode(errors="surrogatepass"))
        validation.load(path)
        yield ""


def receipt_file(raw: Any) -> Shown:
    with folder() as here:
        path = here / "receipt.json"
        path.write_bytes(raw if isinstance(raw, bytes) else as_json(raw).encode(errors="surrogatepass"))
        yield receipts.load(path).name


def market(raw: tuple[str, bytes]) -> Shown:
    suffix, content = raw
    with folder() as here:
        path = here / f"m{suffix}"
        path.write_bytes(content)
        yield from (step.pool for _, step in zip(range(1000), markets.load([path]).steps(), strict=False))


def artifact(raw: tuple[str, bytes]) -> Shown:
    """A Modelfile, a GGUF or an engine that somebody gives to `fleetctl publish`."""
    name, content = raw
    with folder() as here:
        path = here / name
        path.write_bytes(content)
        upload.look(CHECKED, {name: path})
        yield ""


def template(raw: Any) -> Shown:
    """A pull request's template, reviewed against the one that stands."""
    with folder() as here:
        assembly = here / "cdk.out"
        assembly.mkdir()
        properties = {"templateFile": "t.json"}
        artifacts = {"llm-group": {"type": "aws:cloudformation:stack", "properties": properties}}
        (assembly / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
        (assembly / "t.json").write_bytes(as_json(raw).encode(errors="surrogatepass"))
        proposed = deployed_stacks.synthesized(assembly)["llm-group"]
    stack = review.Stack("llm-group", proposed, TEMPLATE)
    yield review.markdown(review.review((stack,)))


def request(environ: dict[str, str]) -> Shown:
    """What reaches the embedded AWS's door."""
    if admission.is_local(environ) and admission.Keys().turns({"REQUEST_METHOD": "POST", **environ}):
        raise AssertionError("came in")
    yield ""


EVENT_FILES = [json.loads(path.read_text()) for path in sorted(EVENTS.glob("*.json"))]
RECORD = wake(StillCloud(), "alarm-lit")
OK_ANSWER = json.dumps({"model": "m", "answer": "hi", "seconds": 0.4})
ENTRY = {"id": "i", "caller": "c", "class": "c", "state": "s", "waited_seconds": 1, "expected_seconds": 1}
OK_LINE = json.dumps({"line": [{**ENTRY, "tokens": 1, "limit": 2}], "expected_wait_seconds": 1.0, "draining": False})
VERBS = (
    "status",
    "ask",
    "pin",
    "history",
    "drill",
    "publish",
    "review",
    "preflight",
    "--why",
    "--yes",
    "--days",
    "--out",
)
hosts = st.sampled_from(["127.0.0.1", "localhost:80", "[::1]", "evil", "127.0.0.1.evil"]) | texts
suffixes = st.sampled_from([".market", ".json", ".csv"])
SURFACES: dict[str, Surface] = {
    "events": Surface(bent(*EVENT_FILES) | values, event),
    "decisions": Surface(bent(RECORD) | values, decision),
    "log lines": Surface(st.tuples(st.sampled_from([f"{BOX}/boot"]) | texts, texts | texts.map(LINE.format)), log_line),
    "tags": Surface(texts, tag),
    "pages": Surface(texts, page, 0.005),
    "states": Surface(texts | bent(json.loads(StillCloud().state or "")).map(as_json), stored_state),
    "answers": Surface(texts | bent(json.loads(OK_ANSWER)).map(as_json) | texts.map(OK_ANSWER[:-1].__add__), answer),
    "lines": Surface(texts | bent(json.loads(OK_LINE)).map(as_json), line),
    "operator's words": Surface(st.lists(st.sampled_from(VERBS) | texts, max_size=4), words, 0.3),
    "prompts": Surface(texts, prompt),
    "settings": Surface(bent({"context": {"fleet": FLEET}}) | files(CDK_JSON.read_text()), settings),
    "receipts": Surface(bent(*HISTORIES) | files(as_json(HISTORIES[0])), receipt_file),
    "markets": Surface(
        st.tuples(suffixes, files(MARKET, '{"metadata": {"gap_seconds": 195}, "data": [1, 0]}')), market
    ),
    "artifacts": Surface(st.tuples(st.sampled_from(["modelfile", "gguf", "engine"]), files(MODELFILE, GGUF)), artifact),
    "templates": Surface(bent(TEMPLATE) | values, template),
    "requests": Surface(
        st.fixed_dictionaries({"HTTP_HOST": hosts}, optional={"HTTP_ORIGIN": hosts, "HTTP_X_EMBEDDED_TOKEN": texts}),
        request,
    ),
}


def attack(surface: Surface, given: Any) -> None:
    """One input: whatever is shown of it is printable, and nothing but the fleet's own errors is raised."""
    try:
        shown = list(surface.shows(given))
    except (UserError, OperatorError) as error:
        shown = [printable(str(error))]
    for text in shown:
        bad = [char for char in text if not (char.isprintable() or char in "\n\t\u200c\u200d")]
        assert not bad, (bad, text[:400])
