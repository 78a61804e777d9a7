"""A life comes out of its own receipt: its windows to the second, its decisions with their reasons."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.eventlog.receipts import Happening
from fleet.sim.cloud.recording import Recording
from tests.drills import lives

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_a_life_that_is_exported_and_replayed_under_its_own_policy_is_the_same_life(first: int, tmp_path: Path) -> None:
    assert list(lives.differing(range(first, first + 10), tmp_path)) == []


def test_an_attempt_of_the_other_kind_at_the_same_moment_is_passed_over_and_not_asked_for_for_ever() -> None:
    failed = Happening(at=datetime(2026, 7, 1, tzinfo=UTC), event="launch.failed", purchase="on-demand", why="dry")
    recording, now = Recording([failed], []), datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert recording.attempt_after(now, now + 11, now + 600) == now
    assert recording.attempt(now, "spot") is None
    assert recording.attempt_after(now, now + 11, now + 600) == now + 11
