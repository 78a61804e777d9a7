"""Which box is asked where there are several: of the healthy targets, the one whose lane tells the shortest wait.

Both are read while requests come and never twice at once: the targets every 5 s, the waits every half second. Where
nothing is known of either, the fleet's balancer chooses, as it does where there is one box.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError

from gateway.choice import LaneWait, order
from relay import lane_headers, upstream
from relay.http_client import Client

TARGETS_SECONDS = 5.0  # a target takes 20 s to turn healthy or not
WAITS_SECONDS = 0.5  # what was sent since is counted
TELLS_SECONDS = 0.3  # a box of this network answers in a millisecond; one that does not is not asked
PATIENCE_SECONDS = 1.0  # a request waits for both no longer: then the balancer chooses
LOG = logging.getLogger("gateway")


class Boxes:
    """The fleet's boxes. `healthy` lists the ids of those that take requests; it may block, and raise."""

    def __init__(self, healthy: Callable[[], list[str]], box_url: str, client: Client) -> None:
        self._list, self._url, self._client = healthy, box_url, client
        self._clock = asyncio.get_running_loop().time
        self._healthy, self._unlisted = list[str](), ""
        self._listed_at = self._read_at = float("-inf")
        self._reading: asyncio.Task[dict[str, LaneWait]] | None = None
        self._sent, self._turns, self._turn = Counter[str](), dict[str, int](), 0
        self._word = ""

    async def order(self, tried: Collection[str]) -> list[tuple[str, str]]:
        """(id, address) in the order in which they should be asked; empty: the balancer should."""
        if self._reading is None or (self._reading.done() and self._clock() - self._read_at >= WAITS_SECONDS):
            self._read_at, self._reading = self._clock(), asyncio.create_task(self._read())
        patience = self._read_at + PATIENCE_SECONDS - self._clock()
        done, _ = await asyncio.wait([self._reading], timeout=max(0.0, patience))
        if not done:
            self._say(f"not told within {PATIENCE_SECONDS:g} s")
            return []
        found = order(self._reading.result(), self._sent, self._turns, tried)
        return [(box, self._url.format(box)) for box in found]

    def asked(self, box: str) -> None:
        """A request goes to it."""
        self._turn += 1
        self._turns[box] = self._turn
        self._sent[box] += 1

    async def _read(self) -> dict[str, LaneWait]:
        if self._clock() - self._listed_at >= TARGETS_SECONDS:
            self._listed_at = self._clock()
            try:
                self._healthy, self._unlisted = await asyncio.to_thread(self._list), ""
            except (BotoCoreError, ClientError) as error:
                self._healthy, self._unlisted = [], f"the targets are not told: {error}"
        self._sent.clear()
        waits = await asyncio.gather(*map(self._wait, self._healthy))
        told = {box: wait for box, wait in zip(self._healthy, waits, strict=True) if wait}
        self._turns = {box: turn for box, turn in self._turns.items() if box in self._healthy}
        silent = "" if told else f"none of {len(self._healthy)} healthy boxes tells its wait"
        self._say(self._unlisted or silent)
        return told

    async def _wait(self, box: str) -> LaneWait | None:
        url = self._url.format(box) + lane_headers.WAIT_PATH
        try:
            answer, _ = await upstream.ask(self._client, "GET", url, {}, b"", self._clock() + TELLS_SECONDS)
            answer.close()
            return LaneWait(float(answer.headers[lane_headers.WAIT]), float(answer.headers[lane_headers.ANSWER]))
        except (upstream.UpstreamError, KeyError, ValueError):
            return None

    def _say(self, word: str) -> None:
        """Once: a request comes every few milliseconds."""
        if word != self._word:
            LOG.info("boxes: %s", f"the balancer chooses ({word})" if word else "the shortest line is chosen")
        self._word = word


def healthy(target_group: str) -> Callable[[], list[str]]:
    """What the fleet's target group says of its boxes."""
    patience = BotoConfig(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})
    client: Any = boto3.client("elbv2", config=patience)

    def listed() -> list[str]:
        found = client.describe_target_health(TargetGroupArn=target_group)["TargetHealthDescriptions"]
        return [each["Target"]["Id"] for each in found if each["TargetHealth"]["State"] == "healthy"]

    return listed
