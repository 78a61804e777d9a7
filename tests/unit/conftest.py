import pytest

from fleet.config import validation
from fleet.config.settings import Settings
from tests.synth import CDK_JSON


@pytest.fixture
def settings() -> Settings:
    """The tests' own."""
    return validation.load(CDK_JSON)
