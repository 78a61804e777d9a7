"""The operator's side of the gateway's table: keys made, listed, revoked and counted; requests looked up.

Items and their meaning are the gateway's own code (`assets/gateway`), which lies where its image finds it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError
from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.cdk_cli import ROOT
from fleet.core.errors import UserError

sys.path.insert(0, str(ROOT / "assets"))  # before whatever is called gateway where the command runs
from gateway import callers, items
from gateway.callers import Key as Key
from gateway.ledger import KEPT_DAYS
from gateway.ledger import Line as Line

BATCH_MOST = 100  # items of one read
TIERS = ("free", "pro")
CLASSES = ("interactive", "background")


@dataclass(frozen=True)
class Use:
    """What one caller had on one UTC day."""

    caller: str
    day: str
    requests: int
    fallbacks: int


class GatewayTable:
    """One fleet's table; raises UserError where the settings have no gateway, MissingError where none is deployed."""

    def __init__(self, aws: Aws, settings: Settings) -> None:
        if settings.gateway is None:
            raise UserError("gateway: missing in the settings; allowed: a `gateway` section (docs/gateway.md)")
        self._aws, self._gateway = aws, settings.gateway
        self._table = names.gateway_table(settings.fleet_name)

    def add(self, *, name: str, tier: str, kind: callers.Class, expires: datetime) -> tuple[str, Key]:
        """A new key, as its caller will send it, and as it is kept."""
        if not vars(self._gateway.tiers)[tier].requests_per_day:
            raise UserError(f"key add: --tier is {tier}, which the settings turn off; allowed: one with requests a day")
        secret = callers.new_key()
        key_hash = callers.key_hash(secret)
        key = Key(key_hash[: callers.ID_DIGITS], tier, kind, name, expires)
        self._call("TransactWriteItems", TransactItems=items.put_key(self._table, key_hash, key))
        return secret, key

    def listed(self) -> list[Key]:
        """All of them, revoked and expired ones too, by name."""
        found = self._read(items.key(items.pk("key", key_hash)) for key_hash in self._hashes().values())
        return sorted((items.read_key(each) for each in found), key=lambda key: (key.name, key.id))

    def revoke(self, key_id: str) -> None:
        """No request of it is admitted any more, half a minute from now at the latest."""
        hashes = self._hashes()
        if key_id not in hashes:
            raise UserError(f"key revoke: there is no key {key_id}; allowed: an ID that `fleetctl key list` shows")
        self._call(
            "UpdateItem",
            TableName=self._table,
            Key=items.key(items.pk("key", hashes[key_id])),
            UpdateExpression="SET revoked = :yes",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeValues={":yes": {"BOOL": True}},
        )

    def usage(self, callers_of: Iterable[str], days: Iterable[str]) -> list[Use]:
        """What these callers had, day by day; days without a request are left out."""
        wanted = {items.pk("use", caller, day): (caller, day) for day in days for caller in callers_of}
        found = {each["pk"]: each for each in self._read(items.key(pk) for pk in wanted)}
        return [
            Use(*wanted[pk], int(found[pk].get("requests", 0)), int(found[pk].get("fallbacks", 0)))
            for pk in wanted
            if pk in found
        ]

    def dollars(self, day: str) -> float:
        """Reserved and settled for the fallback on a UTC day."""
        found = self._read([items.key(items.pk("spend", day))])
        return int(found[0]["micro"]) / 1e6 if found else 0.0

    def line(self, request_id: str) -> Line:
        """One request; UserError where the ledger has none."""
        found = self._read([items.key(items.pk("request", request_id))])
        if not found:
            raise UserError(
                f"requests: there is no request {request_id}; allowed: an x-request-id of the last {KEPT_DAYS} days"
            )
        return Line.read(found[0])

    def failed_over(self, most: int, now: datetime) -> list[Line]:
        """The last that the fallback answered, the newest first."""
        ids: dict[str, None] = {}  # a caller may have named two requests alike
        for day in days(now, KEPT_DAYS):
            found = islice(self._query(items.pk("failed-over", day), Limit=most - len(ids)), most - len(ids))
            ids |= dict.fromkeys(str(each["id"]) for each in found)
            if len(ids) >= most:
                break
        lines = {each["id"]: Line.read(each) for each in self._read(items.key(items.pk("request", i)) for i in ids)}
        return [lines[i] for i in ids if i in lines]

    def lines(self) -> Iterator[Line]:
        """Every request that the ledger still holds, in no order; reads the whole table."""
        requests = {":request": {"S": items.pk("request", "")}}
        filtered = {"FilterExpression": "begins_with(pk, :request)", "ExpressionAttributeValues": requests}
        return map(Line.read, self._items("Scan", **filtered))

    def _hashes(self) -> dict[str, str]:
        return {str(each["sk"]): str(each["hash"]) for each in self._query(items.KEYS)}

    def _query(self, pk: str, **more: Any) -> Iterator[dict[str, Any]]:
        """Items of one partition, the last first."""
        condition = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": pk}}}
        return self._items("Query", **condition, ScanIndexForward=False, **more)

    def _read(self, keys: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Items by their keys, in no order; what does not exist is left out."""
        left, found = list(keys), list[dict[str, Any]]()
        while left:
            now, left = left[:BATCH_MOST], left[BATCH_MOST:]
            page = self._call("BatchGetItem", RequestItems={self._table: {"Keys": now, "ConsistentRead": True}})
            found += [items.read(each) for each in page["Responses"][self._table]]
            left += page.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        return found

    def _items(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        with self._standing():
            yield from map(
                items.read, self._aws.items("dynamodb", operation, "Items", TableName=self._table, **arguments)
            )

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        with self._standing():
            return self._aws.call("dynamodb", operation, **arguments)

    @contextmanager
    def _standing(self) -> Iterator[None]:
        try:
            yield
        except MissingError:
            remedy = "`make deploy` makes it with its gateway; one deleted since: docs/runbook/gateway-down.md"
            raise MissingError(f"the gateway's table {self._table} does not exist", remedy) from None


def days(now: datetime, most: int) -> list[str]:
    """So many UTC days, today first."""
    return [(now - timedelta(days=back)).strftime("%Y-%m-%d") for back in range(most)]
