"""The table's items and the calls that read and change them, as plain data: gateway and `fleetctl` share these shapes.

key#HASH                  an API key
keys         ID           its hash, so that keys can be listed and named
use#CALLER#DAY            requests and fallbacks of a UTC day
once#CALLER#HASH          an Idempotency-Key, and the request that had it
request#ID                a ledger line
failed-over#DAY  TIME#ID  what the cloud answered, in order
spend#DAY                 micro-dollars reserved and settled
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from gateway.callers import Key
from gateway.ledger import KEPT_DAYS, OPEN, Line

KEYS = "keys"
Step = dict[str, Any]  # of a transaction


def pk(kind: Literal["key", "use", "once", "request", "failed-over", "spend"], *of: str) -> str:
    """An item's partition key."""
    return "#".join((kind, *of))


def key(pk: str, sk: str = "-") -> dict[str, Any]:
    """An item's key, as the API takes it."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def item(pk: str, sk: str = "-", **values: Any) -> dict[str, Any]:
    """A whole item, as the API takes it."""
    write = TypeSerializer().serialize
    return {**key(pk, sk), **{name: write(value) for name, value in values.items()}}


def read(found: dict[str, Any]) -> dict[str, Any]:
    """The values of an item, as the API gives it."""
    value = TypeDeserializer().deserialize
    return {name: value(each) for name, each in found.items()}


def read_key(found: dict[str, Any]) -> Key:
    """The API key in an item's values."""
    expires = datetime.fromtimestamp(int(found["expires_at"]), UTC) if "expires_at" in found else None
    return Key(found["id"], found["tier"], found["class"], found.get("name", ""), expires, bool(found.get("revoked")))


def put(table: str, item: dict[str, Any], condition: str = "") -> Step:
    """Write an item."""
    return {"Put": {"TableName": table, "Item": item, **({"ConditionExpression": condition} if condition else {})}}


def put_key(table: str, key_hash: str, key: Key) -> list[Step]:
    """A new API key, and its place in the list."""
    values: dict[str, Any] = {"id": key.id, "tier": key.tier, "class": key.kind, "name": key.name}
    if key.expires:
        values["expires_at"] = int(key.expires.timestamp())
    new = "attribute_not_exists(pk)"
    return [
        put(table, item(pk("key", key_hash), revoked=key.revoked, **values), new),
        put(table, item(KEYS, key.id, hash=key_hash), new),
    ]


def put_line(table: str, line: Line) -> list[Step]:
    """A ledger line as it now stands, and its place among those that failed over."""
    steps = [put(table, item(pk("request", line.id), **line.plain(), ttl=kept()))]
    if line.answered_by == "fallback":
        steps.append(put(table, item(pk("failed-over", line.day), f"{line.began}#{line.id}", id=line.id, ttl=kept())))
    return steps


def begin_line(table: str, line: Line) -> Step:
    """A ledger line of a new request; its id must be new, too."""
    (step,) = put_line(table, line)
    step["Put"]["ConditionExpression"] = "attribute_not_exists(pk)"
    return step


def renew_line(table: str, line: Line) -> list[Step]:
    """The same of a request under way, unless it has ended: what is carried out late must not undo its last line."""
    steps, still = put_line(table, line), {f":{state}": {"S": str(state)} for state in OPEN}
    steps[0]["Put"] |= {
        "ConditionExpression": f"attribute_not_exists(#state) OR #state IN ({', '.join(sorted(still))})",
        "ExpressionAttributeNames": {"#state": "state"},
        "ExpressionAttributeValues": still,
    }
    return steps


def add(table: str, pk: str, name: str, by: int) -> Step:
    """Add to a number of an item, which is made where there is none."""
    return {
        "Update": {
            "TableName": table,
            "Key": key(pk),
            "UpdateExpression": "ADD #n :by SET #t = :ttl",
            "ExpressionAttributeNames": {"#n": name, "#t": "ttl"},
            "ExpressionAttributeValues": {":by": {"N": str(by)}, ":ttl": {"N": str(kept())}},
        }
    }


def add_up_to(table: str, pk: str, name: str, by: int, most: int) -> Step:
    """The same where the number stays at or below `most`; `by` is."""
    step = add(table, pk, name, by)
    step["Update"]["ConditionExpression"] = "attribute_not_exists(#n) OR #n <= :room"
    step["Update"]["ExpressionAttributeValues"][":room"] = {"N": str(most - by)}
    return step


def kept() -> int:
    """Until when an item of a request is kept, seconds since 1970."""
    return int((datetime.now(UTC) + timedelta(days=KEPT_DAYS)).timestamp())
