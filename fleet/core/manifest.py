"""What a cache is named by and what its manifest must hold: the box, which restores it, and `fleetctl publish`, which
releases it, agree on it here. Python 3.9 and its standard library, because the box ships this file too.

    cache/<key>/manifest.json     what a box built of the published files, written by that box
    artifacts/released/<key>      the sha256 of the manifest that boxes may restore, written where no box can
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MODEL_LAYER = "application/vnd.ollama.image.model"


def cache_key(engine_version: str, model: str, quantize: str, etags: Mapping[str, str]) -> str:
    """Names the cache by what it is built from: the artifacts' ETags, engine version, model name, quantization."""
    built_from = [engine_version, model, quantize, sorted(etags.items())]
    return hashlib.sha256(json.dumps(built_from).encode()).hexdigest()[:32]


def digest(manifest: bytes) -> str:
    """What a release names."""
    return hashlib.sha256(manifest).hexdigest()


def is_model(layer: Mapping[str, Any]) -> bool:
    """Whether a layer is the model itself."""
    return bool(layer["mediaType"] == MODEL_LAYER)


def model_problem(manifest: bytes, sha256: str) -> str:
    """Why this is no manifest of one model, of this digest where one is given; empty where it is."""
    try:
        models = [layer["digest"] for layer in json.loads(manifest)["layers"] if is_model(layer)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no manifest: {type(error).__name__} {error}"
    if len(models) != 1:
        return f"the manifest holds {len(models)} models, not one"
    if sha256 and models[0] != f"sha256:{sha256}":
        return f"the manifest does not hold the configured GGUF, sha256 {sha256}, but {models[0]!r:.80}"
    return ""
