"""`make fuzz`: 10^5 hostile inputs through everything that an outsider writes; ends with 1 where one of them did harm.

    python -m tests.hostile [--examples 100000] [--surface NAME ...]

An input that takes longer than SECONDS is a hang. What it finds is shrunk by hypothesis and told.
"""

import argparse
import signal
import sys
import time
from typing import Any

from hypothesis import HealthCheck, given, settings

from fleet.core.terminal import say
from tests.hostile.surfaces import SURFACES, attack

EXAMPLES = 100_000
SECONDS = 20


def hang(*_: Any) -> None:
    raise AssertionError(f"longer than {SECONDS} s")


def fuzz(name: str, examples: int) -> bool:
    """Whether a surface holds; one line says so, or the shrunk input and what it did."""
    surface, count, slowest = SURFACES[name], 0, 0.0

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(surface.inputs)
    def holds(example: Any) -> None:
        nonlocal count, slowest
        began, count = time.monotonic(), count + 1
        signal.alarm(SECONDS)
        try:
            attack(surface, example)
        finally:
            signal.alarm(0)
            slowest = max(slowest, time.monotonic() - began)

    began = time.monotonic()
    try:
        holds()
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        say(f"{name}: {type(error).__name__}: {str(error)[:600]}\n{notes[:2000]}")
        return False
    took = time.monotonic() - began
    say(f"{name}: {count} inputs in {took:.0f} s, the slowest {slowest:.2f} s")
    return True


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--surface", action="append", choices=SURFACES)
    chosen = parser.parse_args()
    names = chosen.surface or list(SURFACES)
    signal.signal(signal.SIGALRM, hang)
    whole = sum(SURFACES[name].share for name in names)
    held = [fuzz(name, max(10, int(chosen.examples * SURFACES[name].share / whole))) for name in names]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
