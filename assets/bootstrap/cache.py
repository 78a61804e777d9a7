"""The blob cache: the built model store in S3, filled by a cold boot, restored by every later one.

    cache/<key>/manifest.json     the engine's manifest, word for word, written last: without it there is no cache
    cache/blobs/sha256-<digest>   the blobs it names, shared by all keys; whoever writes one writes the same bytes
    artifacts/released/<key>      the manifest's digest, written by an operator: without it no box restores the cache

The key stands for everything that the store was built from, so a published artifact makes a new cache. Two boxes that
upload at once write the same blobs and one of two good manifests.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import engine
import manifest
import names
import paths
from aws import Aws
from config import Box
from download import DamagedError, Item, download
from log import say
from s3 import Bucket, GoneError, Object

UPLOAD_SECONDS = 900.0  # measured 71 s for 18 GB
DIGEST = re.compile("sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Plan:
    """What this boot found in the store. `released` is the digest of the manifest that may be restored, empty where
    nobody has released one; `manifest` is the cache's where it is that very one, else empty.
    """

    artifacts: Mapping[str, Object]
    key: str
    released: str
    manifest: bytes
    why_cold: str

    @property
    def warm(self) -> bool:
        """Whether there is a cache to restore."""
        return bool(self.manifest)


def plan(box: Box, bucket: Bucket) -> Plan:
    """Look at the artifacts and for a cache of exactly them; raises StoreError, also where an artifact is missing."""
    artifacts = {item.key: bucket.head(item.key) for item in (box.engine, box.gguf, box.modelfile)}
    etags = {name: found.etag for name, found in artifacts.items()}
    key = manifest.cache_key(box.engine_version, box.model, box.quantize, etags)
    found = _read(bucket, names.cache_manifest(key))
    released = _read(bucket, names.released(key)).decode(errors="replace").strip()
    why_cold = ""
    if not found:
        why_cold = "no cache"
    elif not released:
        why_cold = f"nobody has released the cache {key}"
    elif manifest.digest(found) != released:
        why_cold = f"the cache {key} is not the one that was released"
    return Plan(artifacts, key, released, b"" if why_cold else found, why_cold)


def _read(bucket: Bucket, key: str) -> bytes:
    try:
        return bucket.read(key)
    except GoneError:
        return b""


def blobs(raw: bytes) -> list[Item]:
    """What a manifest names; raises DamagedError where it is no manifest."""
    try:
        parsed = json.loads(raw)
        entries = {entry["digest"]: entry["size"] for entry in [parsed["config"], *parsed["layers"]]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"cache manifest: {type(error).__name__} {error}") from None
    items = []
    for digest, size in entries.items():
        found = DIGEST.fullmatch(str(digest))
        if not found or type(size) is not int or size < 0:
            raise DamagedError(f"cache manifest: a blob {digest!r:.80} of {size!r:.80} bytes")
        name = f"sha256-{found[1]}"
        items.append(Item(names.cache_blob(name), paths.MODELS / "blobs" / name, size, sha256=found[1]))
    return items


def model(box: Box, found: Plan) -> Item:
    """The model's own blob, of all that a manifest names; raises DamagedError."""
    check(box, found, found.manifest)
    digest = next(layer["digest"] for layer in json.loads(found.manifest)["layers"] if manifest.is_model(layer))
    return next(item for item in blobs(found.manifest) if f"sha256:{item.sha256}" == digest)


def restore(box: Box, bucket: Bucket, found: Plan, served: Optional[Item] = None) -> int:
    """Fetch the blobs, but the one that is `served` already, then put the manifest in place; returns the bytes. Raises
    DamagedError, StoreError, OSError.
    """
    check(box, found, found.manifest)
    items = [item for item in blobs(found.manifest) if item != served]
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
    target.write_bytes(found.manifest)
    return count


def check(box: Box, found: Plan, imported: bytes) -> None:
    """Raise DamagedError unless the manifest holds one model: the GGUF's bytes, as the settings or its publication name
    them. A GGUF that is quantized at its import becomes another file, whose digest nobody knows before.
    """
    named = box.gguf.sha256 or found.artifacts[box.gguf.key].sha256
    problem = manifest.model_problem(imported, named if box.quantize == engine.QUANTIZE_NONE else "")
    if problem:
        raise DamagedError(problem)


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


def upload(bucket: Bucket, aws: Aws, found: Plan, imported: bytes, *, trust: bool) -> int:
    """Upload what the cache lacks, blobs first and manifest last; returns the bytes sent. Raises AwsError, StoreError.

    `imported` was taken before the gate opened; what the store holds by now may be a caller's. `trust` is False after a
    damaged restore: what is there is then written over.
    """
    if found.released and found.released != manifest.digest(imported):
        say(f"cache {found.key}: this box built something else than was released; the cache stays as it is")
        return 0
    path, sent = paths.RUN / "manifest.json", 0
    path.write_bytes(imported)
    for item in blobs(imported):
        if not (trust and _holds(bucket, item)):
            aws.upload(str(item.path), item.key, UPLOAD_SECONDS)
            sent += item.size
    aws.upload(str(path), names.cache_manifest(found.key), UPLOAD_SECONDS)
    return sent


def _holds(bucket: Bucket, item: Item) -> bool:
    try:
        return bucket.head(item.key).size == item.size
    except GoneError:
        return False
