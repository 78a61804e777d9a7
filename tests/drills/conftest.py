from pathlib import Path

import pytest

from fleet.config.settings import Artifact, Model, Settings


@pytest.fixture
def settings() -> Settings:
    """One box, every threshold at its default."""
    artifact = Artifact(key="drill")
    model = Model(name="drill", engine_version="0.0.0", engine=artifact, gguf=artifact, modelfile=artifact)
    return Settings(fleet_name="drill", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)


@pytest.fixture
def market(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The file of the market that the module describes."""
    path = tmp_path / "drought.market"
    path.write_text(request.module.MARKET)
    return path
