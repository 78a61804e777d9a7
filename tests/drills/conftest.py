import pytest

from fleet.config.settings import Artifact, Model, Settings


@pytest.fixture
def settings() -> Settings:
    """One box, every threshold at its default."""
    artifact = Artifact(key="drill")
    model = Model(name="drill", engine_version="0.0.0", engine=artifact, gguf=artifact, modelfile=artifact)
    return Settings(fleet_name="drill", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)
