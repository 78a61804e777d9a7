"""The pictures in the docs are what the drills draw now (`make pictures` draws them again)."""

from pathlib import Path

import pytest

from fleet.sim.experiments import pictures
from fleet.sim.experiments.pictures import PICTURES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_picture_in_the_docs_is_current(draw: "pictures.Draw", tmp_path: Path) -> None:
    drawn = draw(tmp_path)
    kept = pictures.FOLDER / drawn.name
    assert drawn.read_text() == kept.read_text(), "run: make pictures"
    assert kept.stat().st_size < 60_000
