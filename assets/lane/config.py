"""What one lane is given: where it stands, and every limit with its reason. Times in seconds."""

import json
from dataclasses import dataclass

ENVIRONMENT = "LANE_CONFIG"
OLLAMA, LLAMA_CPP = "ollama", "llama.cpp"


@dataclass(frozen=True)
class Config:
    """Read once, as JSON, from the environment."""

    engine_url: str  # "http://127.0.0.1:port"
    engine: str  # OLLAMA or LLAMA_CPP
    model: str  # as the engine calls it; the only one that is served
    context_length: int
    port: int
    admin_port: int  # loopback alone
    box: str = ""  # the instance: told in busy answers
    host: str = ""  # to listen on; empty: every address
    gateway: bool = False  # a gateway stands in front and nobody else is admitted: its headers are believed
    # Without a gateway: nobody waits longer than a person would, or a program's usual timeout of ten minutes.
    deadline_seconds: float = 600.0
    deadline_most_seconds: float = 1800.0
    # At 9.4 s a request, 64 in line are the default deadline; more could only be told to come back.
    depth_most: int = 64
    # Longer than 4096 tokens outlives every budget; an engine's own default is endless.
    max_tokens: int = 4096
    default_max_tokens: int = 1024
    body_bytes: int = 20 << 20  # a few images in base64
    large_bytes: int = 256 << 20  # of large bodies together: each is held several times over, beside an engine
    body_seconds: float = 30.0  # a body that arrives a byte at a time
    # Measured: a short request beside a 1024-token one is done at 10.5 s by a fair slice of 8 s.
    slice_seconds: float = 8.0
    # At a temperature a continuation has the same distribution, not the same words.
    inexact_slices: bool = False
    # Who has waited so long has every other turn: nobody starves, and nobody is starved by the old.
    overdue_seconds: float = 120.0
    # Half of what a caller has used is forgotten in this time.
    served_half_life_seconds: float = 300.0
    # A gateway takes a stream without a byte for 30 s for dead.
    comment_seconds: float = 5.0
    # Bytes of an answer that its reader has not taken: 4096 tokens come to 1.3 MB of events.
    buffer_bytes: int = 8 << 20
    # Who takes no byte for so long is gone: proxies cut a silent connection at 100 s.
    reader_seconds: float = 100.0
    # The longest gap between an engine's bytes: an answer, not streamed, of 4096 tokens at 15 a second, and its prompt.
    engine_seconds: float = 330.0
    # Leaving: how long streams may go on where nobody says otherwise.
    drain_seconds: float = 100.0


def load(text: str) -> Config:
    """Read what the box's configuration says; an unknown or missing key raises TypeError naming it."""
    return Config(**json.loads(text))
