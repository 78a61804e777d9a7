"""The fleet's own Run Command documents for a box's lane: one shows its line, the other ends one request in it.

Two, so that whoever may look need not be one who may end a caller's request.
"""

from typing import Any

from fleet.core import names
from fleet.core.ask_document import SCRIPTS, script_document
from fleet.core.errors import UserError

SCRIPT = SCRIPTS / "line.py"
ID_PATTERN = "^[A-Za-z0-9-]{8,64}$"
ANSWER_SECONDS = 30
ID = {"id": {"type": "String", "description": "The request, as the line names it.", "allowedPattern": ID_PATTERN}}


def show() -> dict[str, Any]:
    """The content of the document that shows; it takes nothing."""
    return script_document(
        "Show who is in line at this box (fleetctl lane).",
        SCRIPT,
        str(names.LANE_ADMIN_PORT),
        parameters={},
        seconds=ANSWER_SECONDS,
    )


def drop() -> dict[str, Any]:
    """The content of the document that ends one request."""
    return script_document(
        "End one request in this box's line (fleetctl lane drop).",
        SCRIPT,
        f"{names.LANE_ADMIN_PORT} '{{{{ id }}}}'",
        parameters=ID,
        seconds=ANSWER_SECONDS,
    )


def checked(request: str) -> str:
    """An id that can travel; UserError for another."""
    if not (8 <= len(request) <= 64 and request.isascii() and request.replace("-", "").isalnum()):
        raise UserError(f"lane drop: ID is {request}; allowed: an id that `fleetctl lane` shows")
    return request
