"""Fills the model store: checks engine tarball, GGUF and Modelfile against the settings, then uploads what is new.

Run by `fleetctl publish` after the store exists and before the group does. A broken upload is resumed: parts that
arrived are compared by their digests and kept. The part size is pinned, because an ETag depends on it, and the cache on
the boxes is keyed by the ETags: the same file has the same ETag wherever and whenever it is published.
"""

import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.account.access import Aws, stack_output
from fleet.config.settings import Artifact, Settings
from fleet.core import names
from fleet.core.errors import UserError
from fleet.modelstore import gguf, modelfile

PART_BYTES = 32 * 1024 * 1024  # pinned for ever; 10,000 parts make 320 GB
THREADS = 8  # times a part is the memory it takes: 256 MB
ENGINE_PROGRAM = "bin/ollama"  # what the box starts
GIB = 1024**3

Progress = Callable[[str, int], None]  # what is being done to which file, and bytes since the last call


class PublishError(UserError):
    """Files that the store must not take; every problem in one message."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n  ".join(["publish: nothing was uploaded", *problems]))


@dataclass(frozen=True)
class Checked:
    """One local file that is what the settings ask for."""

    name: str  # engine, gguf, modelfile
    path: Path
    key: str
    size: int
    sha256: str


def look(settings: Settings, files: Mapping[str, Path]) -> None:
    """Kind and size of every file that was given, in a moment; raises PublishError with all that is wrong."""
    problems: list[str] = []
    for name, path in files.items():
        if not path.is_file():
            problems.append(f"--{name} {path}: no such file; a readable file is needed")
        elif not os.access(path, os.R_OK):
            problems.append(f"--{name} {path}: not readable; a readable file is needed")
        else:
            problems += [f"--{name} {path}: {problem}" for problem in LOOKS[name](path, settings)]
    if problems:
        raise PublishError(problems)


def check(settings: Settings, files: Mapping[str, Path], progress: Progress) -> list[Checked]:
    """Checksums of files that were looked at, each read once; raises PublishError with all that differ."""
    problems: list[str] = []
    checked = []
    for name, path in files.items():
        artifact: Artifact = getattr(settings.model, name)
        sha256 = _sha256(path, lambda count, name=name: progress(f"check {name}", count))  # type: ignore[misc]
        if artifact.sha256 and sha256 != artifact.sha256:
            problems.append(f"--{name} {path}: sha256 is {sha256}, model.{name}.sha256 asks for {artifact.sha256}")
        checked.append(Checked(name, path, artifact.key, path.stat().st_size, sha256))
    if problems:
        raise PublishError(problems)
    return checked


def _engine_problems(path: Path, settings: Settings) -> Iterator[str]:
    if not tarfile.is_tarfile(path):
        yield "not a tarball; the engine is a .tgz of its release"
        return
    try:
        with tarfile.open(path) as tar:
            if not any(member.name.removeprefix("./") == ENGINE_PROGRAM for member in tar):
                yield f"no {ENGINE_PROGRAM} in it: not a release of the engine"
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        yield f"a broken tarball ({error})"


def _gguf_problems(path: Path, settings: Settings) -> Iterator[str]:
    yield from gguf.problems(path, settings.model)
    size = path.stat().st_size / GIB
    if size > settings.model.gpu_memory_gib and settings.model.quantize == "none":
        yield (
            f"{size:.1f} GiB do not fit into model.gpu_memory_gib ({settings.model.gpu_memory_gib}), context excluded; "
            "a larger file needs model.quantize"
        )


def _modelfile_problems(path: Path, settings: Settings) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield "not a text file"
        return
    yield from modelfile.problems(text, settings.model)


LOOKS: dict[str, Callable[[Path, Settings], Iterator[str]]] = {
    "engine": _engine_problems,
    "gguf": _gguf_problems,
    "modelfile": _modelfile_problems,
}


def _sha256(path: Path, progress: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(PART_BYTES):
            digest.update(chunk)
            progress(len(chunk))
    return digest.hexdigest()


def store_bucket(aws: Aws, fleet: str) -> str:
    """The store's bucket, as its stack says; raises MissingError while there is no store."""
    return stack_output(aws, fleet, "store", names.OUTPUT_BUCKET)


def missing(aws: Aws, bucket: str, settings: Settings) -> list[str]:
    """Keys that the first box will ask for and the store lacks."""
    keys = [artifact.key for artifact in (settings.model.engine, settings.model.gguf, settings.model.modelfile)]
    return [key for key in keys if aws.find("s3", "HeadObject", Bucket=bucket, Key=key) is None]


def upload(aws: Aws, bucket: str, file: Checked, progress: Progress) -> bool:
    """Bring one checked file into the store; False where that very file is there already."""
    if _published(aws, bucket, file):
        progress(f"upload {file.name}", file.size)
        return False
    target = {"Bucket": bucket, "Key": file.key}
    upload_id, arrived = _begun(aws, target, file)
    if upload_id is None:
        begun = aws.call("s3", "CreateMultipartUpload", **target, Metadata={names.METADATA_SHA256: file.sha256})
        upload_id = begun["UploadId"]

    def part(number: int) -> dict[str, Any]:
        body = _part(file, number)
        etag = arrived.get(number)
        if etag is None:
            answer = aws.call("s3", "UploadPart", **target, UploadId=upload_id, PartNumber=number, Body=body)
            etag = answer["ETag"]
        progress(f"upload {file.name}", len(body))
        return {"PartNumber": number, "ETag": etag}

    count = max(1, -(-file.size // PART_BYTES))
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(part, range(1, count + 1)))
    aws.call("s3", "CompleteMultipartUpload", **target, UploadId=upload_id, MultipartUpload={"Parts": parts})
    # An upload begun for another file that has the same first parts carries that file's checksum: do it over.
    return _published(aws, bucket, file) or upload(aws, bucket, file, progress)


def _published(aws: Aws, bucket: str, file: Checked) -> bool:
    found = aws.find("s3", "HeadObject", Bucket=bucket, Key=file.key)
    return found is not None and found.get("Metadata", {}).get(names.METADATA_SHA256) == file.sha256


def _begun(aws: Aws, target: dict[str, str], file: Checked) -> tuple[str | None, dict[int, str]]:
    """The unfinished upload of this very file and the ETags of its parts, by number; others of its key are ended."""
    uploads = aws.items("s3", "ListMultipartUploads", "Uploads", Bucket=target["Bucket"], Prefix=target["Key"])
    for upload_id in [found["UploadId"] for found in uploads if found["Key"] == target["Key"]]:
        parts = aws.items("s3", "ListParts", "Parts", **target, UploadId=upload_id)
        arrived = {found["PartNumber"]: found["ETag"] for found in parts}
        if all(etag == _etag(_part(file, number)) for number, etag in arrived.items()):
            return upload_id, arrived
        aws.call("s3", "AbortMultipartUpload", **target, UploadId=upload_id)
    return None, {}


def _part(file: Checked, number: int) -> bytes:
    with file.path.open("rb") as opened:
        opened.seek((number - 1) * PART_BYTES)
        return opened.read(PART_BYTES)


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
