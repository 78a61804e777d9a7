"""The store in this process alone: for a try-out without a table, and while the table is silent."""

import random
import sys

from gateway.callers import Key
from gateway.ledger import Line
from gateway.store import DynamoStore, Outcome, Seen, Verdict


class MemoryStore:
    """What `store.DynamoStore` does, counted here."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.lines: dict[str, Line] = {}
        self._used: dict[tuple[str, str, str], int] = {}
        self._once: dict[tuple[str, str], str] = {}
        self._spent: dict[str, int] = {}
        self._pepper = random.SystemRandom().randbytes(32)

    async def key(self, key_hash: str) -> Key | None:
        return self.keys.get(key_hash)

    async def pepper(self) -> bytes:
        return self._pepper

    async def admit(self, line: Line, cap: int, once: str, day: str) -> Outcome:
        if once and (line.caller, once) in self._once:
            return Seen(self.lines.get(self._once[line.caller, once]))
        if line.id in self.lines:
            return Verdict.TAKEN
        if not self._take(line.caller, "requests", day, cap):
            return Verdict.CAP_REACHED
        if once:
            self._once[line.caller, once] = line.id
        self.lines[line.id] = line
        return Verdict.ADMITTED

    async def write(self, line: Line) -> None:
        self.lines[line.id] = line

    async def make_up(self, line: Line) -> None:
        self.lines[line.id] = line
        self._take(line.caller, "fallbacks", line.day, sys.maxsize)
        await self.spend(line.day, line.micro_dollars, None)

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


Store = DynamoStore | MemoryStore
