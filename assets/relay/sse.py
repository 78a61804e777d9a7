"""Server-sent events: bytes to events and back, after the HTML standard's grammar (section 9.2.6).

A line ends with CR, LF or CRLF, wherever reads split it; U+2028 ends none. Text is decoded only once an event is whole.

SseError    a line or an event longer than `LIMIT_BYTES`
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

LIMIT_BYTES = 4 << 20  # of one event: a whole answer in one delta stays far below
LINE_END = re.compile(rb"\r\n|\r|\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DONE = b"[DONE]"
CONTENT_TYPE = "text/event-stream; charset=utf-8"
ENCODER = json.JSONEncoder(separators=(",", ":"))  # kept: json.dumps makes one at each call


class SseError(Exception):
    """Not a stream of events that could be held in memory."""


@dataclass(frozen=True)
class Event:
    """One event; `kind` is "message" unless the stream named another, and "comment" for a comment line."""

    data: bytes
    kind: str = "message"


COMMENT = "comment"


class Parser:
    """Bytes as they arrive, events as soon as they are whole. What is unfinished at the end is no event."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._first = True
        self._data: list[bytes] = []
        self._size = 0
        self._kind = ""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that `chunk` completes."""
        for line in self._lines(chunk):
            if not line:
                if self._data:
                    yield Event(b"\n".join(self._data), self._kind or "message")
                self._data, self._kind, self._size = [], "", 0
            elif line.startswith(b":"):
                yield Event(line[1:].strip(), COMMENT)
            else:
                self._field(line)

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        if not chunk:
            return
        end = chunk[-1:]
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF that a read has split
        self._after_cr = end == b"\r"
        *lines, self._rest = LINE_END.split(self._rest + chunk)
        if len(self._rest) > LIMIT_BYTES:
            raise SseError(f"a line of more than {LIMIT_BYTES} bytes")
        for line in lines:
            if self._first:
                line, self._first = line[len(BYTE_ORDER_MARK) :] if line.startswith(BYTE_ORDER_MARK) else line, False
            yield line

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > LIMIT_BYTES:
                raise SseError(f"an event of more than {LIMIT_BYTES} bytes")
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")


def dumps(value: Any) -> bytes:
    """One line of JSON."""
    return ENCODER.encode(value).encode()


def event(data: Any, kind: str = "") -> bytes:
    """One event with `data` as one line of JSON (bytes go as they are)."""
    payload = data if isinstance(data, bytes) else dumps(data)
    head = b"event: " + kind.encode() + b"\n" if kind else b""
    return head + b"data: " + payload + b"\n\n"


def comment(text: str) -> bytes:
    """A comment: keeps a connection alive and reaches no reader of events."""
    return b": " + text.encode() + b"\n\n"


def parsed(data: bytes) -> Optional[dict[str, Any]]:
    """The JSON object of an event; None where it is none: such an event is dropped, not passed on."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
