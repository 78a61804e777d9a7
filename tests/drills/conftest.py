from pathlib import Path

import pytest

from fleet.config.settings import Settings
from fleet.sim.drills.drill import default_settings


@pytest.fixture
def settings() -> Settings:
    """One box, every threshold at its default."""
    return default_settings()


@pytest.fixture
def market(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file of the market that the module describes."""
    path = tmp_path / "drought.market"
    path.write_text(request.module.MARKET)
    return path
