"""What one gateway is given: its settings (`fleet.config.gateway_settings`) and where it stands."""

import json
from dataclasses import dataclass
from typing import Any

from fleet.config.gateway_settings import Gateway
from fleet.config.section import from_plain
from fleet.core import names


@dataclass(frozen=True, kw_only=True)
class Config:
    """Read once from the environment."""

    fleet: str
    gpu_url: str  # of the fleet's own balancer, or of a box: "http://host:port"
    target_group: str = ""  # of that balancer, where the gateway chooses among its boxes; empty: the balancer does
    box_url: str = ""  # of one of them, {} for its instance id
    models: dict[str, str]  # what a caller may name -> the engine's name
    gateway: Gateway
    model_revision: str = ""
    modelfile: str = ""  # "bucket/key" of the fleet's own in the model store; empty: the fallback gets none of it
    table: str = ""  # DynamoDB; empty: counted in memory, which only a try-out wants
    port: int = names.GATEWAY_PORT
    metrics_port: int = names.GATEWAY_METRICS_PORT


def load(text: str) -> Config:
    """Read what the app wrote; an unknown or missing key raises TypeError naming it."""
    raw: dict[str, Any] = json.loads(text)
    return Config(**{**raw, "gateway": from_plain(Gateway, raw["gateway"])})
