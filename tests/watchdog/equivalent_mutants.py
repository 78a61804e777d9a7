"""Mutants that no test can tell from the original, each with the reason why."""

EQUIVALENT: dict[str, str] = {}
