"""Server-sent events, after the cases of the Web Platform Tests of EventSource, and however reads split them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay import chat, sse

# Named after the files of the suite: eventsource/format-*.any.js
CASES = {
    "field-data": (b"data:\n\ndata\ndata\n\ndata:test\n\n", [b"", b"\n", b"test"]),
    "newlines": (b"data:test\r\ndata\ndata:test\r\n\r", [b"test\n\ntest"]),
    "leading-space": (b"data:\ttest\r\rdata: \ndata:test\n\n", [b"\ttest", b"\ntest"]),
    "comments": (b"data:1\r:\0\n:\r\ndata:2\n:x\rdata:3\n:data:fail\r:x\ndata:4\n\n", [b"1\n2\n3\n4"]),
    "field-unknown": (
        b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n",
        [b"test\n\ntest"],
    ),
    "field-retry-bogus": (b"retry:3000\nretry:1000x\ndata:x\n\n", [b"x"]),
    "bom": (b"\xef\xbb\xbfdata:1\n\n\xef\xbb\xbfdata:2\n\ndata:3\n\n", [b"1", b"3"]),
    "null-character": (b"data:\0\n\n", [b"\0"]),
    "utf-8": ("data:ok…\n\n".encode(), ["ok…".encode()]),
    "line-separator": ("data:a\u2028b\n\n".encode(), ["a\u2028b".encode()]),
    "bom-2": (b"\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\ndata:3\n\n", [b"2", b"3"]),
    "field-event": (b"event:test\ndata:x\n\ndata:x\n\n", [b"x", b"x"]),
    "data-before-final-empty-line": (b"retry:1000\ndata:test1\n\nid:test\ndata:test2", [b"test1"]),
    # not of the suite
    "crlf-then-lf": (b"data:1\r\n\ndata:2\r\n\n", [b"1", b"2"]),
    "unfinished": (b"data:1\n\ndata:2\n", [b"1"]),
}


def _data(events: list[sse.Event]) -> list[bytes]:
    return [event.data for event in events if event.kind != sse.COMMENT]


@pytest.mark.parametrize("name", CASES)
def test_event_source_suite(name: str) -> None:
    stream, expected = CASES[name]
    assert _data(list(sse.Parser().feed(stream))) == expected


@settings(deadline=None)
@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 120)))
def test_reads_may_split_a_stream_anywhere(name: str, cuts: list[int]) -> None:
    stream, expected = CASES[name]
    parser, events, edges = sse.Parser(), [], [0, *sorted(cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        events += parser.feed(stream[start:end])
    assert _data(events) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"data:1", b":", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf"]), max_size=20).map(b"".join))
def test_byte_after_byte_says_what_the_whole_says(stream: bytes) -> None:
    parser = sse.Parser()
    assert [event for byte in stream for event in parser.feed(bytes([byte]))] == list(sse.Parser().feed(stream))


@pytest.mark.parametrize(("field", "kind"), [(b"event:test", "test"), (b"event: ", "message"), (b"event", "message")])
def test_event_has_the_name_that_its_field_gives_and_the_next_one_has_it_no_more(field: bytes, kind: str) -> None:
    events = sse.Parser().feed(field + b"\ndata:x\n\ndata:x\n\n")
    assert [event.kind for event in events] == [kind, "message"]


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_read_without_an_error(stream: bytes) -> None:
    for event in sse.Parser().feed(stream):
        parsed = sse.parsed(event.data)
        assert parsed is None or (chat.error(parsed) or chat.content(parsed)) is not None


def test_line_that_never_ends_is_refused() -> None:
    parser = sse.Parser()
    assert not list(parser.feed(b"x" * sse.LIMIT_BYTES))
    with pytest.raises(sse.SseError, match="a line of more than"):
        list(parser.feed(b"x"))


def test_event_of_empty_lines_that_never_ends_is_refused() -> None:
    with pytest.raises(sse.SseError, match="an event of more than"):
        list(sse.Parser().feed(b"data\n" * (sse.LIMIT_BYTES + 1)))


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '"x"', "[" * 100_000], ids=["cut", "a list", "a number", "a text", "nested deep"]
)
def test_what_is_no_object_is_no_chunk(text: str) -> None:
    assert sse.parsed(text.encode()) is None


NAMES = st.sampled_from(["choices", "delta", "content", "finish_reason", "error", "usage", "message"])
ANYTHING = st.recursive(
    st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(ANYTHING)
def test_chunks_of_any_shape_are_judged(found: object) -> None:
    chunk = {"choices": found, "error": found, "usage": found}
    for judge in (chat.delivers, chat.finished, chat.content, chat.usage, chat.error):
        judge(chunk)
