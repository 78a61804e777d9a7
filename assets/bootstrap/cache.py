"""The blob cache: the built model store in S3, filled by a cold boot, restored by every later one.

    cache/<key>/manifest.json     the engine's manifest, word for word, written last: without it there is no cache
    cache/blobs/sha256-<digest>   the blobs it names, shared by all keys; whoever writes one writes the same bytes

The key stands for everything that the store was built from, so a published artifact makes a new cache. Two boxes that
prime at once write the same blobs and one of two good manifests.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import engine
import names
import paths
from aws import Aws
from config import Box
from download import DamagedError, Item, download
from s3 import Bucket, GoneError, Object

UPLOAD_SECONDS = 900.0  # measured 71 s for 18 GB
DIGEST = re.compile("sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Plan:
    """What this boot found in the store: the source artifacts, and the cache's manifest, empty where there is none."""

    artifacts: Mapping[str, Object]
    key: str
    manifest: bytes

    @property
    def warm(self) -> bool:
        """Whether there is a cache to restore."""
        return bool(self.manifest)


def plan(box: Box, bucket: Bucket) -> Plan:
    """Look at the artifacts and for a cache of exactly them; raises StoreError, also where an artifact is missing."""
    artifacts = {item.key: bucket.head(item.key) for item in (box.engine, box.gguf, box.modelfile)}
    key = cache_key(box, {name: found.etag for name, found in artifacts.items()})
    try:
        return Plan(artifacts, key, bucket.read(manifest_key(key)))
    except GoneError:
        return Plan(artifacts, key, b"")


def cache_key(box: Box, etags: Mapping[str, str]) -> str:
    """Names the cache by what it is built from: the artifacts' ETags, engine version, model name, quantization."""
    built_from = [box.engine_version, box.model, box.quantize, sorted(etags.items())]
    return hashlib.sha256(json.dumps(built_from).encode()).hexdigest()[:32]


def manifest_key(key: str) -> str:
    """Where the manifest of a cache stands."""
    return f"{names.CACHE_PREFIX}{key}/manifest.json"


def blob_key(name: str) -> str:
    """Where a blob stands; `name` is its file's, sha256-<digest>."""
    return f"{names.CACHE_PREFIX}blobs/{name}"


def blobs(manifest: bytes) -> list[Item]:
    """What a manifest names; raises DamagedError where it is no manifest."""
    try:
        raw = json.loads(manifest)
        entries = {entry["digest"]: entry["size"] for entry in [raw["config"], *raw["layers"]]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"cache manifest: {type(error).__name__} {error}") from None
    items = []
    for digest, size in entries.items():
        found = DIGEST.fullmatch(str(digest))
        if not found or type(size) is not int or size < 0:
            raise DamagedError(f"cache manifest: a blob {digest!r:.80} of {size!r:.80} bytes")
        name = f"sha256-{found[1]}"
        items.append(Item(blob_key(name), paths.MODELS / "blobs" / name, size, sha256=found[1]))
    return items


def restore(box: Box, bucket: Bucket, manifest: bytes) -> int:
    """Fetch the blobs, then put the manifest in place; returns the bytes. Raises DamagedError, StoreError, OSError."""
    check(box, manifest)
    items = blobs(manifest)
    if sum(item.size for item in items) > shutil.disk_usage(paths.MODELS).free:
        raise DamagedError("cache manifest: its blobs are larger than the disk")
    try:
        count = download(bucket, items)
    except DamagedError:
        for item in items:  # the engine's import takes a blob that is there for what its name says
            item.path.unlink(missing_ok=True)
        raise
    target = engine.manifest(box.model)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(manifest)
    return count


def check(box: Box, manifest: bytes) -> None:
    """Raise DamagedError unless the manifest holds the configured GGUF, which an import takes over byte by byte.

    A GGUF that is quantized at its import becomes another file, whose digest nobody knows before.
    """
    if box.quantize != engine.QUANTIZE_NONE:
        return
    if box.gguf.sha256 and box.gguf.sha256 not in {item.sha256 for item in blobs(manifest)}:
        raise DamagedError(f"the manifest does not hold the configured GGUF, sha256 {box.gguf.sha256}")


def fetch_sources(box: Box, bucket: Bucket, found: Plan) -> int:
    """Fetch GGUF and Modelfile for an import; returns the bytes. Raises DamagedError, StoreError, OSError."""
    items = []
    for artifact in (box.gguf, box.modelfile):
        known = found.artifacts[artifact.key]
        items.append(Item(artifact.key, source(artifact.key), known.size, known.etag, artifact.sha256))
    source(box.gguf.key).parent.mkdir(exist_ok=True)
    return download(bucket, items)


def source(key: str) -> Path:
    """Where a source artifact is fetched to: side by side, as the Modelfile's FROM expects."""
    return paths.STORE / "source" / Path(key).name


def prime(bucket: Bucket, aws: Aws, found: Plan, manifest: bytes, *, trust: bool) -> int:
    """Upload what the cache lacks, blobs first and manifest last; returns the bytes sent. Raises AwsError, StoreError.

    `manifest` was taken before the gate opened; what the store holds by now may be a caller's. `trust` is False after a
    damaged restore: what is there is then written over.
    """
    path, sent = paths.RUN / "manifest.json", 0
    path.write_bytes(manifest)
    for item in blobs(manifest):
        if not (trust and _holds(bucket, item)):
            aws.upload(str(item.path), item.key, UPLOAD_SECONDS)
            sent += item.size
    aws.upload(str(path), manifest_key(found.key), UPLOAD_SECONDS)
    return sent


def _holds(bucket: Bucket, item: Item) -> bool:
    try:
        return bucket.head(item.key).size == item.size
    except GoneError:
        return False
