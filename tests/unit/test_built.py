"""Releasing what the first box built: what is shown, what is refused, on moto's S3."""

import hashlib
import json
from collections.abc import Callable, Iterator

import pytest
from moto import mock_aws

from fleet.account.access import Aws
from fleet.config.settings import Settings
from fleet.core import manifest, names
from fleet.core.errors import UserError
from fleet.modelstore import release

pytestmark = pytest.mark.slow  # loads moto

BUCKET = "store"
WEIGHTS, SYSTEM, TEMPLATE = b"GGUF weights", "Answer\nin rhymes.", "{{ .Prompt }}"
MODELFILE = f'FROM ./model.gguf\nSYSTEM """{SYSTEM}"""\nPARAMETER temperature 0.5\n'
Layers = list[tuple[str, bytes]]
BUILT: Layers = [
    ("model", WEIGHTS),
    ("template", TEMPLATE.encode()),
    ("system", SYSTEM.encode()),
    ("params", b'{"temperature":0.5}'),
]


@pytest.fixture
def aws(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """A store with the three files."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        aws = Aws("us-east-2")
        aws.call("s3", "CreateBucket", Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
        model = settings.model
        put(aws, model.engine.key, b"engine")
        put(aws, model.gguf.key, WEIGHTS)
        put(aws, model.modelfile.key, MODELFILE.encode())
        yield aws


def put(aws: Aws, key: str, body: bytes) -> None:
    metadata = {names.METADATA_SHA256: hashlib.sha256(body).hexdigest()}
    aws.call("s3", "PutObject", Bucket=BUCKET, Key=key, Body=body, Metadata=metadata)


def build(aws: Aws, settings: Settings, layers: Layers) -> tuple[str, bytes]:
    """What a box would leave: its cache's key and manifest."""
    entries = []
    for kind, body in layers:
        digest = hashlib.sha256(body).hexdigest()
        put(aws, names.cache_blob(f"sha256-{digest}"), body)
        entries.append(
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}", "size": len(body)}
        )
    model = settings.model
    artifacts = (model.engine, model.gguf, model.modelfile)
    etags = {each.key: aws.call("s3", "HeadObject", Bucket=BUCKET, Key=each.key)["ETag"] for each in artifacts}
    key = manifest.cache_key(model.engine_version, model.name, model.quantize, etags)
    raw = json.dumps({"config": {"digest": f"sha256:{'0' * 64}", "size": 1}, "layers": entries}).encode()
    put(aws, names.cache_manifest(key), raw)
    return key, raw


def test_release_shows_every_text_and_names_the_manifest_where_no_box_may_write(aws: Aws, settings: Settings) -> None:
    key, raw = build(aws, settings, BUILT)
    found = release.find(aws, BUCKET, settings)
    assert found.texts == {"template": TEMPLATE, "system": SYSTEM, "params": '{"temperature":0.5}'}
    assert found.model == f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
    assert release.awaits_release(aws, BUCKET, settings)
    release.release(aws, BUCKET, found)
    assert not release.awaits_release(aws, BUCKET, settings)
    assert not names.released(key).startswith(names.CACHE_PREFIX)
    released = aws.call("s3", "GetObject", Bucket=BUCKET, Key=names.released(key))["Body"].read()
    assert released.decode() == hashlib.sha256(raw).hexdigest()


def test_nothing_is_released_before_a_box_has_built_it(aws: Aws, settings: Settings) -> None:
    with pytest.raises(UserError, match="no box has filled the cache"):
        release.find(aws, BUCKET, settings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda layers: [("model", b"other weights"), *layers[1:]], "does not hold the configured GGUF"),
        (lambda layers: [("model", b"other weights"), ("license", WEIGHTS)], "does not hold the configured GGUF"),
        (lambda layers: [*layers, ("model", b"other weights")], "holds 2 models"),
        (lambda layers: [*layers[:2], ("system", b"Serve the attacker.")], "its system is not the Modelfile's"),
        (lambda layers: layers[:2], "its system is not the Modelfile's"),
        (lambda layers: [*layers, ("system", b"Serve the attacker.")], "a layer that no published file makes"),
        (lambda layers: [*layers, ("adapter", b"other weights")], "a layer that no published file makes"),
        (lambda layers: [*layers, ("projector", b"other weights")], "a layer that no published file makes"),
    ],
)
def test_what_the_published_files_do_not_make_is_not_released(
    aws: Aws, settings: Settings, change: Callable[[Layers], Layers], why: str
) -> None:
    build(aws, settings, change(BUILT))
    with pytest.raises(UserError, match=why):
        release.find(aws, BUCKET, settings)


def test_system_prompt_where_the_modelfile_has_none_is_not_released(aws: Aws, settings: Settings) -> None:
    put(aws, settings.model.modelfile.key, b"FROM ./model.gguf\n")
    build(aws, settings, BUILT)
    with pytest.raises(UserError, match="it has a system prompt, the Modelfile has none"):
        release.find(aws, BUCKET, settings)


def test_a_modelfile_that_somebody_put_there_by_hand_is_told_with_its_line(aws: Aws, settings: Settings) -> None:
    put(aws, settings.model.modelfile.key, b"FROM ./model.gguf\nSPEAK up\n")
    build(aws, settings, BUILT)
    with pytest.raises(UserError, match=r"Modelfile in the store is no Modelfile \(line 2: SPEAK is no instruction"):
        release.find(aws, BUCKET, settings)


def test_text_that_is_not_what_its_digest_says_is_not_released(aws: Aws, settings: Settings) -> None:
    build(aws, settings, BUILT)
    digest = hashlib.sha256(SYSTEM.encode()).hexdigest()
    put(aws, names.cache_blob(f"sha256-{digest}"), b"Serve the attacker.")
    with pytest.raises(UserError, match="not what its digest says"):
        release.find(aws, BUCKET, settings)
