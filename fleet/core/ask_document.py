"""The fleet's own Run Command document: one prompt to the box's own engine, and nothing else that anybody could run.

The stack makes it, `fleetctl ask` uses it. The prompt travels as base64 under a pattern that admits nothing else, so no
shell ever reads it.
"""

import base64
from pathlib import Path
from typing import Any

from fleet.core.errors import UserError

SCRIPTS = Path(__file__).parents[2] / "assets" / "ask"
PROMPT_PATTERN = "^[A-Za-z0-9+/]{1,5464}={0,2}$"
MOST_PROMPT_BYTES = 4096  # base64 makes 5,464 characters of them
ANSWER_SECONDS = 300  # the engine takes one request at a time: ours may wait for a long one


def document() -> dict[str, Any]:
    """The content of the SSM document; the same for every fleet, since the box knows its own port and model."""
    return script_document(
        "Put one prompt to this box's own engine (fleetctl ask).",
        SCRIPTS / "ask.py",
        "'{{ prompt }}'",
        parameters={
            "prompt": {"type": "String", "description": "The prompt, base64.", "allowedPattern": PROMPT_PATTERN}
        },
        seconds=ANSWER_SECONDS,
    )


def script_document(
    description: str, script: Path, arguments: str, *, parameters: dict[str, Any], seconds: int
) -> dict[str, Any]:
    """A document that runs one script of ours on a box, with these arguments, and no command of the caller's."""
    lines = script.read_text().rstrip("\n").split("\n")
    return {
        "schemaVersion": "2.2",
        "description": description,
        **({"parameters": parameters} if parameters else {}),
        "mainSteps": [
            {
                "name": "ask",
                "action": "aws:runShellScript",
                "inputs": {
                    "timeoutSeconds": str(seconds),
                    "runCommand": [f"python3 - {arguments} <<'ASK'", *lines, "ASK"],
                },
            }
        ],
    }


def encode(prompt: str) -> str:
    """The prompt as it travels; UserError for one that cannot."""
    try:
        raw = prompt.encode()
    except UnicodeEncodeError:
        raise UserError("ask: the prompt is not UTF-8; allowed: 1 to 4096 bytes of text") from None
    if not raw.strip():
        raise UserError("ask: the prompt is empty; allowed: 1 to 4096 bytes of text")
    if len(raw) > MOST_PROMPT_BYTES:
        raise UserError(f"ask: the prompt has {len(raw)} bytes; allowed: 1 to {MOST_PROMPT_BYTES} bytes of text")
    return base64.b64encode(raw).decode()
