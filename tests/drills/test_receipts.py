"""A life comes out of its own receipt: its windows to the second, its decisions with their reasons."""

from pathlib import Path

import pytest

from tests.drills import lives


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_a_life_that_is_exported_and_replayed_under_its_own_policy_is_the_same_life(first: int, tmp_path: Path) -> None:
    assert list(lives.differing(range(first, first + 10), tmp_path)) == []
