from fleet.settings import Artifact, Model, Settings


def test_settings_survive_the_trip_to_the_lambda() -> None:
    artifact = Artifact(key="engine.tgz", sha256="0" * 64)
    model = Model(name="m", engine_version="0.1.2", engine=artifact, gguf=artifact, modelfile=artifact)
    settings = Settings(fleet_name="llm", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)
    assert Settings.from_json(settings.to_json()) == settings
