"""Publishes the demo's tiny model."""

from pathlib import Path

from fleet.demo import artifacts
from fleet.embedded.deployed import Deployed


def publish(fleet: Deployed, folder: Path) -> None:
    """Put the three source files where the settings say."""
    model = fleet.settings.model
    bucket = fleet.output("store", "BucketName")
    for name, path in artifacts.write(folder).items():
        fleet.aws.client("s3").put_object(Bucket=bucket, Key=getattr(model, name).key, Body=path.read_bytes())
