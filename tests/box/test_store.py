"""What the box reads from the model store and what it believes: signing, the cache and its manifest, the download."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import cache
import config
import download
import imds
import paths
import pytest
import s3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from download import DamagedError

from tests.box import servers
from tests.box.conftest import a_box

pytestmark = pytest.mark.usefixtures("folder")


def test_signature_is_the_one_that_botocore_makes() -> None:
    now = datetime.now(UTC)
    credentials = s3.Credentials("AKID", "secret", "token", now)
    ours = s3.sign("GET", "b.s3.us-east-2.amazonaws.com", "/a%20key", "us-east-2", credentials, now)
    request = AWSRequest("GET", "https://b.s3.us-east-2.amazonaws.com/a%20key")
    request.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
    request.context["payload_signing_enabled"] = False
    request.context["timestamp"] = ours["x-amz-date"]
    auth = S3SigV4Auth(Credentials("AKID", "secret", "token"), "s3", "us-east-2")
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = "token"
    expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert ours["authorization"].endswith(f"Signature={expected}")
    assert "secret" not in repr(credentials)


def test_cache_key_changes_with_every_artifact_the_engine_and_the_model(box: config.Box) -> None:
    etags = {"a": "1", "b": "2"}
    key = cache.cache_key(box, etags)
    assert key == cache.cache_key(box, dict(reversed(etags.items())))
    changed = {
        cache.cache_key(box, {**etags, "a": "3"}),
        cache.cache_key(box, {**etags, "b": "3"}),
        cache.cache_key(dataclasses.replace(box, engine_version="0.0.2"), etags),
        cache.cache_key(dataclasses.replace(box, model="other"), etags),
    }
    assert len(changed) == 4
    assert key not in changed


def a_manifest(digest: object = f"sha256:{'0' * 64}", size: object = 1) -> bytes:
    """A manifest of one blob."""
    return json.dumps({"config": {"digest": digest, "size": size}, "layers": []}).encode()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}",
        b"\xff" + a_manifest(),
        a_manifest().replace(b"layers", b"\xe9"),
        b"[" * 100_000,
        b'{"config": 3, "layers": []}',
        *map(a_manifest, ["md5:0", "sha256:../../../etc/passwd", "sha256:" + "0" * 63, 3, None, ["x"]]),
        *(a_manifest(size=size) for size in ("x", "1", None, -1, 1.5, float("inf"), True)),
    ],
)
def test_manifest_that_is_none_is_a_damaged_cache(damaged: bytes) -> None:
    with pytest.raises(DamagedError):
        cache.blobs(damaged)


def test_manifest_that_is_no_text_is_a_damaged_cache(box: config.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3.Bucket, "head", lambda *_: s3.Object("etag", 1))
    monkeypatch.setattr(s3.Bucket, "read", lambda *_: b"\xff" + a_manifest())
    bucket = s3.Bucket("b", "us-east-2", imds.Imds())
    found = cache.plan(box, bucket)
    assert found.warm
    with pytest.raises(DamagedError):
        cache.restore(box, bucket, found.manifest)


def test_manifest_of_more_than_the_disk_holds_is_a_damaged_cache(
    box: config.Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MODELS", tmp_path)
    (tmp_path / "blobs").mkdir()
    for size in (1 << 60, 1 << 70):
        with pytest.raises(DamagedError, match="larger than the disk"):
            cache.restore(box, s3.Bucket("b", "us-east-2", imds.Imds()), a_manifest(size=size))


def test_store_that_answers_a_range_with_the_whole_object_is_not_believed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PART_BYTES", 1000)
    monkeypatch.setattr(download, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(
        s3, "role_credentials", lambda _: s3.Credentials("AKID", "secret", "token", datetime.max.replace(tzinfo=UTC))
    )
    with servers.local(lambda handler: servers.reply(handler, b"x" * 1000 + b"y" * 1000)) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        bucket = s3.Bucket("b", "us-east-2", imds.Imds())
        with pytest.raises(s3.StoreError, match="200 instead of a range"):
            download.download(bucket, [download.Item("key", folder / "file", 2000)])


def test_blob_that_came_damaged_is_not_left_to_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    (paths.MODELS / "blobs").mkdir(parents=True)

    def damaged(_: s3.Bucket, items: list[download.Item]) -> int:
        items[0].path.write_text("x")
        raise download.DamagedError("sha256")

    monkeypatch.setattr(cache, "download", damaged)
    with pytest.raises(download.DamagedError, match="sha256"):
        cache.restore(a_box(), s3.Bucket("b", "us-east-2", imds.Imds()), a_manifest())
    assert not any((paths.MODELS / "blobs").iterdir())
