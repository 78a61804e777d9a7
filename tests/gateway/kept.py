"""What a store keeps, as its other side has it: the operator makes keys and reads lines, a task does neither."""

from gateway import items
from gateway.callers import Key
from gateway.ledger import Line
from gateway.memory import MemoryStore, Store


async def put_key(store: Store, key_hash: str, key: Key) -> None:
    """A new key."""
    if isinstance(store, MemoryStore):
        store.keys[key_hash] = key
    else:
        await store._transact(items.put_key(store._table, key_hash, key))


async def line_of(store: Store, request_id: str) -> Line | None:
    """A ledger line; None: there is none."""
    if isinstance(store, MemoryStore):
        return store.lines.get(request_id)
    found = await store._get(items.pk("request", request_id))
    return Line.read(found) if found else None
