"""`fleetctl publish`: arguments in, progress out; `fleet.modelstore.upload` does the work."""

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fleet.cli.context import Operator, pass_operator
from fleet.core import names, untrusted
from fleet.core.errors import UserError
from fleet.modelstore import release as built
from fleet.modelstore import upload

_PATH = click.Path(path_type=Path)


@click.command("publish")
@click.option("--engine", type=_PATH, help="The engine's release tarball (.tgz) of model.engine_version.")
@click.option("--gguf", type=_PATH, help="The model's weights.")
@click.option("--modelfile", type=_PATH, help="The Modelfile that imports the weights.")
@click.option("--built", "release", is_flag=True, help="Let later boxes restore what the first box built.")
@pass_operator
def publish_command(
    operator: Operator, engine: Path | None, gguf: Path | None, modelfile: Path | None, release: bool
) -> None:
    """Put the engine and the model into the store, before the first deploy of the group.

    Each file is checked against the settings (kind, size, checksum) before anything is sent; what is in the store
    already is not sent again, and a broken upload goes on where it stopped. Give one, two or all three files.

    Once the first box serves them: --built checks and shows what it built of them, and lets every later box restore
    exactly that. Until then every boot is cold.

    \b
    Example:  fleetctl publish --engine ollama.tgz --gguf model.gguf --modelfile Modelfile
              fleetctl publish --built
    """
    given = {"engine": engine, "gguf": gguf, "modelfile": modelfile}
    files = {name: path for name, path in given.items() if path is not None}
    if release == bool(files):
        said = "a file beside --built" if release else "no file given"
        raise UserError(f"publish: {said}; allowed: one or more of --engine, --gguf, --modelfile; or --built alone")
    if release:
        _release(operator)
    else:
        _publish(operator, files)


def _publish(operator: Operator, files: dict[str, Path]) -> None:
    upload.look(operator.settings, files)
    bucket = upload.store_bucket(operator.aws, operator.settings.fleet_name)  # before minutes of reading
    columns = (TextColumn("{task.description:18}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks = {
            f"{verb} {name}": bars.add_task(f"{verb} {name}", total=path.stat().st_size)
            for verb in ("check", "upload")
            for name, path in files.items()
        }

        def progress(what: str, count: int) -> None:
            bars.advance(tasks[what], count)

        checked = upload.check(operator.settings, files, progress)
        sent = [upload.upload(operator.aws, bucket, file, progress) for file in checked]
    for file, new in zip(checked, sent, strict=True):
        click.echo(f"{'published' if new else 'there already'}: s3://{bucket}/{file.key} (sha256 {file.sha256})")
    absent = upload.missing(operator.aws, bucket, operator.settings)
    click.echo(f"still missing: {', '.join(absent)}" if absent else "the store is complete; next: make deploy")


def _release(operator: Operator) -> None:
    bucket = upload.store_bucket(operator.aws, operator.settings.fleet_name)
    found = built.find(operator.aws, bucket, operator.settings)
    click.echo(f"model: {found.model}")
    for kind, text in found.texts.items():
        click.echo(f"{kind}:\n{untrusted.printable(text)}")
    built.release(operator.aws, bucket, found)
    click.echo(f"released: later boxes restore s3://{bucket}/{names.cache_manifest(found.key)} (sha256 {found.digest})")
