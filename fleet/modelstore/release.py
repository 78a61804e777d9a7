"""Releases what the first box built: checks the cache of the published files, shows it, and names its manifest's digest
where no box can write. From then on boxes restore exactly that; until then every boot of these files is cold.

A box writes the cache, and its role may be stolen: what a later box serves is what an operator has released. The
digest cannot be known before: the engine adds a template and parameters of its own, and quantizing makes another file.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError
from fleet.config.settings import Settings
from fleet.core import manifest, names
from fleet.core.errors import UserError
from fleet.modelstore import modelfile

TEXTS = {  # layers of text, and what of a Modelfile they come from
    f"application/vnd.ollama.image.{name}": name for name in ("template", "system", "params", "license", "messages")
}
TEXT_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Built:
    """A cache that may be released. `texts` are its layers of text by kind, for the operator to read."""

    key: str
    digest: str
    model: str
    texts: dict[str, str]


def find(aws: Aws, bucket: str, settings: Settings) -> Built:
    """The cache of the published files; raises UserError where there is none, or a wrong one."""
    model = settings.model
    key, heads = _published(aws, bucket, settings)
    try:
        raw = _read(aws, bucket, names.cache_manifest(key))
    except MissingError:
        raise UserError(
            "publish: no box has filled the cache of the published files yet; the first one does, a minute or two "
            "after it serves: then again"
        ) from None
    known = model.gguf.sha256 or heads[model.gguf.key].get("Metadata", {}).get(names.METADATA_SHA256, "")
    problem = manifest.model_problem(raw, known if model.quantize == "none" else "")
    if problem:
        raise _refused(key, [problem])
    layers = json.loads(raw)["layers"]
    texts, problems = _texts(aws, bucket, layers)
    try:
        asked = _asked(_read(aws, bucket, model.modelfile.key).decode(errors="replace"))
    except modelfile.ModelfileError as error:  # put there by hand: publish takes none like it
        raise UserError(f"publish: {model.modelfile.key} in the store is no Modelfile ({error}): publish one") from None
    for kind in ("system", "template", "license"):
        if kind in asked and texts.get(kind) != asked[kind]:
            problems.append(f"its {kind} is not the Modelfile's")
        elif kind == "system" and kind in texts and kind not in asked:
            problems.append("it has a system prompt, the Modelfile has none")
    if problems:
        raise _refused(key, problems)
    (weights,) = [layer["digest"] for layer in layers if layer["mediaType"] == manifest.MODEL_LAYER]
    return Built(key, manifest.digest(raw), weights, texts)


def awaits_release(aws: Aws, bucket: str, settings: Settings) -> bool:
    """Whether every boot of the published files is cold for want of a release."""
    key, _ = _published(aws, bucket, settings)
    return aws.find("s3", "HeadObject", Bucket=bucket, Key=names.released(key)) is None


def _published(aws: Aws, bucket: str, settings: Settings) -> tuple[str, dict[str, dict[str, Any]]]:
    """The key of the published files' cache, and what the store tells of each file, by its key."""
    model = settings.model
    heads = {
        artifact.key: aws.call("s3", "HeadObject", Bucket=bucket, Key=artifact.key)
        for artifact in (model.engine, model.gguf, model.modelfile)
    }
    etags = {key: head["ETag"] for key, head in heads.items()}
    return manifest.cache_key(model.engine_version, model.name, model.quantize, etags), heads


def release(aws: Aws, bucket: str, built: Built) -> None:
    """Let boxes restore it."""
    aws.call("s3", "PutObject", Bucket=bucket, Key=names.released(built.key), Body=built.digest.encode())


def _refused(key: str, problems: list[str]) -> UserError:
    remedy = (
        f"Delete {names.cache_manifest(key)}: the next box builds it anew. Is a box's role stolen? docs/security.md"
    )
    return UserError("\n  ".join([f"publish: the cache {key} is not released", *problems, remedy]))


def _texts(aws: Aws, bucket: str, layers: list[dict[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """Every layer but the weights, by kind, each held to its digest; and what is wrong with them."""
    texts: dict[str, str] = {}
    problems: list[str] = []
    for layer in layers:
        kind, digest = TEXTS.get(layer["mediaType"], ""), str(layer["digest"])
        if layer["mediaType"] == manifest.MODEL_LAYER:
            continue
        if not kind or kind in texts or layer["size"] > TEXT_MOST_BYTES:
            problems.append(f"a layer that no published file makes: {layer['mediaType']}, {layer['size']} bytes")
            continue
        body = _read(aws, bucket, names.cache_blob(digest.replace(":", "-")))
        if digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            problems.append(f"its {kind} is not what its digest says")
        texts[kind] = body.decode(errors="replace")
    return texts, problems


def _asked(text: str) -> dict[str, str]:
    """What the Modelfile says word for word; of what it says twice the engine keeps the last."""
    return {each.name.lower(): each.argument for each in modelfile.parse(text)}


def _read(aws: Aws, bucket: str, key: str) -> bytes:
    body: bytes = aws.call("s3", "GetObject", Bucket=bucket, Key=key)["Body"].read()
    return body
