"""What an engine that was taken over may say: an error of its own, never the end of whoever asked."""

from typing import Any

import config
import engine
import leave
import line
import paths
import pytest

from tests.box import servers


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a": ' * 50_000, b"{" + b" " * (2 << 20) + b"}", b"\xff", b"[]", b"7", b'"x"'],
    ids=["deep lists", "deep objects", "two MiB", "no text", "a list", "a number", "a string"],
)
def test_answer_that_is_none_is_an_error_of_the_engines(body: bytes) -> None:
    with servers.local(lambda handler: servers.reply(handler, body)) as port, pytest.raises(engine.EngineError):
        engine.answer(engine.connect(5, port), "GET", "/api/ps")


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"streams": 0}', b'{"line": [7], "streams": 0}', b"x"], ids=str)
def test_lane_that_tells_something_else_has_not_answered(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.local(lambda handler: servers.reply(handler, body)) as port:
        monkeypatch.setattr(line.names, "LANE_ADMIN_PORT", port)
        assert line.look() is None


@pytest.mark.parametrize(
    "models",
    [None, 7, "x", {"name": "x"}, [7], [None], [{"name": ["x"]}], [{"name": {}}], [{}], [[]]],
    ids=str,
)
def test_list_of_models_of_another_shape_is_a_model_that_is_absent(models: Any, box: config.Box) -> None:
    assert engine.loaded(box, "digest", {"models": models}).absent


@pytest.mark.parametrize("odd", [None, 7, [], {}, "x"], ids=str)
def test_model_whose_fields_are_of_another_kind_is_not_the_one_that_is_wanted(odd: Any, box: config.Box) -> None:
    listed = {"name": engine.full_name(box.model), "context_length": odd, "digest": odd, "size": odd}
    assert engine.loaded(box, "digest", {"models": [listed]}).said


def test_text_that_no_file_can_hold_ends_nobody_who_logs_it_or_leaves_for_it(
    box: config.Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON can name half a surrogate: the agent, which logs what is loaded, died of it at every look."""
    monkeypatch.setattr(leave, "systemctl", lambda *_: None)
    listed = {"name": engine.full_name(box.model), "context_length": "\ud800"}
    leave.request(engine.loaded(box, "digest", {"models": [listed]}).said)
    assert r"leaving: context length is \ud800" in paths.LOG.read_text()
    assert paths.WHY.read_text().startswith(r"context length is \ud800")
