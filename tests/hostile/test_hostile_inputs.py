"""A few of the hostile inputs, the same at every run; `make fuzz` draws FUZZ of them, others each time, for an hour."""

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.hostile.surfaces import SURFACES, attack

pytestmark = pytest.mark.slow  # loads every surface, and draws inputs for each

FUZZ = int(os.environ.get("FUZZ", "0"))
WHOLE = sum(surface.share for surface in SURFACES.values())
EXAMPLES = FUZZ / WHOLE if FUZZ else 40
SECONDS = 20


def hang(*_: Any) -> None:
    raise AssertionError(f"longer than {SECONDS} s")


# A page takes a second: tests/ops/test_untrusted.py draws one.
@pytest.mark.parametrize("name", [name for name, surface in SURFACES.items() if surface.share * EXAMPLES >= 1])
def test_no_hostile_input_raises_is_shown_raw_or_hangs(name: str) -> None:
    surface = SURFACES[name]
    signal.signal(signal.SIGALRM, hang)

    @settings(
        max_examples=int(EXAMPLES * surface.share),
        deadline=None,
        derandomize=not FUZZ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(surface.inputs)
    def holds(example: object) -> None:
        signal.alarm(SECONDS)
        try:
            attack(surface, example)
        finally:
            signal.alarm(0)

    holds()
