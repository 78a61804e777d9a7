"""The lane's code lies where the box's bundle has it: below assets/, beside the box's own programs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[2] / "assets"
for folder in (ASSETS / "bootstrap", ASSETS):
    sys.path.insert(0, str(folder))

from tests.lane import llama  # noqa: E402


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real llama.cpp server with a tiny model of 2048 tokens of context; its URL."""
    with llama.server(tmp_path_factory.mktemp("llama")) as url:
        yield url
