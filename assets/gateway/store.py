"""Keys, caps, spend and ledger: one DynamoDB table, one item a fact. The only file that calls AWS for them.

  key#HASH                  an API key
  use#CALLER#DAY            requests and fallbacks of a UTC day
  once#CALLER#HASH          an Idempotency-Key, and the request that had it
  request#ID                a ledger line
  failed-over#DAY  TIME#ID  what the cloud answered, in order
  spend#DAY                 micro-dollars reserved and settled

StoreError    no answer within `ANSWER_SECONDS`, or an error of the store's own
  BusyError   it answered that others change the same item, again and again
"""

import asyncio
import functools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError

from gateway.callers import Key
from gateway.ledger import KEPT_DAYS, Line

ANSWER_SECONDS = 0.3  # a caller waits for the store no longer: DynamoDB answers in single milliseconds
CONFLICT_SECONDS = (
    0.2  # for so long a transaction that others cross is tried again; a caller's own parallel requests do
)
CONFLICT_PAUSE_SECONDS = 0.02  # at most, drawn anew each time
T = TypeVar("T")


class StoreError(Exception):
    """The store did not answer."""


class BusyError(StoreError):
    """Others change the same item, again and again."""


@dataclass(frozen=True)
class Admitted:
    """The request is counted and its line written."""


@dataclass(frozen=True)
class CapReached:
    """The day's cap is used up."""


@dataclass(frozen=True)
class Seen:
    """The Idempotency-Key had a request already; None where its line is gone."""

    line: Line | None


class Store(Protocol):
    """What the gateway needs of it."""

    async def key(self, key_hash: str) -> Key | None:
        """An API key; None: unknown."""

    async def put_key(self, key_hash: str, key: Key) -> None:
        """Write a key, new or changed."""

    async def line(self, request_id: str) -> Line | None:
        """A ledger line."""

    async def pepper(self) -> bytes:
        """The secret behind addresses' and prompts' hashes, made once."""

    async def admit(self, line: Line, cap: int, once: str, day: str) -> Admitted | CapReached | Seen:
        """Count the request, take its Idempotency-Key's hash (empty: none), write its line: all or nothing."""

    async def write(self, line: Line) -> None:
        """Write a line as it now stands."""

    async def give_back(self, caller: str, day: str, *, request: bool, fallback: bool, once: str) -> None:
        """Nobody answered, or the cloud refused: counts and Idempotency-Key (empty: none) are the caller's again."""

    async def take_fallback(self, caller: str, most: int, day: str) -> bool:
        """One of the caller's fallbacks of the day; False: all are used."""

    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        """Add micro-dollars to the day's spend; False where `limit` would be passed."""


class DynamoStore:
    """The table, through boto3 in threads."""

    def __init__(self, table: str, client: Any = None) -> None:
        patience = BotoConfig(
            connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1}, max_pool_connections=32
        )
        self._table, self._client = table, client or boto3.client("dynamodb", config=patience)
        self._threads = ThreadPoolExecutor(32, "store")

    async def key(self, key_hash: str) -> Key | None:
        found = await self._get(f"key#{key_hash}")
        if not found:
            return None
        expires = datetime.fromtimestamp(int(found["expires_at"]), UTC) if "expires_at" in found else None
        return Key(
            found["id"], found["tier"], found["class"], found.get("name", ""), expires, bool(found.get("revoked"))
        )

    async def put_key(self, key_hash: str, key: Key) -> None:
        values: dict[str, Any] = {
            "id": key.id,
            "tier": key.tier,
            "class": key.kind,
            "name": key.name,
            "revoked": key.revoked,
        }
        if key.expires:
            values["expires_at"] = int(key.expires.timestamp())
        await self._call("put_item", Item=_item(f"key#{key_hash}", **values))

    async def line(self, request_id: str) -> Line | None:
        found = await self._get(f"request#{request_id}")
        return Line.read(found) if found else None

    async def failed_over(self, day: str, most: int) -> list[Line]:
        """What the cloud answered on a UTC day, the newest first."""
        found = await self._call(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": f"failed-over#{day}"}},
            ScanIndexForward=False,
            Limit=most,
        )
        lines = [await self.line(item["id"]["S"]) for item in found["Items"]]
        return [line for line in lines if line]

    async def pepper(self) -> bytes:
        fresh = random.SystemRandom().randbytes(32)
        try:
            await self._call(
                "put_item", Item=_item("pepper", value=fresh.hex()), ConditionExpression="attribute_not_exists(pk)"
            )
        except _ConditionFailed:
            found = await self._get("pepper")
            return bytes.fromhex(found["value"])
        return fresh

    async def admit(self, line: Line, cap: int, once: str, day: str) -> Admitted | CapReached | Seen:
        steps = [
            self._put(_item(f"request#{line.id}", **line.plain(), ttl=_kept())),
            self._count(f"use#{line.caller}#{day}", "requests", cap),
        ]
        if once:
            item = _item(f"once#{line.caller}#{once}", id=line.id, ttl=_kept())
            steps.append(self._put(item, "attribute_not_exists(pk)"))
        try:
            await self._call("transact_write_items", TransactItems=steps)
        except _ConditionFailed as error:
            if once and error.reasons[-1] == "ConditionalCheckFailed":
                return Seen(await self._line_of(f"once#{line.caller}#{once}"))
            return CapReached()
        return Admitted()

    async def _line_of(self, once_key: str) -> Line | None:
        taken = await self._get(once_key)
        return await self.line(taken["id"]) if taken else None

    async def write(self, line: Line) -> None:
        steps = [self._put(_item(f"request#{line.id}", **line.plain(), ttl=_kept()))]
        if line.answered_by == "fallback":
            day = datetime.fromtimestamp(line.began, UTC).strftime("%Y-%m-%d")
            order = f"{line.began}#{line.id}"
            steps.append(self._put(_item(f"failed-over#{day}", order, id=line.id, why=line.why, ttl=_kept())))
        await self._call("transact_write_items", TransactItems=steps)

    async def give_back(self, caller: str, day: str, *, request: bool, fallback: bool, once: str) -> None:
        pk, back = f"use#{caller}#{day}", {"requests": request, "fallbacks": fallback}
        for name in (name for name, wanted in back.items() if wanted):
            await self._call("update_item", **self._add(pk, name, -1)["Update"])
        if once:
            await self._call("delete_item", TableName=self._table, Key=_key(f"once#{caller}#{once}"))

    async def take_fallback(self, caller: str, most: int, day: str) -> bool:
        return await self._conditional(self._count(f"use#{caller}#{day}", "fallbacks", most))

    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        step = self._add(f"spend#{day}", "micro", micro)
        if limit is not None:
            step["Update"]["ConditionExpression"] = "attribute_not_exists(#n) OR #n <= :room"
            step["Update"]["ExpressionAttributeValues"][":room"] = {"N": str(limit - micro)}
            if micro > limit:
                return False
        return await self._conditional(step)

    async def _conditional(self, step: dict[str, Any]) -> bool:
        try:
            await self._call("update_item", **step["Update"])
        except _ConditionFailed:
            return False
        return True

    def _put(self, item: dict[str, Any], condition: str = "") -> dict[str, Any]:
        return {
            "Put": {"TableName": self._table, "Item": item, **({"ConditionExpression": condition} if condition else {})}
        }

    def _count(self, pk: str, name: str, most: int) -> dict[str, Any]:
        step = self._add(pk, name, 1)
        step["Update"]["ConditionExpression"] = "attribute_not_exists(#n) OR #n < :most"
        step["Update"]["ExpressionAttributeValues"][":most"] = {"N": str(most)}
        return step

    def _add(self, pk: str, name: str, by: int) -> dict[str, Any]:
        return {
            "Update": {
                "TableName": self._table,
                "Key": _key(pk),
                "UpdateExpression": "ADD #n :by SET #t = :ttl",
                "ExpressionAttributeNames": {"#n": name, "#t": "ttl"},
                "ExpressionAttributeValues": {":by": {"N": str(by)}, ":ttl": {"N": str(_kept())}},
            }
        }

    async def _get(self, pk: str) -> dict[str, Any]:
        found = await self._call("get_item", Key=_key(pk), TableName=self._table, ConsistentRead=True)
        read = TypeDeserializer().deserialize
        return {name: read(value) for name, value in found.get("Item", {}).items()}

    async def _call(self, name: str, **arguments: Any) -> Any:
        if name == "put_item":
            arguments["TableName"] = self._table
        return await within(self._threads, functools.partial(_retried, getattr(self._client, name), arguments))


async def within(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """What `call` returns, if it does so in `ANSWER_SECONDS`; raises StoreError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await loop.run_in_executor(threads, call)
    except TimeoutError:
        raise StoreError(f"no answer within {ANSWER_SECONDS * 1000:.0f} ms") from None
    except (BotoCoreError, ClientError) as error:
        raise StoreError(f"{type(error).__name__}: {error}") from None


class _ConditionFailed(Exception):  # noqa: N818  an answer, not an error
    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(", ".join(reasons))


def _retried(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """One call; a transaction that another one crosses is tried again."""
    until = time.monotonic() + CONFLICT_SECONDS
    while True:
        try:
            return call(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            reasons = tuple(reason.get("Code", "") for reason in error.response.get("CancellationReasons", ()))
            if code == "ConditionalCheckFailedException" or "ConditionalCheckFailed" in reasons:
                raise _ConditionFailed(reasons or (code,)) from None
            if "TransactionConflict" not in (*reasons, code.removesuffix("Exception")):
                raise
            if time.monotonic() > until:
                raise BusyError("others change the same item") from None
            time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))  # noqa: S311  no secret


def _key(pk: str, sk: str = "-") -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def _item(pk: str, sk: str = "-", **values: Any) -> dict[str, Any]:
    write = TypeSerializer().serialize
    return {**_key(pk, sk), **{name: write(value) for name, value in values.items()}}


def _kept() -> int:
    return int((datetime.now(UTC) + timedelta(days=KEPT_DAYS)).timestamp())


class MemoryStore:
    """The same in this process alone: for a try-out without a table, and while the table is silent."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.lines: dict[str, Line] = {}
        self._used: dict[tuple[str, str, str], int] = {}
        self._once: dict[tuple[str, str], str] = {}
        self._spent: dict[str, int] = {}
        self._pepper = random.SystemRandom().randbytes(32)

    async def key(self, key_hash: str) -> Key | None:
        return self.keys.get(key_hash)

    async def put_key(self, key_hash: str, key: Key) -> None:
        self.keys[key_hash] = key

    async def line(self, request_id: str) -> Line | None:
        return self.lines.get(request_id)

    async def pepper(self) -> bytes:
        return self._pepper

    async def admit(self, line: Line, cap: int, once: str, day: str) -> Admitted | CapReached | Seen:
        if once and (line.caller, once) in self._once:
            return Seen(self.lines.get(self._once[line.caller, once]))
        if not self._take(line.caller, "requests", day, cap):
            return CapReached()
        if once:
            self._once[line.caller, once] = line.id
        self.lines[line.id] = line
        return Admitted()

    async def write(self, line: Line) -> None:
        self.lines[line.id] = line

    async def give_back(self, caller: str, day: str, *, request: bool, fallback: bool, once: str) -> None:
        for name, wanted in {"requests": request, "fallbacks": fallback}.items():
            if (caller, name, day) in self._used:
                self._used[caller, name, day] -= wanted
        self._once.pop((caller, once), None)

    async def take_fallback(self, caller: str, most: int, day: str) -> bool:
        return self._take(caller, "fallbacks", day, most)

    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        spent = self._spent.get(day, 0)
        if limit is not None and spent + micro > limit:
            return False
        self._spent[day] = spent + micro
        return True

    def _take(self, caller: str, what: str, day: str, most: int) -> bool:
        used = self._used.get((caller, what, day), 0)
        self._used[caller, what, day] = used + (used < most)
        return used < most
