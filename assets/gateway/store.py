"""Keys, caps, spend and ledger: one DynamoDB table, one item a fact (`items`). The only file that calls AWS for them.

StoreError    no answer within `ANSWER_SECONDS`, or an error of the store's own
  BusyError   it answered that others change the same item, again and again
  LateError   what was asked goes on: its `outcome` is known later
"""

import asyncio
import contextlib
import functools
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Concatenate, ParamSpec, TypeVar

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from gateway import items
from gateway.callers import Key
from gateway.fallback import SERVER_ERROR
from gateway.ledger import OPEN, Line

ANSWER_SECONDS = 0.3  # a caller waits for the store no longer: DynamoDB answers in single milliseconds
CONFLICT_SECONDS = (
    0.2  # for so long a transaction that others cross is tried again; a caller's own parallel requests do
)
CONFLICT_PAUSE_SECONDS = 0.02  # at most, drawn anew each time
CROSSED = {"TransactionConflict", "TransactionInProgress"}  # by another one, or by its own first try
P = ParamSpec("P")
T = TypeVar("T")


class StoreError(Exception):
    """The store did not answer."""


class LateError(StoreError):
    """The store did not answer in time; `outcome` is its answer, or the error that ended its attempt."""

    def __init__(self, outcome: asyncio.Future[Any]) -> None:
        self.outcome = outcome
        super().__init__(f"no answer within {ANSWER_SECONDS * 1000:.0f} ms")


class BusyError(StoreError):
    """Others change the same item, again and again."""


class Verdict(Enum):
    """What came of an admission."""

    ADMITTED = "it is counted, and its line is written"
    CAP_REACHED = "the day's cap is used up"
    TAKEN = "another request has its id: nothing was counted"


@dataclass(frozen=True)
class Seen:
    """The Idempotency-Key had a request already; None where its line is gone."""

    line: Line | None


Outcome = Verdict | Seen


def _in_time(
    method: Callable[Concatenate["DynamoStore", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["DynamoStore", P], Coroutine[Any, Any, T]]:
    """Who asks waits `ANSWER_SECONDS`; raises LateError. What was begun goes on, also where he leaves meanwhile."""

    @functools.wraps(method)
    async def asked(store: "DynamoStore", /, *arguments: P.args, **named: P.kwargs) -> T:
        work = asyncio.create_task(method(store, *arguments, **named))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may want to know any more
        await asyncio.wait([work], timeout=ANSWER_SECONDS)
        if not work.done():
            raise LateError(work)
        return work.result()

    return asked


class DynamoStore:
    """The table, through boto3 in threads."""

    def __init__(self, table: str, client: Any = None) -> None:
        patience = BotoConfig(
            connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1}, max_pool_connections=32
        )
        self._table, self._client = table, client or boto3.client("dynamodb", config=patience)
        self._threads = ThreadPoolExecutor(32, "store")

    @_in_time
    async def key(self, key_hash: str) -> Key | None:
        """An API key; None: unknown."""
        found = await self._get(items.pk("key", key_hash))
        return items.read_key(found) if found else None

    @_in_time
    async def pepper(self) -> bytes:
        """The secret behind addresses' and prompts' hashes, made once."""
        fresh = random.SystemRandom().randbytes(32)
        step = items.put(self._table, items.item("pepper", value=fresh.hex()), "attribute_not_exists(pk)")
        try:
            await self._call("put_item", **step["Put"])
        except _ConditionFailed:
            found = await self._get("pepper")
            return bytes.fromhex(found["value"])
        return fresh

    @_in_time
    async def admit(self, line: Line, cap: int, once: str, day: str) -> Outcome:
        """Count the request, take its Idempotency-Key's hash (empty: none), begin its line: all or nothing."""
        steps = [
            items.begin_line(self._table, line),
            items.add_up_to(self._table, items.pk("use", line.caller, day), "requests", 1, cap),
        ]
        if once:
            taken = items.item(items.pk("once", line.caller, once), id=line.id, ttl=items.kept())
            steps.append(items.put(self._table, taken, "attribute_not_exists(pk)"))
        try:
            await self._transact(steps)
        except _ConditionFailed as error:
            if once and error.reasons[-1] == "ConditionalCheckFailed":
                return Seen(await self._line_of(items.pk("once", line.caller, once)))
            return Verdict.TAKEN if error.reasons[0] == "ConditionalCheckFailed" else Verdict.CAP_REACHED
        return Verdict.ADMITTED

    async def _line_of(self, once_key: str) -> Line | None:
        taken = await self._get(once_key)
        found = await self._get(items.pk("request", taken["id"])) if taken else None
        return Line.read(found) if found else None

    @_in_time
    async def write(self, line: Line) -> None:
        """Write a line as it now stands; one under way only while its request is."""
        written = items.renew_line if line.state in OPEN else items.put_line
        with contextlib.suppress(_ConditionFailed):  # it has ended meanwhile
            await self._transact(written(self._table, line))

    @_in_time
    async def make_up(self, line: Line) -> None:
        """The last line of a request that was counted elsewhere, and what it used of the fallback; once a line."""
        steps = items.renew_line(self._table, line)  # its condition lets the last line in once, and so the counts
        steps.append(items.add(self._table, items.pk("use", line.caller, line.day), "fallbacks", 1))
        steps.append(items.add(self._table, items.pk("spend", line.day), "micro", line.micro_dollars))
        with contextlib.suppress(_ConditionFailed):
            await self._transact(steps)

    @_in_time
    async def give_back(self, caller: str, day: str, *, request: bool, fallback: bool, once: str) -> None:
        """Nobody answered, or the cloud refused: counts and Idempotency-Key (empty: none) are the caller's again."""
        pk, back = items.pk("use", caller, day), {"requests": request, "fallbacks": fallback}
        steps = [
            self._call("update_item", **items.add(self._table, pk, name, -1)["Update"])
            for name, wanted in back.items()
            if wanted
        ]
        if once:
            steps.append(
                self._call("delete_item", TableName=self._table, Key=items.key(items.pk("once", caller, once)))
            )
        await asyncio.gather(*steps)  # all are sent, also where the answer to one is late

    @_in_time
    async def take_fallback(self, caller: str, most: int, day: str) -> bool:
        """One of the caller's fallbacks of the day; False: all are used."""
        return await self._added(items.add_up_to(self._table, items.pk("use", caller, day), "fallbacks", 1, most))

    @_in_time
    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        """Add micro-dollars to the day's spend; False where `limit` would be passed."""
        if limit is None:
            return await self._added(items.add(self._table, items.pk("spend", day), "micro", micro))
        if micro > limit:
            return False
        return await self._added(items.add_up_to(self._table, items.pk("spend", day), "micro", micro, limit))

    async def _added(self, step: items.Step) -> bool:
        try:
            await self._call("update_item", **step["Update"])
        except _ConditionFailed:
            return False
        return True

    async def _get(self, pk: str) -> dict[str, Any]:
        found = await self._call("get_item", Key=items.key(pk), TableName=self._table, ConsistentRead=True)
        return items.read(found.get("Item", {}))

    async def _transact(self, steps: list[items.Step]) -> None:
        await self._call("transact_write_items", TransactItems=steps)

    async def _call(self, name: str, **arguments: Any) -> Any:
        """An answer; what no thread has begun by `ANSWER_SECONDS` is not begun any more. Raises StoreError."""
        begun = self._threads.submit(_retried, getattr(self._client, name), arguments)
        answer = asyncio.wrap_future(begun)
        await asyncio.wait([answer], timeout=ANSWER_SECONDS)
        if begun.cancel():
            raise StoreError("too much is asked of it")
        try:
            return await answer
        except (BotoCoreError, ClientError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from None


class _ConditionFailed(Exception):  # noqa: N818  an answer, not an error
    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(", ".join(reasons))


def _retried(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """One call; a transaction that another one crosses is tried again, and once one of which nothing is known.

    Under one token it is carried out once (aws-behaviours: transaction-token).
    """
    until, transaction, unknown = time.monotonic() + CONFLICT_SECONDS, "TransactItems" in arguments, False
    while True:
        if transaction and not unknown:
            arguments["ClientRequestToken"] = uuid.uuid4().hex
        try:
            return call(**arguments)
        except HTTPClientError:  # it was sent, and its answer is lost
            if unknown or not transaction:
                raise
        except ClientError as error:
            code = error.response["Error"]["Code"]
            reasons = tuple(reason.get("Code", "") for reason in error.response.get("CancellationReasons", ()))
            if code == "ConditionalCheckFailedException" or "ConditionalCheckFailed" in reasons:
                raise _ConditionFailed(reasons or (code,)) from None
            if CROSSED & {*reasons, code.removesuffix("Exception")}:
                if time.monotonic() > until:
                    raise BusyError("others change the same item") from None
                time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))  # noqa: S311  no secret
                continue
            own = error.response["ResponseMetadata"]["HTTPStatusCode"] >= SERVER_ERROR  # it may have been carried out
            if not own or unknown or not transaction:
                raise
        unknown, until = True, time.monotonic() + CONFLICT_SECONDS
