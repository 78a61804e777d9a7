"""One voice: what the fleet's own Modelfile says of every answer, so that the fallback speaks as the GPU does.

The Modelfile lies in the model store, where boxes read it too; it is read at the gateway's start and again and again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.modelstore import modelfile

AGAIN_SECONDS, RETRY_SECONDS = 300, 15
# Parameters of a Modelfile that chat completions have under the same name; the others are of one engine alone.
FRACTIONS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
LOG = logging.getLogger("gateway")


@dataclass(frozen=True)
class Instructions:
    """System prompt and sampling where a caller says nothing."""

    system: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()

    def applied(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` with them where its caller said nothing."""
        messages = body["messages"]
        if self.system and not any(message["role"] in {"system", "developer"} for message in messages):
            messages = [{"role": "system", "content": self.system}, *messages]
        return {**dict(self.parameters), **body, "messages": messages}


def read(text: str) -> Instructions:
    """What a Modelfile says; raises modelfile.ModelfileError."""
    system, parameters = "", dict[str, Any]()
    for found in modelfile.parse(text):
        name, _, value = found.argument.partition(" ")
        if found.name == "SYSTEM":
            system = found.argument
        elif found.name == "PARAMETER" and name in FRACTIONS:
            parameters[name] = float(value)
        elif found.name == "PARAMETER" and name == "seed":
            parameters[name] = int(value)
        elif found.name == "PARAMETER" and name == "stop":
            parameters.setdefault("stop", []).append(value.strip('"'))
    return Instructions(system, tuple(parameters.items()))


class Voice:
    """The instructions as they were read last; None until then, and the fallback is not asked meanwhile."""

    def __init__(self, fetch: Callable[[], str] | None = None) -> None:
        self._fetch = fetch
        self.instructions: Instructions | None = None if fetch else Instructions()

    async def follow(self) -> None:
        """Read again and again, for ever."""
        while self._fetch:
            try:
                self.instructions = read(await asyncio.to_thread(self._fetch))
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception as error:
                LOG.warning("the Modelfile cannot be read: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
