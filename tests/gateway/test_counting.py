"""Keys, caps, spend and ledger, on the table itself: moto's DynamoDB stands in for AWS's."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import moto
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from fleet.config.gateway_settings import CallerTier, Limits
from gateway import __main__ as starting
from gateway import callers, items, ledger, store
from gateway.callers import Key
from gateway.ledger import OPEN, Line, State
from gateway.memory import MemoryStore
from gateway.store import BusyError, DynamoStore, Seen, StoreError, Verdict
from tests.gateway.kept import line_of, put_key
from tests.gateway.running import FAST, MANY, closed_port, on_loop, serving, today
from tests.gateway.targets import Target, Turn, answers, breaks, fails

pytestmark = pytest.mark.slow  # loads moto

TABLE, ADMITTED = "llm-gateway", Verdict.ADMITTED
QUICK = replace(FAST, whole_seconds=0.8)
FREE = replace(MANY, free=CallerTier(requests_per_day=3, fallbacks_per_day=1, parallel=300))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoStore]:
    monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)  # moto is slower than what it stands for
    with moto.mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-2", aws_access_key_id="x", aws_secret_access_key="x")
        key = [{"AttributeName": name, "KeyType": kind} for name, kind in (("pk", "HASH"), ("sk", "RANGE"))]
        kinds = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")]
        client.create_table(TableName=TABLE, KeySchema=key, AttributeDefinitions=kinds, BillingMode="PAY_PER_REQUEST")
        client._make_api_call = _crossed(client._make_api_call)
        yield DynamoStore(TABLE, client)


def _crossed(call: Any) -> Any:
    """As DynamoDB, where moto is not: one change of an item at a time, a transaction that meets another is cancelled.

    And what was carried out under a token is not carried out under it again.
    """
    changing, tokens = threading.Lock(), set[str]()

    def one_at_a_time(operation: str, arguments: Any) -> Any:
        if not changing.acquire(blocking=operation != "TransactWriteItems"):
            error = {"Code": "TransactionCanceledException", "Message": "Transaction cancelled"}
            reasons = [{"Code": "TransactionConflict"}, {"Code": "None"}]
            raise ClientError({"Error": error, "CancellationReasons": reasons}, operation)
        try:
            if arguments.get("ClientRequestToken") in tokens:
                return {}
            found = call(operation, arguments)
            tokens.add(arguments.get("ClientRequestToken", ""))
            return found
        finally:
            changing.release()

    return one_at_a_time


class Admissions:
    """What comes of each admission after the table has carried it out: nothing is known of it until `goes_on`."""

    def __init__(self, table: DynamoStore) -> None:
        self.made, self.goes_on = 0, threading.Event()
        self.instead: list[Exception] = []  # of its answers, one after the other
        self._call = table._client._make_api_call
        table._client._make_api_call = self._made

    def _made(self, operation: str, arguments: Any) -> Any:
        found = self._call(operation, arguments)
        if any("Update" in step for step in arguments.get("TransactItems", ())):
            self.made += 1
            if self.instead:
                raise self.instead.pop(0)
            assert self.goes_on.wait(30)
        return found


def line(number: int = 0, caller: str = "key:a", **values: Any) -> Line:
    now = int(time.time())
    return Line(id=f"request-{number}", caller=caller, began=now, until=now + 60, **values)


async def with_key(keys: DynamoStore | MemoryStore, tier: str = "free", **values: Any) -> dict[str, str]:
    """The header of a key that the store knows."""
    key = callers.new_key()
    await put_key(keys, callers.key_hash(key), Key(callers.key_hash(key)[:12], tier, "interactive", **values))
    return {"Authorization": f"Bearer {key}"}


async def used(table: DynamoStore, caller: str) -> dict[str, int]:
    """A caller's counts of today."""
    found = await table._get(items.pk("use", caller, today()))
    return {name: int(found[name]) for name in ("requests", "fallbacks") if name in found}


@pytest.mark.parametrize("kind", ["table", "memory"])
def test_of_200_at_once_on_the_last_unit_of_a_cap_one_passes(kind: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue("table") if kind == "table" else MemoryStore()

    async def at_once() -> list[object]:
        for number in range(9):
            await found.admit(line(number), 10, "", "2026-12-01")
        asked = (found.admit(line(number), 10, "", "2026-12-01") for number in range(10, 210))
        return await asyncio.gather(*asked, return_exceptions=True)

    outcomes = [each for each in asyncio.run(at_once()) if not isinstance(each, BusyError)]
    assert outcomes.count(ADMITTED) == 1
    assert set(outcomes) <= {ADMITTED, Verdict.CAP_REACHED}


def test_idempotency_key_is_taken_with_the_count_or_not_at_all(table: DynamoStore) -> None:
    async def three() -> list[object]:
        first = await table.admit(line(1), 10, "once", "2026-12-01")
        again = await table.admit(line(2), 10, "once", "2026-12-01")
        other = await table.admit(line(3, caller="key:b"), 10, "once", "2026-12-01")
        return [first, again, other]

    first, again, other = asyncio.run(three())
    assert first is ADMITTED
    assert isinstance(again, Seen)
    assert again.line is not None
    assert again.line.id == "request-1"
    assert other is ADMITTED, "another caller's key is another key"


def test_days_spend_is_overshot_by_nothing_that_was_not_reserved(table: DynamoStore) -> None:
    async def day() -> list[bool]:
        return await asyncio.gather(*(table.spend("2026-12-01", 300, 1000) for _ in range(10)))

    assert asyncio.run(day()).count(True) == 3
    assert asyncio.run(table.spend("2026-12-01", -200, None)), "settled: less than was reserved"
    assert asyncio.run(table.spend("2026-12-01", 300, 1000))
    assert not asyncio.run(table.spend("2026-12-02", 2000, 1000))


def test_line_reads_back_as_it_was_and_as_lost_once_its_lease_is_over(table: DynamoStore) -> None:
    written = line(1, state=State.STREAMING, tokens=7, answered_by="fallback", stream=True, why="spot")
    asyncio.run(table.write(written))
    read = asyncio.run(line_of(table, "request-1"))
    assert read == written
    assert read is not None
    assert (read.seen(written.until), read.seen(written.until + 1)) == (State.STREAMING, State.LOST)
    assert replace(written, state=State.DONE).seen(written.until + 1) is State.DONE


def test_a_renewal_that_is_carried_out_after_the_last_line_does_not_undo_it(table: DynamoStore) -> None:
    async def late() -> list[State]:
        found = []
        await table.admit(line(1), 10, "", "2026-12-01")
        for state in (State.RESERVED, State.SENT, State.STREAMING, State.DONE, State.STREAMING):
            await table.write(line(1, state=state, answered_by="fallback"))
            read = await line_of(table, "request-1")
            assert read is not None
            found.append(read.state)
        return found

    assert asyncio.run(late()) == [State.RESERVED, State.SENT, State.STREAMING, State.DONE, State.DONE]


@on_loop
async def test_cap_is_the_days_and_a_refusal_says_when_and_that_retrying_is_no_use(table: DynamoStore) -> None:
    async with Target() as gpu, serving(gpu.url, store=table, tiers=FREE) as caller:
        key = await with_key(table)
        found = [await caller.chat(headers=key) for _ in range(4)]
        assert [answer.status for answer in found] == [200, 200, 200, 429]
        refused = found[-1]
        assert refused.body["error"]["code"] == "cap_reached"
        assert refused.headers["x-should-retry"] == "false"
        assert 0 < int(refused.headers["Retry-After"]) <= 86400
        assert len(gpu.asked) == 3, "refused before a target hears of it"


@on_loop
async def test_each_tier_has_an_allowance_of_fallback_which_a_refusal_gives_back(table: DynamoStore) -> None:
    async with Target(fails(503)) as gpu, Target(answers("cloud")) as cloud:
        async with serving(gpu.url, cloud.url, store=table, tiers=FREE, budgets=QUICK) as caller:
            key = await with_key(table)
            first, second = await caller.chat(headers=key), await caller.chat(headers=key)
            assert (first.headers["x-served-by"], second.status) == ("fallback", 503)
            assert "1 a day" in second.body["error"]["message"]
            cloud.script = [fails(429)]
            other = await with_key(table)
            await caller.chat(headers=other)
            await caller.settled()
            assert await table.take_fallback(f"key:{_id(other)}", 1, today()), "the cloud refused: it is theirs again"


def _id(header: dict[str, str]) -> str:
    return callers.key_hash(header["Authorization"].removeprefix("Bearer "))[:12]


@on_loop
async def test_idempotency_key_seen_before_gets_the_ledgers_state_never_a_second_run() -> None:
    async with Target() as gpu, serving(gpu.url) as caller:
        key = {"Idempotency-Key": "order 66"}
        first, again = await caller.chat(headers=key), await caller.chat(headers=key)
        assert (first.status, again.status, len(gpu.asked)) == (200, 409, 1)
        assert again.headers["x-should-retry"] == "false"
        assert first.headers["x-request-id"] in again.body["error"]["message"]
        assert '"state": "done"' in again.body["error"]["message"]


class Silent(MemoryStore):
    """A table that answers nothing."""

    silent = False

    async def admit(self, *arguments: Any) -> Any:
        if self.silent:
            raise StoreError("no answer within 300 ms")
        return await super().admit(*arguments)

    async def key(self, key_hash: str) -> Key | None:
        if self.silent:
            raise StoreError("no answer within 300 ms")
        return await super().key(key_hash)


@on_loop
async def test_a_task_that_starts_waits_for_a_table_that_is_slow_to_answer_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cold(MemoryStore):
        asked = 0

        async def pepper(self) -> bytes:
            self.asked += 1
            if self.asked < 3:
                raise StoreError("no answer within 300 ms")
            return b"pepper"

    monkeypatch.setattr(starting, "AGAIN_SECONDS", 0.0)
    assert await starting.pepper(Cold()) == b"pepper"
    monkeypatch.setattr(starting, "START_SECONDS", 0.0)
    with pytest.raises(StoreError):
        await starting.pepper(Cold())


@on_loop
async def test_while_the_table_is_silent_known_keys_go_on_up_to_a_bound_and_nobody_else_does() -> None:
    found = Silent()
    async with Target() as gpu, serving(gpu.url, store=found, tiers=FREE) as caller:
        key, unseen = await with_key(found), await with_key(found)
        assert (await caller.chat(headers=key)).status == 200
        found.silent = True
        statuses = [(await caller.chat(headers=key)).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429], "counted in memory, and the cap holds there"
        assert (await caller.chat()).body["error"]["code"] == "store_silent"
        assert (await caller.chat(headers=unseen)).status == 503
        await caller.settled()
        assert b"llm_gateway_store_failures_total 6" in caller.gateway.metrics.text()


@on_loop
async def test_known_keys_go_on_no_further_than_the_bound_until_the_table_answers() -> None:
    found = Silent()
    async with Target() as gpu, serving(gpu.url, store=found, limits=Limits(uncounted=2)) as caller:
        key = await with_key(found)
        for silent, statuses in ((False, [200]), (True, [200, 200, 503]), (False, [200]), (True, [200, 200, 503])):
            found.silent = silent
            assert [(await caller.chat(headers=key)).status for _ in statuses] == statuses


@on_loop
async def test_a_lease_renewed_while_its_request_ends_does_not_undo_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(MemoryStore):
        renewing, goes_on = asyncio.Event(), asyncio.Event()

        async def write(self, line: Line) -> None:
            if line.state in OPEN:
                self.renewing.set()
                await self.goes_on.wait()
            await super().write(line)

    monkeypatch.setattr(ledger, "RENEW_SECONDS", 0.05)
    found = Slow()
    async with Target(answers(every=0.05)) as gpu, serving(gpu.url, store=found) as caller:
        renewal = asyncio.create_task(caller.gateway.renew())
        await asyncio.gather(caller.chat(stream=True), caller.chat(stream=True), found.renewing.wait())
        await asyncio.sleep(0)
        found.goes_on.set()
        await caller.settled()
        await asyncio.sleep(0.05)  # the other one's turn
        renewal.cancel()
        now = time.time()
        assert all((line.state, line.until <= now) == (State.DONE, True) for line in found.lines.values())


@on_loop
async def test_keys_are_refused_that_are_unknown_revoked_expired_or_of_a_tier_that_is_off() -> None:
    found, past = MemoryStore(), datetime.now(UTC) - timedelta(days=1)
    off = replace(MANY, pro=CallerTier(requests_per_day=0, fallbacks_per_day=0, parallel=1))
    async with Target() as gpu, serving(gpu.url, store=found, tiers=off) as caller:
        for header, status in (
            ({"Authorization": f"Bearer {callers.new_key()}"}, 401),
            ({"Authorization": "Bearer sk-fleet-"}, 401),
            (await with_key(found, revoked=True), 401),
            (await with_key(found, expires=past), 401),
            (await with_key(found, tier="pro"), 403),
            (await with_key(found, tier="gold"), 403),
            (await with_key(found, expires=past + timedelta(days=2)), 200),
        ):
            assert (await caller.chat(headers=header)).status == status
        assert len(gpu.asked) == 1


@on_loop
async def test_anonymous_callers_are_counted_by_address_or_turned_off() -> None:
    one = replace(MANY, anonymous=CallerTier(requests_per_day=1, fallbacks_per_day=0, parallel=5))
    async with Target() as gpu, serving(gpu.url, tiers=one, trusted_hops=1) as caller:
        for address, status in (
            ("203.0.113.7", 200),
            ("203.0.113.7", 429),
            ("9.9.9.9, 203.0.113.7", 429),  # what the caller wrote himself stands left of what our balancer saw
            ("203.0.113.8", 200),
            ("2001:db8:1:2::1", 200),
            ("2001:db8:1:2:ffff::9", 429),  # the same /64
            ("2001:db8:1:3::1", 200),
            ("::ffff:203.0.113.7", 429),
        ):
            assert (await caller.chat(headers={"X-Forwarded-For": address})).status == status, address
    off = replace(MANY, anonymous=CallerTier(requests_per_day=0, fallbacks_per_day=0, parallel=5))
    async with Target() as gpu, serving(gpu.url, tiers=off) as caller:
        assert (await caller.chat()).status == 401


@on_loop
async def test_class_may_be_lowered_never_raised_and_the_lane_is_told() -> None:
    found = MemoryStore()
    async with Target() as gpu, serving(gpu.url, store=found) as caller:
        low = await with_key(found)
        found.keys = {name: replace(key, kind="background") for name, key in found.keys.items()}
        high = await with_key(found)
        for header, asked, told in (
            (high, "", "interactive"), (high, "background", "background"),
            (low, "interactive", "background"), (low, "", "background"),
        ):  # fmt: skip
            await caller.chat(headers={**header, "x-class": asked})
            assert gpu.asked[-1].headers["x-lane-class"] == told
        assert float(gpu.asked[-1].headers["x-lane-deadline-seconds"]) > 0
        assert gpu.asked[-1].headers["x-lane-caller"] == f"key:{_id(low)}"
        assert "authorization" not in gpu.asked[-1].headers, "a caller's key goes to no target"


class Slow(MemoryStore):
    """A table that reserves, and whose answer is on its way until `goes_on`."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.reserved, self.goes_on, self._fails = asyncio.Event(), asyncio.Event(), fails

    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        if limit is None:
            return await super().spend(day, micro, limit)
        if self._fails:
            raise StoreError("no answer within 300 ms")
        taken = await super().spend(day, micro, limit)
        self.reserved.set()
        await self.goes_on.wait()
        return taken

    def fallbacks(self) -> int:
        return sum(used for (_, what, _), used in self._used.items() if what == "fallbacks")


@on_loop
async def test_request_is_counted_and_given_back_on_the_day_that_it_came_also_past_midnight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Days(MemoryStore):
        async def admit(self, *arguments: Any) -> Any:
            found = await super().admit(*arguments)
            monkeypatch.setattr(time, "time", lambda: before_midnight + 1)  # it comes while the store answers
            return found

    before_midnight = datetime(2026, 12, 1, 23, 59, 59, 900_000, UTC).timestamp()
    monkeypatch.setattr(time, "time", lambda: before_midnight)
    found, one = Days(), replace(MANY, anonymous=CallerTier(requests_per_day=1, fallbacks_per_day=9, parallel=9))
    async with Target(fails(503)) as cloud:
        async with serving(closed_port(), cloud.url, store=found, budgets=QUICK, tiers=one) as caller:
            assert (await caller.chat()).status == 503
            await caller.settled()
            counted = {"requests": "2026-12-01", "fallbacks": "2026-12-01"}
            assert {what: day for _, what, day in found._used} == counted
            assert (set(found._used.values()), set(found._spent)) == ({0}, {"2026-12-01"})
    async with Target() as gpu, serving(gpu.url, store=Days(), tiers=one) as caller:
        monkeypatch.setattr(time, "time", lambda: before_midnight)
        assert (await caller.chat()).status == 200
        monkeypatch.setattr(time, "time", lambda: before_midnight)
        assert (await caller.chat()).headers["Retry-After"] == "1", "a second of the day is left"


@on_loop
async def test_caller_who_leaves_while_the_cloud_is_reserved_for_him_leaves_nothing_reserved() -> None:
    found = Slow()
    async with Target() as cloud, serving(closed_port(), cloud.url, store=found) as caller:
        asking = asyncio.create_task(caller.chat())
        await found.reserved.wait()
        asking.cancel()
        while caller.gateway._open:
            await asyncio.sleep(0.01)
        found.goes_on.set()
        await caller.settled()
        assert (found.fallbacks(), found._spent[today()], cloud.asked) == (0, 0, [])


@on_loop
async def test_allowance_is_given_back_where_what_it_costs_cannot_be_counted() -> None:
    found = Slow(fails=True)
    async with Target() as cloud, serving(closed_port(), cloud.url, store=found, budgets=QUICK) as caller:
        assert (await caller.chat()).status == 503
        await caller.settled()
        assert (found.fallbacks(), cloud.asked) == (0, [])


@on_loop
async def test_cloud_that_refused_first_and_continues_later_uses_one_allowance() -> None:
    found, one = MemoryStore(), replace(MANY, anonymous=CallerTier(requests_per_day=9, fallbacks_per_day=1, parallel=9))
    own = {"continues": True, "dollars_per_million_output": 2.0, "dollars_per_million_input": 1.0}
    async with Target(fails(503), breaks("a", how="cut")) as gpu, Target(fails(503), answers(" b")) as cloud:
        async with serving(gpu.url, cloud.url, store=found, tiers=one, cloud_settings=own) as caller:
            answer = await caller.chat(stream=True, temperature=0)
            assert (answer.text, answer.done) == ("a b", True)
            await caller.settled()
            assert sum(used for (_, what, _), used in found._used.items() if what == "fallbacks") == 1
            assert found._spent[today()] == 7 * 1 + 6 * 2, "what the cloud counted"


@on_loop
async def test_ledger_line_whose_writing_is_not_answered_keeps_no_count_from_being_given_back() -> None:
    class Mute(MemoryStore):
        """A table that takes every line and says so of none."""

        async def write(self, line: Line) -> None:
            await super().write(line)
            raise StoreError("no answer within 300 ms")

    found = Mute()
    async with serving(closed_port(), "", store=found, budgets=QUICK) as caller:
        assert (await caller.chat()).status == 503
        await caller.settled()
        assert sum(found._used.values()) == 0


@on_loop
async def test_a_crowd_that_spills_at_once_asks_the_cloud_as_many_at_once_as_it_may() -> None:
    at_once = most = 0

    async def counted(turn: Turn) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await turn.pause(0.1)
        at_once -= 1
        await answers()(turn)

    found = Slow()
    async with Target(counted) as cloud:
        async with serving(closed_port(), cloud.url, store=found, cloud_settings={"concurrency": 2}) as caller:
            crowd = [asyncio.create_task(caller.chat()) for _ in range(6)]
            await found.reserved.wait()
            await asyncio.sleep(0.1)  # the others come while the first is reserved for
            found.goes_on.set()
            assert [(await each).status for each in crowd] == [200] * 6
    assert most == 2


# --- an admission that the store has carried out, and says so late --------------------------------------------------

ONCE = {"Idempotency-Key": "order 66"}
HERE = callers.address_hash("127.0.0.1", b"pepper")


@on_loop
async def test_admission_that_is_known_too_late_is_given_back_with_its_idempotency_key(
    table: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Admissions(table)
    async with Target() as gpu, serving(gpu.url, store=table) as caller:
        monkeypatch.setattr(store, "ANSWER_SECONDS", 0.2)
        began = time.monotonic()
        refused = await caller.chat(headers=ONCE)
        assert (refused.status, refused.body["error"]["code"]) == (503, "store_silent")
        assert time.monotonic() - began < 3, "nobody waits for the late answer"
        monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)
        assert await used(table, f"address:{HERE}") == {"requests": 1}
        late.goes_on.set()
        await caller.settled()
        assert await used(table, f"address:{HERE}") == {"requests": 0}
        told = await line_of(table, refused.headers["x-request-id"])
        assert told is not None
        assert (told.state, told.why, gpu.asked) == (State.FAILED, "the store was late", [])
        assert (await caller.chat(headers=ONCE)).status == 200, "its key is the caller's again"
        await caller.settled()
        assert await used(table, f"address:{HERE}") == {"requests": 1}


@on_loop
async def test_late_admission_of_a_known_key_counts_once(table: DynamoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await with_key(table)
    who = f"key:{_id(key)}"
    for answered in (True, False):
        late = Admissions(table)
        late.goes_on.set()
        async with Target() as gpu:
            async with serving(gpu.url if answered else closed_port(), store=table, budgets=QUICK) as caller:
                await caller.chat(headers=key)  # it is known from here on
                await caller.settled()
                before = (await used(table, who))["requests"]
                late.goes_on.clear()
                monkeypatch.setattr(store, "ANSWER_SECONDS", 0.2)
                answer = await caller.chat(headers={**key, "Idempotency-Key": f"answered {answered}"})
                monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)
                assert answer.status == (200 if answered else 503)
                late.goes_on.set()
                await caller.settled()
                assert (await used(table, who))["requests"] == before + answered, "once, where it is kept"
                assert sum(caller.gateway._meanwhile._used.values()) == 0
                told = await line_of(table, answer.headers["x-request-id"])
                assert told is not None
                assert told.state is (State.DONE if answered else State.FAILED)
                again = await caller.chat(headers={**key, "Idempotency-Key": f"answered {answered}"})
                assert again.status == (409 if answered else 503), "never a second run; nobody's is not the first"
                assert ("idempotency_key_seen" in str(again.body)) is answered


def spent(table: DynamoStore) -> int:
    """The day's micro-dollars."""
    found = table._client.get_item(TableName=TABLE, Key=items.key(items.pk("spend", today())))
    return int(items.read(found.get("Item", {})).get("micro", 0))


@on_loop
async def test_what_the_cloud_cost_while_the_table_was_silent_is_the_tables_once_it_answers(table: DynamoStore) -> None:
    key, call, raised = await with_key(table), table._client._make_api_call, list[Exception]()

    def silent(operation: str, arguments: Any) -> Any:
        raise EndpointConnectionError(endpoint_url=TABLE)

    def lost(operation: str, arguments: Any) -> Any:
        call(operation, arguments)
        raised.append(ReadTimeoutError(endpoint_url=TABLE))
        raise raised[-1]

    async with Target(answers()) as cloud, serving(closed_port(), cloud.url, store=table) as caller:
        assert (await caller.chat(headers=key)).status == 200
        await caller.settled()
        each = spent(table)
        table._client._make_api_call = silent
        ids = [(await caller.chat(headers=key, stream=True)).headers["x-request-id"] for _ in range(2)]
        await caller.settled()
        await caller.gateway.make_up()
        table._client._make_api_call = lost
        await caller.gateway.make_up()
        assert len(raised) == 2, "nothing is known of the first, though it was carried out"
        table._client._make_api_call = call
        await caller.gateway.make_up()
        await caller.gateway.make_up()
        assert await used(table, f"key:{_id(key)}") == {"requests": 1, "fallbacks": 3}
        assert spent(table) == 3 * each > 0
        told = [await line_of(table, each) for each in ids]
        assert [each and each.state for each in told] == [State.DONE] * 2


@on_loop
async def test_what_the_cloud_cost_under_a_late_admission_is_counted_once(
    table: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, late = await with_key(table), Admissions(table)
    late.goes_on.set()
    async with Target(answers()) as cloud, serving(closed_port(), cloud.url, store=table) as caller:
        await caller.chat(headers=key)
        await caller.settled()
        each = spent(table)
        late.goes_on.clear()
        monkeypatch.setattr(store, "ANSWER_SECONDS", 0.2)
        answer = await caller.chat(headers=key)
        monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)
        late.goes_on.set()
        await caller.settled()
        await caller.gateway.make_up()
        assert await used(table, f"key:{_id(key)}") == {"requests": 2, "fallbacks": 2}
        assert spent(table) == 2 * each > 0
        told = await line_of(table, answer.headers["x-request-id"])
        assert told is not None
        assert (told.state, told.answered_by) == (State.DONE, "fallback")


@on_loop
async def test_caller_who_leaves_while_he_is_admitted_has_left_and_is_not_lost(table: DynamoStore) -> None:
    late = Admissions(table)
    async with Target() as gpu, serving(gpu.url, store=table) as caller:
        asking = asyncio.create_task(caller.chat(headers={"x-request-id": "who-leaves"}))
        while not late.made:
            await asyncio.sleep(0.01)
        asking.cancel()
        while caller.gateway._parallel:
            await asyncio.sleep(0.01)
        late.goes_on.set()
        await caller.settled()
        told = await line_of(table, "who-leaves")
        assert told is not None
        assert (told.state, await used(table, f"address:{HERE}"), gpu.asked) == (
            State.CANCELLED, {"requests": 1}, [],
        )  # fmt: skip


def _error(status: int, code: str) -> ClientError:
    told: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "TransactWriteItems")


LOST = ReadTimeoutError(endpoint_url="https://dynamodb")
OWN = _error(500, "InternalServerError")
STILL = _error(400, "TransactionInProgressException")


@pytest.mark.parametrize(
    ("instead", "outcome"),
    [([LOST], ADMITTED), ([OWN], ADMITTED), ([LOST, STILL, STILL], ADMITTED), ([LOST, OWN], StoreError)],
)
def test_admission_of_which_nothing_is_known_is_asked_for_again_under_its_token(
    table: DynamoStore, instead: list[Exception], outcome: object
) -> None:
    admissions = Admissions(table)
    admissions.instead = list(instead)
    admissions.goes_on.set()

    async def admitted() -> tuple[object, dict[str, int]]:
        try:
            found: object = await table.admit(line(1), 10, "once", today())
        except StoreError as error:
            found = type(error)
        return found, await used(table, "key:a")

    assert asyncio.run(admitted()) == (outcome, {"requests": 1})


@pytest.mark.parametrize("kind", ["table", "memory"])
def test_two_requests_under_one_id_have_a_line_each(kind: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue("table") if kind == "table" else MemoryStore()

    @on_loop
    async def told() -> None:
        async with Target(answers("a")) as gpu, serving(gpu.url, store=found) as caller:
            both = [await caller.chat(headers={"x-request-id": "told-twice"}) for _ in range(2)]
            await caller.settled()
            ids = [answer.headers["x-request-id"] for answer in both]
            assert (ids[0], len(set(ids))) == ("told-twice", 2)
            for answer, id in zip(both, ids, strict=True):
                line = await line_of(found, id)
                assert (answer.status, id in answer.body["id"], line.state) == (200, True, State.DONE)

    told()


@on_loop
async def test_admission_that_was_refused_late_gives_nothing_back(
    table: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(MANY, anonymous=CallerTier(requests_per_day=1, fallbacks_per_day=0, parallel=9))
    async with Target() as gpu, serving(gpu.url, store=table, tiers=one) as caller:
        assert (await caller.chat(headers=ONCE)).status == 200
        await caller.settled()
        call, goes_on = table._client._make_api_call, threading.Event()

        def late(operation: str, arguments: Any) -> Any:
            try:
                return call(operation, arguments)
            finally:
                assert goes_on.wait(30)

        table._client._make_api_call = late
        monkeypatch.setattr(store, "ANSWER_SECONDS", 0.2)
        for headers in ({}, ONCE):
            assert (await caller.chat(headers=headers)).status == 503
        monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)
        goes_on.set()
        await caller.settled()
        assert await used(table, f"address:{HERE}") == {"requests": 1}
        assert (await caller.chat(headers=ONCE)).status == 409
