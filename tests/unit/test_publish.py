"""Publishing: what is refused, what is sent, what is resumed, on moto's S3."""

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from moto import mock_aws

from fleet.account.access import Aws
from fleet.account.aws_errors import UnreachableError
from fleet.cli.fleetctl import main
from fleet.config.settings import Settings
from fleet.modelstore import upload
from tests.synth import CDK_JSON

pytestmark = pytest.mark.slow  # loads moto

PART = 5 * 1024 * 1024  # S3's smallest
BUCKET = "store"
HEADER = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q20sIQ5s", 20, b"general.architecture", 8, 5, b"llama")


def quiet(_what: str, _count: int) -> None: ...


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A right file of each kind; the weights are two parts and a bit."""
    engine, gguf, modelfile = tmp_path / "ollama.tgz", tmp_path / "model.gguf", tmp_path / "Modelfile"
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("bin/ollama"))
    engine.write_bytes(gzip.compress(inner.getvalue()))
    gguf.write_bytes(HEADER + b"\0" * PART + b"\1" * PART + b"the last bytes")
    modelfile.write_text("# house model\nFROM ./model.gguf\n")
    return {"engine": engine, "gguf": gguf, "modelfile": modelfile}


class Calls(Aws):
    """The door to AWS, counting; `fails_at` breaks the connection at that part."""

    def __init__(self) -> None:
        super().__init__("us-east-2")
        self.made: list[str] = []
        self.fails_at = 0

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "UploadPart" and arguments["PartNumber"] == self.fails_at:
            raise UnreachableError("s3 UploadPart: no answer", "check the network")
        self.made.append(operation)
        return super().call(service, operation, **arguments)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setattr(upload, "PART_BYTES", PART)
    with mock_aws():
        calls = Calls()
        location = {"LocationConstraint": "us-east-2"}
        calls.call("s3", "CreateBucket", Bucket=BUCKET, CreateBucketConfiguration=location)
        calls.made.clear()
        yield calls


def checked(settings: Settings, files: dict[str, Path], name: str) -> upload.Checked:
    return upload.check(settings, {name: files[name]}, quiet)[0]


def test_published_file_carries_its_checksum_and_an_etag_that_the_part_size_fixes(
    aws: Calls, settings: Settings, files: dict[str, Path]
) -> None:
    gguf = checked(settings, files, "gguf")
    assert upload.upload(aws, BUCKET, gguf, quiet)
    head = aws.call("s3", "HeadObject", Bucket=BUCKET, Key=settings.model.gguf.key)
    body = files["gguf"].read_bytes()
    digests = [hashlib.md5(body[at : at + PART], usedforsecurity=False).digest() for at in range(0, len(body), PART)]
    assert head["ETag"] == f'"{hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()}-3"'
    assert head["Metadata"]["sha256"] == hashlib.sha256(body).hexdigest()
    assert head["ContentLength"] == len(body)


def test_what_is_there_already_is_not_sent_again(aws: Calls, settings: Settings, files: dict[str, Path]) -> None:
    modelfile = checked(settings, files, "modelfile")
    assert upload.upload(aws, BUCKET, modelfile, quiet)
    aws.made.clear()
    assert not upload.upload(aws, BUCKET, modelfile, quiet)
    assert aws.made == ["HeadObject"]


def test_broken_upload_goes_on_with_the_parts_that_are_missing(
    aws: Calls, settings: Settings, files: dict[str, Path]
) -> None:
    gguf = checked(settings, files, "gguf")
    aws.fails_at = 3
    with pytest.raises(UnreachableError):
        upload.upload(aws, BUCKET, gguf, quiet)
    assert upload.missing(aws, BUCKET, settings) == [
        artifact.key for artifact in (settings.model.engine, settings.model.gguf, settings.model.modelfile)
    ]
    aws.fails_at = 0
    aws.made.clear()
    assert upload.upload(aws, BUCKET, gguf, quiet)
    assert aws.made.count("UploadPart") == 1
    assert "CreateMultipartUpload" not in aws.made
    found = aws.call("s3", "GetObject", Bucket=BUCKET, Key=gguf.key)
    assert hashlib.sha256(found["Body"].read()).hexdigest() == gguf.sha256


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        (lambda body: b"GGUF" + b"\2" * 2 * PART, {"AbortMultipartUpload": 1}),
        (lambda body: body + b" and more", {"CompleteMultipartUpload": 2}),  # the same beginning
    ],
    ids=["another file", "a longer one"],
)
def test_unfinished_upload_of_other_bytes_is_ended_and_not_resumed(
    change: Callable[[bytes], bytes], ended: dict[str, int], aws: Calls, settings: Settings, files: dict[str, Path]
) -> None:
    aws.fails_at = 3
    with pytest.raises(UnreachableError):
        upload.upload(aws, BUCKET, checked(settings, files, "gguf"), quiet)
    aws.fails_at = 0
    files["gguf"].write_bytes(change(files["gguf"].read_bytes()))
    other = checked(settings, files, "gguf")
    assert upload.upload(aws, BUCKET, other, quiet)
    assert ended.items() <= Counter(aws.made).items()
    head = aws.call("s3", "HeadObject", Bucket=BUCKET, Key=other.key)
    assert head["Metadata"]["sha256"] == other.sha256


def test_all_that_is_wrong_with_the_files_is_told_at_once(
    settings: Settings, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files["engine"].write_text("no tarball")
    files["gguf"].write_text("no weights")
    monkeypatch.setattr(upload.os, "access", lambda path, _: path != files["modelfile"])  # root may read all
    with pytest.raises(upload.PublishError) as caught:
        upload.look(settings, files)
    assert str(caught.value).split("\n  ") == [
        "publish: nothing was uploaded",
        f"--engine {files['engine']}: not a tarball; the engine is a .tgz of its release",
        f"--gguf {files['gguf']}: not a GGUF file; its first four bytes are GGUF",
        f"--modelfile {files['modelfile']}: not readable; a readable file is needed",
    ]


def test_another_file_than_the_pinned_one_is_refused(settings: Settings, files: dict[str, Path]) -> None:
    pinned = replace(settings, model=replace(settings.model, gguf=replace(settings.model.gguf, sha256="0" * 64)))
    with pytest.raises(upload.PublishError) as caught:
        upload.check(pinned, files, quiet)
    digest = hashlib.sha256(files["gguf"].read_bytes()).hexdigest()
    assert str(caught.value).split("\n  ") == [
        "publish: nothing was uploaded",
        f"--gguf {files['gguf']}: sha256 is {digest}, model.gguf.sha256 asks for {'0' * 64}",
    ]


def test_a_tarball_that_is_no_engine_is_refused(settings: Settings, tmp_path: Path) -> None:
    other, broken = tmp_path / "other.tgz", tmp_path / "broken.tgz"
    with tarfile.open(other, "w:gz") as tar:
        member = tarfile.TarInfo("bin/llama-server")
        member.size = 1_000_000
        tar.addfile(member, io.BytesIO(os.urandom(member.size)))
    broken.write_bytes(other.read_bytes()[:500_000])
    assert list(upload.LOOKS["engine"](other, settings)) == ["no bin/ollama in it: not a release of the engine"]
    (problem,) = upload.LOOKS["engine"](broken, settings)
    assert problem.startswith("a broken tarball (")


def test_without_a_store_nothing_is_read(aws: Calls, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_sha256", lambda *_: pytest.fail("18 GB were read for nothing"))
    result = CliRunner().invoke(main, ["--settings", str(CDK_JSON), "publish", "--gguf", str(files["gguf"])])
    assert result.exit_code == 2
    assert "llm-store" in result.stderr


def test_weights_that_do_not_fit_the_gpu_are_refused(settings: Settings, files: dict[str, Path]) -> None:
    with files["gguf"].open("r+b") as file:
        file.truncate(20 * upload.GIB)  # a hole: it takes no space, and it is not read before the size is known
    small = replace(settings, model=replace(settings.model, gpu_memory_gib=17.6))
    problems = list(upload.LOOKS["gguf"](files["gguf"], small))
    assert problems == [
        "20.0 GiB do not fit into model.gpu_memory_gib (17.6), context excluded; a larger file needs model.quantize"
    ]
    quantized = replace(small, model=replace(small.model, quantize="q4_K_M"))
    assert not list(upload.LOOKS["gguf"](files["gguf"], quantized))


def test_command_publishes_all_three_and_says_what_is_next(
    aws: Calls, settings: Settings, files: dict[str, Path]
) -> None:
    template = (
        '{"Resources": {"B": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "made"}}},'
        ' "Outputs": {"BucketName": {"Value": {"Ref": "B"}}}}'
    )
    aws.call("cloudformation", "CreateStack", StackName="llm-store", TemplateBody=template)
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    result = CliRunner().invoke(main, ["--settings", str(CDK_JSON), "publish", *options])
    assert result.exit_code == 0, result.output
    assert "published: s3://made/artifacts/model.gguf" in result.stdout
    assert result.stdout.endswith("the store is complete; next: make deploy\n")
    assert upload.missing(aws, "made", settings) == []
