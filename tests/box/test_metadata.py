"""Metadata that answers oddly: every read is bounded in time and size, and none ends the program that asked."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import imds
import pytest

Answer = Callable[[socket.socket], None]


@contextmanager
def metadata(*answers: Answer) -> Iterator[imds.Imds]:
    """A server that answers one connection after another in these ways."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                caller, _ = listening.accept()
                with caller:
                    caller.recv(65536)
                    answer(caller)

        threading.Thread(target=serve, daemon=True).start()
        yield imds.Imds(f"127.0.0.1:{listening.getsockname()[1]}", timeout_seconds=0.5)


def whole(body: bytes, headers: bytes = b"") -> Answer:
    """One answer."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), headers)
    return lambda caller: caller.sendall(head + body)


def trickle(caller: socket.socket) -> None:
    """A byte now and then, each well inside a timeout of its own."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(60):
        try:
            caller.sendall(b"x")
        except OSError:
            return
        time.sleep(0.05)


def cut(caller: socket.socket) -> None:
    """The first bytes of an instance's id, then the connection's end."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\ni-0abc")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((whole(b"two\nlines"),), "a token that is none"),
        ((whole(b""),), "a token that is none"),
        ((trickle,), "timed out"),
        ((whole(b"token"), trickle), "timed out"),
        ((whole(b"token"), whole(b"x" * (imds.MOST_BYTES + 1))), "more than 65536 bytes"),
        ((whole(b"token"), lambda caller: caller.sendall(b"\r\n\r\n")), "metadata: "),
        ((whole(b"token"), cut), "cut after 6 bytes"),
    ],
    ids=["newline", "empty", "token trickles", "answer trickles", "endless", "no HTTP", "cut"],
)
def test_odd_metadata_is_an_error_of_metadata_soon(answers: tuple[Answer, ...], why: str) -> None:
    began = time.monotonic()
    with metadata(*answers) as client, pytest.raises(imds.ImdsError, match=why):
        client.get("meta-data/spot/instance-action")
    assert time.monotonic() - began < 2


def test_metadatas_own_clock_is_read_with_every_answer() -> None:
    dated = whole(b"text", b"Date: Tue, 28 Jul 2026 09:00:00 GMT\r\n")
    with metadata(whole(b"token"), dated, whole(b"text", b"Date: yesterday\r\n")) as client:
        assert client.get("path") == "text"
        assert client.date is not None
        assert client.date.isoformat() == "2026-07-28T09:00:00+00:00"
        client.get("path")
        assert client.date is None


def test_identity_survives_a_document_nested_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"meta-data/instance-id": "i-1", "dynamic/instance-identity/document": "[" * 100_000}
    monkeypatch.setattr(imds.Imds, "get", lambda _, path: answers[path])
    assert imds.identity(imds.Imds()) == imds.Identity("i-1", None)
