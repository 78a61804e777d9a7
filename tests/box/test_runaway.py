"""How old the running generation is, from nothing but the kernel's counters."""

import runaway
from streams import Connection


def asking(peer: str, received: int = 300, sent: int = 0) -> Connection:
    """A request that has no byte of its answer yet."""
    return Connection(peer, sent, received, 60.0, 1.0)


def answered(peer: str, sent: int, received: int = 300) -> Connection:
    """Bytes of an answer, just now."""
    return Connection(peer, sent, received, 0.1, 60.0)


def ages(looks: list[list[Connection]], *, works: bool = True) -> list[tuple[float, int] | None]:
    """Age and callers behind it at each look, one every five seconds."""
    memory, found = runaway.Memory(), []
    for number, live in enumerate(looks):
        memory, running = runaway.look(memory, 5.0 * number, live, works=works)
        found.append((running.seconds, running.waiting) if running else None)
    return found


def test_stream_is_as_old_as_its_first_bytes_and_who_waits_is_counted() -> None:
    behind = [asking("b"), asking("c")]
    looks = [[asking("a"), *behind], *([answered("a", 100 * number), *behind] for number in range(1, 5)), behind]
    assert ages(looks) == [(0, 2), (0, 1), (5, 2), (10, 2), (15, 2), (5, 1)]  # two looks late at most


def test_answer_in_one_piece_is_as_old_as_its_place_at_the_head_whatever_short_answers_others_get() -> None:
    looks = [
        [asking("a"), asking("b")],
        [asking("a"), asking("b"), answered("errors", 200)],
        [asking("a"), asking("b"), answered("errors", 200)],
        [asking("a"), asking("b")],
        [answered("a", 4000), asking("b")],  # it ends, and the next one's time begins
        [asking("b")],
        [asking("b")],
    ]
    assert [found and found[0] for found in ages(looks)] == [0, 5, 10, 15, 0, 5, 10]


def test_one_conversation_after_another_on_one_connection_is_no_long_generation() -> None:
    turns, sent, received = [], 0, 0
    for _ in range(100):
        received += 300
        turns.append([asking("a", received, sent)])
        sent += 900
        turns.append([answered("a", sent, received)])
    assert max(found[0] for found in ages(turns) if found) <= 10


def test_request_that_waits_while_nothing_works_is_no_generation() -> None:
    assert [found and found[0] for found in ages([[asking("half a request")]] * 10, works=False)] == [0] * 10
    assert ages([[], [Connection("probe", 0, 0, 9, 9)]]) == [None, None]
