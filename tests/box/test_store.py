"""What the box reads from the model store and what it believes: signing, the cache and its manifest, the download."""

import dataclasses
import hashlib
import http.client
import http.server
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import cache
import config
import download
import imds
import manifest
import paths
import pytest
import s3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from download import DamagedError

from tests.box import servers
from tests.box.conftest import a_box

CREDENTIALS = s3.Credentials("AKID", "secret", "token", datetime.max.replace(tzinfo=UTC))


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


def test_store_at_aws_is_asked_over_tls_at_the_buckets_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setattr(s3, "role_credentials", lambda _: CREDENTIALS)
    bucket = s3.Bucket("b", "us-east-2", imds.Imds())
    connection = bucket.connect()
    asked: list[tuple[str, str, str]] = []

    def request(method: str, path: str, headers: dict[str, str]) -> None:
        asked.append((method, path, headers["host"]))
        raise OSError("nobody is asked here")

    monkeypatch.setattr(connection, "request", request)
    with pytest.raises(s3.StoreError, match="nobody is asked here"):
        bucket.ask(connection, "HEAD", "a key")
    assert asked == [("HEAD", "/a%20key", "b.s3.us-east-2.amazonaws.com")]
    assert isinstance(connection, http.client.HTTPSConnection)
    assert (connection.host, connection.port) == ("b.s3.us-east-2.amazonaws.com", 443)


def test_cache_key_changes_with_everything_that_it_is_built_from() -> None:
    etags = {"a": "1", "b": "2"}
    key = manifest.cache_key("0.0.1", "tiny", "none", etags)
    assert key == manifest.cache_key("0.0.1", "tiny", "none", dict(reversed(etags.items())))
    changed = {
        manifest.cache_key("0.0.1", "tiny", "none", {**etags, "a": "3"}),
        manifest.cache_key("0.0.1", "tiny", "none", {**etags, "b": "3"}),
        manifest.cache_key("0.0.2", "tiny", "none", etags),
        manifest.cache_key("0.0.1", "other", "none", etags),
        manifest.cache_key("0.0.1", "tiny", "q4_K_M", etags),
    }
    assert len(changed - {key}) == 5


def a_manifest(digest: object = f"sha256:{'0' * 64}", size: object = 1) -> bytes:
    """A manifest of one blob."""
    return json.dumps({"config": {"digest": digest, "size": size}, "layers": []}).encode()


def sized(size: int) -> bytes:
    """A manifest of one model of so many bytes."""
    return layers(("model", "1")).replace(b'"size": 1}]', b'"size": %d}]' % size)


def planned(box: config.Box, raw: bytes, published_sha256: str = "") -> cache.Plan:
    """What a boot found that may restore this."""
    artifacts = {box.gguf.key: s3.Object("etag", 1, published_sha256)}
    return cache.Plan(artifacts, "key", manifest.digest(raw), raw, "")


def layers(*found: tuple[str, str]) -> bytes:
    """A manifest of these layers: kind and first digit of the digest."""
    entries = [
        {"mediaType": f"application/vnd.ollama.image.{k}", "digest": f"sha256:{d * 64}", "size": 1} for k, d in found
    ]
    return json.dumps({"config": {"digest": f"sha256:{'0' * 64}", "size": 1}, "layers": entries}).encode()


@pytest.mark.parametrize("named", ["settings", "publication"])
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (layers(("model", "1")), ""),
        (layers(("model", "1"), ("system", "2"), ("template", "3")), ""),
        (layers(("model", "2")), "does not hold the configured GGUF"),
        (layers(("model", "2"), ("license", "1")), "does not hold the configured GGUF"),  # the pinned one, as no model
        (layers(("model", "1"), ("model", "2")), "holds 2 models"),
        (layers(("model", "2"), ("model", "1")), "holds 2 models"),
        (layers(("system", "1")), "holds 0 models"),
        (b"[" * 100_000, "no manifest"),
        (b'{"layers": 3}', "no manifest"),
    ],
)
def test_manifest_holds_the_published_gguf_as_its_one_model(
    box: config.Box, raw: bytes, problem: str, named: str
) -> None:
    if named == "settings":
        box = dataclasses.replace(box, gguf=dataclasses.replace(box.gguf, sha256="1" * 64))
    found = planned(box, raw, "2" * 64 if named == "settings" else "1" * 64)
    if problem:
        with pytest.raises(DamagedError, match=problem):
            cache.check(box, found, raw)
    else:
        cache.check(box, found, raw)


def test_model_quantized_at_its_import_is_one_model_of_a_digest_that_nobody_knew(box: config.Box) -> None:
    quantized = dataclasses.replace(box, quantize="q4_K_M")
    cache.check(quantized, planned(box, b"", "1" * 64), layers(("model", "2")))
    with pytest.raises(DamagedError, match="holds 2 models"):
        cache.check(quantized, planned(box, b"", "1" * 64), layers(("model", "2"), ("model", "3")))


@pytest.mark.parametrize("released", [b"", b"0" * 64, b"\xff"])
def test_cache_that_is_not_the_released_one_is_none(
    box: config.Box, released: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: s3.Bucket, key: str) -> bytes:
        if key.startswith("cache/"):
            return layers(("model", "1"))
        if not released:
            raise s3.GoneError(key)
        return released

    monkeypatch.setattr(s3.Bucket, "head", lambda *_: s3.Object("etag", 1))
    monkeypatch.setattr(s3.Bucket, "read", read)
    found = cache.plan(box, s3.Bucket("b", "us-east-2", imds.Imds()))
    assert not found.warm
    assert found.why_cold


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


def test_manifest_of_more_than_the_disk_holds_is_a_damaged_cache(
    box: config.Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MODELS", tmp_path)
    (tmp_path / "blobs").mkdir()
    for size in (1 << 60, 1 << 70):
        with pytest.raises(DamagedError, match="larger than the disk"):
            cache.restore(box, s3.Bucket("b", "us-east-2", imds.Imds()), planned(box, sized(size)))


def test_store_that_answers_a_range_with_the_whole_object_is_not_believed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PART_BYTES", 1000)
    monkeypatch.setattr(download, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(s3, "role_credentials", lambda _: CREDENTIALS)
    with servers.local(lambda handler: servers.reply(handler, b"x" * 1000 + b"y" * 1000)) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        bucket = s3.Bucket("b", "us-east-2", imds.Imds())
        with pytest.raises(s3.StoreError, match="200 instead of a range"):
            download.download(bucket, [download.Item("key", folder / "file", 2000)])


def test_disk_that_takes_less_than_a_piece_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"file": b"x" * (2 * PART)}
    with ranges(files, monkeypatch, lambda: "") as bucket:
        monkeypatch.setattr(download.os, "pwrite", lambda _fd, piece, _at: len(piece) - 1)
        with pytest.raises(OSError, match="No space left on device"):
            download.download(bucket, items(files, folder))


def test_disk_that_is_too_small_is_told_before_anything_is_fetched(folder: Path) -> None:
    bucket = s3.Bucket("b", "us-east-2", imds.Imds())  # which nobody asks
    with pytest.raises(OSError, match="No space left on device"):
        download.download(bucket, [download.Item("file", folder / "file", 1 << 60)])
    assert not (folder / "file").exists()


def test_blob_that_came_damaged_is_not_left_to_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    (paths.MODELS / "blobs").mkdir(parents=True)

    def damaged(_: s3.Bucket, items: list[download.Item]) -> int:
        items[0].path.write_text("x")
        raise download.DamagedError("sha256")

    monkeypatch.setattr(cache, "download", damaged)
    with pytest.raises(download.DamagedError, match="sha256"):
        cache.restore(a_box(), s3.Bucket("b", "us-east-2", imds.Imds()), planned(a_box(), sized(1)))
    assert not any((paths.MODELS / "blobs").iterdir())


PART, PIECE = 1000, 300
SIZES = (0, 1, PIECE, PART - 1, PART, PART + 1, 3 * PART, 7_777, 12 * PART, 20_021)


@contextmanager
def ranges(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, fate: Callable[[], str]) -> Iterator[s3.Bucket]:
    """A store on loopback that gives ranges of these files; each request has its fate: well, "503" or "cut"."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        body, end = files[handler.path.removeprefix("/b/")][first : last + 1], fate()
        if end == "503":
            return servers.reply(handler, b"", 503)
        if end == "cut":
            return servers.cut(handler, body)
        return servers.reply(handler, body, 206)

    monkeypatch.setattr(s3, "role_credentials", lambda _: CREDENTIALS)
    monkeypatch.setattr(download, "PART_BYTES", PART)
    monkeypatch.setattr(download, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.001)
    with servers.local(answer) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        yield s3.Bucket("b", "us-east-2", imds.Imds())


def items(files: dict[str, bytes], folder: Path) -> list[download.Item]:
    """What to fetch; the digest of every other file is not checked, so that its bytes alone must show a mistake."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return [
        download.Item(name, folder / name, len(files[name]), sha256=sums[name] if number % 2 else "")
        for number, name in enumerate(files)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_files_of_many_parts_arrive_whole_from_a_store_that_refuses_and_cuts(
    seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, suffered = random.Random(seed), Counter[str]()  # noqa: S311 - a test's chance

    def fate() -> str:
        end = chance.choices(["well", "503", "cut"], [6, 1, 1])[0]
        suffered[end] += 1
        return end

    files = {f"{kind}-{size}": chance.randbytes(size) for size in SIZES for kind in ("unchecked", "checked")}
    with ranges(files, monkeypatch, fate) as bucket:
        assert download.download(bucket, items(files, folder)) == sum(map(len, files.values()))
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert min(suffered["503"], suffered["cut"]) >= 5


def test_one_altered_byte_anywhere_in_a_file_of_many_parts_is_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = random.Random(0).randbytes(5 * PART + PIECE)  # noqa: S311 - a test's chance
    wanted = download.Item("file", folder / "file", len(good), sha256=hashlib.sha256(good).hexdigest())
    files = {"file": good}
    with ranges(files, monkeypatch, lambda: "well") as bucket:
        download.download(bucket, [wanted])
        for position in (0, PIECE, PART - 1, PART, 3 * PART + 7, 5 * PART, len(good) - 1):
            files["file"] = good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]
            with pytest.raises(DamagedError, match="sha256"):
                download.download(bucket, [wanted])
