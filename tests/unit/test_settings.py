from pathlib import Path

import pytest

from fleet import validation
from fleet.settings import Artifact, Model, Settings


def test_settings_survive_the_trip_to_the_lambda() -> None:
    artifact = Artifact(key="engine.tgz", sha256="0" * 64)
    model = Model(name="m", engine_version="0.1.2", engine=artifact, gguf=artifact, modelfile=artifact)
    settings = Settings(fleet_name="llm", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize("levels", [300, 900, 100_000])
def test_a_value_nested_without_end_is_one_message(tmp_path: Path, levels: int) -> None:
    name = "[" * levels + "]" * levels
    path = tmp_path / "cdk.json"
    path.write_text(f'{{"context": {{"fleet": {{"fleet_name": {name}}}}}}}')
    with pytest.raises(validation.SettingsError, match=r"nested less deeply|2 to 19 of a-z"):
        validation.load(path)
