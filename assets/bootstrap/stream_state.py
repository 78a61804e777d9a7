"""What the server of the model's file tells of it, for boot and agent: a mark of one line of JSON.

server      which run of the server tells this
state       arrives, verified, kept, damaged or failed: see `model_file`
why         what is wrong
served      bytes that whoever reads it has asked for, with those that came for him
fetched     bytes that came from the store
"""

import json
from typing import Any

import paths

ARRIVES, VERIFIED, KEPT, DAMAGED, FAILED = "arrives", "verified", "kept", "damaged", "failed"
STREAMED, DOWNLOADED = "streamed", "downloaded"  # how the model came to the engine


def said() -> dict[str, Any]:
    """What the server told last; empty where there is none."""
    try:
        told = json.loads(paths.TOLD_STREAM.read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
