"""A few of the hostile inputs of `make fuzz`, the same at every run."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.hostile.surfaces import SURFACES, attack

pytestmark = pytest.mark.slow  # loads every surface, and draws inputs for each

EXAMPLES = 40


# A page takes a second: tests/ops/test_untrusted.py draws one.
@pytest.mark.parametrize("name", [name for name, surface in SURFACES.items() if surface.share * EXAMPLES >= 1])
def test_no_hostile_input_raises_or_is_shown_raw(name: str) -> None:
    surface = SURFACES[name]

    @settings(
        max_examples=int(EXAMPLES * surface.share),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(surface.inputs)
    def holds(example: object) -> None:
        attack(surface, example)

    holds()
