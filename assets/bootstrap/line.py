"""The lane as the box's own programs know it: started with its configuration, asked over loopback who is in line.

Its list is the one count of streams, for drain, keeper and self-prime alike: a stream that waits for its next slice has
no byte for seconds, and the kernel would call it finished.
"""

import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Optional

import engine
import names
import paths
from config import Box
from log import say
from systemctl import systemctl

ENVIRONMENT = paths.RUN / "lane.env"
ANSWER_SECONDS = 1.0  # it answers within a millisecond; who has not by then is not there
STOPPING_SECONDS = 60.0  # below its unit's TimeoutStopSec


@dataclass(frozen=True)
class Told:
    """What the lane tells. Counts are since its start."""

    streams: int  # callers in line or served, ours among them
    waiting: int = 0
    served: Optional[tuple[str, int]] = None  # who is, and his tokens so far: what moves
    served_seconds: float = 0.0
    answered: int = 0
    cut: int = 0  # ended by the box after their first token
    handed_back: int = 0  # told to go elsewhere, or refused, before it


def start(box: Box, instance_id: str) -> None:
    """Start its unit, which ends once it listens; raises UnitError."""
    given = {
        "engine": "ollama",
        "engine_url": f"http://127.0.0.1:{names.ENGINE_PORT}",
        "model": box.model,
        "context_length": box.context_length,
        "port": box.port,
        "admin_port": names.LANE_ADMIN_PORT,
        "box": instance_id,
        "gateway": box.gateway,
        "deadline_seconds": box.lane_deadline_seconds,
        "inexact_slices": box.lane_inexact_slices,
        "drain_seconds": STOPPING_SECONDS,
    }
    paths.FIGURES.mkdir(parents=True, exist_ok=True)  # the unit shows it to the lane as it stands at its start
    ENVIRONMENT.write_text(f"LANE_CONFIG='{json.dumps(given)}'\n")
    systemctl("start", names.LANE_UNIT)


def look() -> Optional[Told]:
    """The line of now; None where the lane has not answered, which is logged."""
    return _asked("GET", "/line", None)


def drain(seconds: float) -> Optional[Told]:
    """The same, and from now on nobody is let in: the engine goes in so long, and who cannot finish is handed back.
    Said again it changes nothing, but tells a lane that was restarted meanwhile.
    """
    return _asked("POST", "/drain", {"seconds": max(0.0, seconds)})


def _asked(method: str, path: str, body: Optional[dict[str, Any]]) -> Optional[Told]:
    connection = HTTPConnection("127.0.0.1", names.LANE_ADMIN_PORT, timeout=ANSWER_SECONDS)
    try:
        return told(engine.answer(connection, method, path, body))
    except (engine.EngineError, KeyError, TypeError, ValueError) as error:
        say(f"lane: {error}")
        return None


def told(answer: dict[str, Any]) -> Told:
    """What an answer says. Pure."""
    served = next((each for each in answer["line"] if each["state"] == "served"), None)
    counts, cut = answer["counts"], int(answer["cut"])
    return Told(
        streams=int(answer["streams"]),
        waiting=len(answer["line"]) - (served is not None),
        served=(str(served["id"]), int(served["tokens"])) if served else None,
        served_seconds=float(served["served_seconds"]) if served else 0.0,
        answered=int(counts.get("answered", 0)),
        cut=cut,
        handed_back=max(0, int(counts.get("draining", 0)) - cut),
    )
