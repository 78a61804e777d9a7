"""The demo from its first act to its last word: the real CDK CLI on the demo's own embedded AWS."""

import pytest

from fleet.demo import __main__ as demo
from fleet.demo import callers
from tests.synth import CDK_JSON, NOT_VALIDATED, ROOT

pytestmark = pytest.mark.slow


def test_the_demo_plays_to_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = ROOT / "out" / "demo-tested"  # paths are told from the checkout
    monkeypatch.setattr(demo, "OUT", out)
    for name, value in NOT_VALIDATED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(callers, "SCALE", 60)  # 12 s of callers
    ended = demo.main(CDK_JSON)
    said = " ".join(capsys.readouterr().out.split())
    assert ended == 0, said
    for words in (
        "Without a watchdog: 4 h 37 min",
        "The lever stays 100",
        "degraded minutes in",
        "61 requests",
        "all of it on purpose",
    ):
        assert words in said
    assert (out / "report.html").exists()
