"""The verbs of a queue, against a bridge."""

from __future__ import annotations

import array
import asyncio
import base64
import ctypes
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from conftest import PATIENCE, Bridge

import pqbridge
from pqbridge import Client, Queue
from pqbridge.manage import pages


async def test_the_smallest_priority_comes_first(queue: Queue) -> None:
    pushed = await queue.push(b"report", priority=5)
    await queue.push(b"fire", priority=-(2**63))

    first, second, third = await queue.pop(), await queue.pop(), await queue.pop()

    assert first and first.value == b"fire" and first.priority == -(2**63)
    assert second and second.id == pushed.id and second.pushed_at
    assert third is None


async def test_values_that_are_not_bytes_go_through_the_codec(queue: Queue) -> None:
    await queue.push({"to": "eve"})

    item = await queue.pop()

    assert item and item.value == b'{"to":"eve"}'
    assert item.headers["Content-Type"] == "application/json"


async def test_a_lease_is_acknowledged_once(queue: Queue) -> None:
    await queue.push(b"job")

    job = await queue.lease(ack_wait=30)
    assert job and job.value == b"job" and job.deliveries == 1 and job.ack_wait == 30
    assert await queue.lease() is None
    await job.ack()

    with pytest.raises(pqbridge.LeaseLostError):
        await job.ack()
    assert await queue.len() == 0


async def test_what_is_given_back_comes_back(queue: Queue) -> None:
    pushed = await queue.push(b"job")

    for settle, deliveries in ((0, 1), (1, 1), (2, 2)):
        job = await queue.lease()
        assert job and job.deliveries == deliveries
        if settle == 0:
            await job.snooze(None)
        elif settle == 1:
            assert await job.extend("half")
            await job.nak(delay=0, reason="disk full")
        else:
            await job.term("no such user")

    result = await queue.result(pushed.id)
    assert (result.state, result.reason, result.error) == ("dead", "no such user", "disk full")


async def test_a_pop_waits_for_a_push(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.pop(expires=60))
    await asyncio.sleep(0)
    await queue.push(b"late")

    item = await waiting

    assert item and item.value == b"late"


async def test_a_lease_that_is_cancelled_gives_back(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.lease(expires=60))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await queue.push(b"job")

    job = await queue.lease(expires=30)

    assert job and job.deliveries == 1
    await job.ack()


async def test_options_of_a_push(queue: Queue, client: Client, name: str) -> None:
    at = datetime.now(timezone.utc) - timedelta(hours=1)
    first = await queue.push(b"1", msg_id="a", unique="k", group="g", weight=2, type="email", at=at)
    second = await queue.push(b"2", msg_id="a")
    delayed = await queue.push(b"3", delay="1h", ttl=timedelta(hours=2), keep=3600.5)

    item = await queue.get(msg_id="a")

    assert second.id == first.id and second.duplicate
    assert (item.group, item.type, item.state) == ("g", "email", "ready")
    assert (await queue.get(delayed.id)).state == "delayed"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"priority": 2**63}, "want -2"),
        ({"priority": 1.5}, "want an integer"),
        ({"priority": True}, "want an integer"),
        ({"headers": 5}, "want a dict, or pairs"),
        ({"headers": {"X": "a\r\nPq-Priority: 1"}}, "want a string in one line"),
        ({"headers": {"X": 5}}, "want a string in one line"),
        ({"headers": {"X": "\ud800"}}, "want a string in one line"),
        ({"headers": {"X Y": "a"}}, "want a name"),
        ({"headers": {"Pq-Priority": "5"}}, "use the option priority"),
        ({"headers": {"Pq-Own": "5"}}, "names that begin with Pq- are reserved"),
        ({"msg_id": 5}, "msg_id 5: want a string"),
        ({"msg_id": "a\nb"}, "want a string in one line"),
        ({"unique": ""}, "unique '': want a string of 1 to 512 bytes"),
        ({"group": ""}, "group '': want a string of 1 to 128 bytes"),
        ({"group": "ä" * 65}, "want a string of 1 to 128 bytes"),
        ({"type": b"x"}, "type b'x': want a string"),
        ({"weight": 0}, "weight 0: want a whole number from 1 to 100"),
        ({"weight": 2.0}, "weight 2.0: want"),
        ({"weight": True}, "weight True: want"),
        ({"ttl": 0.001}, "ttl: bad duration 0.001: want 1 s to ten years"),
        ({"ttl": ""}, "ttl: bad duration ''"),
        ({"keep": 0}, "keep: bad duration 0: want 1 s to ten years"),
        ({"join": "999ms"}, "join: bad duration '999ms': want 1 s"),
        ({"delay": "3651d"}, "delay: bad duration '3651d': want 0 s to ten years"),
        ({"delay": ""}, "delay: bad duration ''"),
        ({"joiner": ""}, "joiner '': want a PushAck"),
        ({"delay": "1 day"}, "bad duration"),
        ({"delay": float("nan")}, "0 or more and finite"),
        ({"keep": float("inf")}, "0 or more and finite"),
        ({"delay": timedelta(seconds=-1)}, "0 or more and finite"),
        ({"delay": 10**400}, "0 or more and finite"),
        ({"delay": True}, "want seconds"),
        ({"delay": [1]}, "bad duration"),
        ({"delay": 1, "at": datetime.now(timezone.utc)}, "want one of them"),
        ({"at": datetime.now()}, "with a time zone"),
        ({"at": 5}, "with a time zone"),
        ({"prio": 1}, "unknown option 'prio': want one of value, priority"),
    ],
)
async def test_bad_options_are_refused_before_they_are_sent(queue: Queue, options: Any, text: str) -> None:
    with pytest.raises(pqbridge.BadArgumentError, match=text):
        await queue.push(b"", **options)
    [outcome] = await queue.push_many([{"value": b""} | options])
    assert isinstance(outcome, pqbridge.BadArgumentError) and text in str(outcome)
    assert await queue.len() == 0


async def test_bad_arguments_are_refused_before_they_are_sent(queue: Queue, client: Client) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), [1, float("nan")], "\ud800", {1}, (n for n in range(3)), deep, [b"x"]):
        with pytest.raises(pqbridge.BadArgumentError, match="cannot be encoded"):
            await queue.push(value)
    for name in ("a.b", "", None, 5):
        with pytest.raises(pqbridge.BadArgumentError, match="bad queue name"):
            client.priority_queue(name)  # type: ignore[arg-type]
    for ack_wait in (0, "13h"):
        with pytest.raises(pqbridge.BadArgumentError, match="want 100 ms to 12 h"):
            await queue.lease(ack_wait=ack_wait)
    for setting in ({1}, float("nan")):
        with pytest.raises(pqbridge.BadArgumentError, match="cannot be encoded"):
            await queue.configure(max_deliver=setting)
    with pytest.raises(pqbridge.BadArgumentError, match="cannot be encoded"):
        await queue.result(b"id")  # type: ignore[arg-type]
    with pytest.raises(pqbridge.BadArgumentError, match="want a list of durations"):
        await queue.configure(backoff="1s")
    fifo = client.fifo_queue("mail")
    with pytest.raises(pqbridge.BadRequestError, match="only a push to a priority queue has one"):
        await fifo.push(b"", priority=1)
    [outcome] = await fifo.push_many([{"value": b"", "priority": 1}])
    assert isinstance(outcome, pqbridge.BadRequestError)
    with pytest.raises(pqbridge.BadRequestError, match="FIFO"):
        await fifo.pop(max=True)
    items: list[Any] = [{}, 5, b"x"]
    for item in items:
        [outcome] = await queue.push_many([item])
        assert isinstance(outcome, pqbridge.BadArgumentError)
    assert await queue.len() == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda q: q.pop_batch(True), "a batch of True: want a whole number from 1 to 1000"),
        (lambda q: q.pop_batch(1001), "a batch of 1001: want"),
        (lambda q: q.lease(holder=b"me"), "holder b'me': want a string"),
        (lambda q: q.pop(expires="3651d"), "want 0 s to ten years"),
        (lambda q: q.purge(""), "state '': want a string of 1 to 16 bytes"),
        (lambda q: q.redrive(max=0), "max 0: want a whole number from 1"),
        (lambda q: q.redrive(max=float("nan")), "max nan: want"),
        (lambda q: q.pause(""), "group '': want a string of 1 to 128 bytes"),
        (lambda q: q.resume(""), "group '': want a string of 1 to 128 bytes"),
        (lambda q: q.pop(max="min"), "max 'min': want True or False"),
        (lambda q: q.peek(max=1), "max 1: want"),
        (lambda q: q.rank("x", max="min"), "max 'min': want"),
        (lambda q: anext(q.items(max=0)), "max 0: want"),
        (lambda q: q.result("x", follow="no"), "follow 'no': want"),
        (lambda q: q.open_join(b"", open=0), "ttl: bad duration 0: want 1 s"),
    ],
)
async def test_arguments_that_cannot_work_are_refused(queue: Queue, call: Any, text: str) -> None:
    """Nothing is sent: an item that was there stays."""
    await queue.push(b"")

    with pytest.raises(pqbridge.BadArgumentError, match=text):
        await call(queue)

    assert await queue.len() == 1


async def test_a_client_and_a_worker_say_what_they_want(queue: Queue) -> None:
    nc, url, name = queue.link.nc, "nats://x", "jobs"
    for connection in (url, None, 5, pqbridge.connect):
        with pytest.raises(TypeError, match="want a connection, as `await"):
            Client(connection)  # type: ignore[arg-type]
    for not_queue in (name, None, Client(nc)):
        with pytest.raises(TypeError, match="want a queue, as Client"):
            pqbridge.Worker(not_queue, print)  # type: ignore[arg-type]
    for prefix in ("a b", ".a", 5):
        with pytest.raises(pqbridge.BadArgumentError, match=r"prefix .*: want letters"):
            Client(nc, fifo_prefix=prefix)  # type: ignore[arg-type]
    with pytest.raises(pqbridge.BadArgumentError, match="codec 'json': want an object with encode"):
        Client(nc, codec="json")  # type: ignore[arg-type]
    for options, text in (
        ({"concurrency": 0}, "concurrency 0: want a whole number from 1"),
        ({"concurrency": True}, "concurrency True: want"),
        ({"concurrency": 1.5}, "concurrency 1.5: want"),
        ({"ack_wait": float("nan")}, "ack_wait nan: want seconds"),
        ({"holder": "x" * 129}, "want a string of 0 to 128 bytes"),
        ({"job_timeout": 0}, "job_timeout 0: want more than 0"),
        ({"max": "min"}, "max 'min': want True or False"),
        ({"job_timeout": "soon"}, "job_timeout 'soon': want seconds"),
        ({"retry_delay": -1}, "retry_delay -1: want seconds"),
        ({"retry_delay": "3651d"}, "want 0 to ten years"),
        ({"middleware": print}, "want a list of async functions"),
        ({"middleware": [5]}, "want a list of async functions"),
    ):
        with pytest.raises(pqbridge.BadArgumentError, match=text):
            pqbridge.Worker(queue, print, **options)
    with pytest.raises(pqbridge.BadArgumentError, match="a hook 5: want a function"):
        pqbridge.Worker(queue, print).on("error")(5)  # type: ignore[type-var]


async def test_a_delivery_refuses_what_cannot_be_sent(queue: Queue) -> None:
    await queue.push(b"")
    delivery = await queue.lease()
    assert delivery

    with pytest.raises(pqbridge.BadArgumentError, match="next: 5: want a dict with a queue"):
        await delivery.ack(next=[5])  # type: ignore[list-item]
    for refused in (delivery.nak(reason=5), delivery.term(5)):  # type: ignore[arg-type]
        with pytest.raises(pqbridge.BadArgumentError, match="reason 5: want a string"):
            await refused

    await delivery.ack()


async def test_days_are_24_hours(queue: Queue) -> None:
    await queue.configure(ttl="1d12h", keep="0.5d")
    await queue.push(b"", delay="7d")

    settings = (await queue.info())["settings"]

    assert (settings["ttl"], settings["keep"]) == ("36h0m0s", "12h0m0s")
    assert (await queue.info())["delayed"] == 1


@pytest.mark.parametrize("wait", ["1w", float("nan"), float("inf"), -1])
async def test_a_bad_wait_is_refused_before_the_push(queue: Queue, wait: Any) -> None:
    for bad in (queue.call(b"x", wait=wait), queue.result("id", wait=wait)):
        with pytest.raises(pqbridge.BadArgumentError, match=r"^wait .*: want seconds"):
            await bad
    with pytest.raises(pqbridge.BadArgumentError, match=r"^expires .*: want seconds"):
        await queue.pop(expires=wait)
    with pytest.raises(pqbridge.BadArgumentError, match=r"^ttl .*: want seconds"):
        await queue.configure(ttl=wait)
    with pytest.raises(pqbridge.BadArgumentError, match=r"^timeout .*: want seconds"):
        Client(queue.link.nc, timeout=wait)
    assert await queue.len() == 0


async def test_an_option_that_is_none_is_as_if_absent(nc: Any, name: str) -> None:
    none: Any = dict.fromkeys(("prefix", "fifo_prefix", "timeout", "codec"))
    queue = Client(nc, **none).priority_queue(name)
    options: Any = dict.fromkeys(pqbridge.PushOptions.__annotations__)

    pushed = await queue.push(b"one", **options)
    options_of_many: Any = {"value": None, **options}
    assert isinstance((await queue.push_many([options_of_many]))[0], pqbridge.PushAck)

    item = await queue.get(pushed.id)
    assert item.headers["Nats-Msg-Id"] and not item.type
    with pytest.raises(pqbridge.NotDoneError) as raised:
        await queue.call(b"job", **options, wait="10ms")
    listed = [i async for i in queue.items(state=None, match=None, value_bytes=None)]
    assert [i.value for i in listed] == [b"one", b"null", b"job"] and listed[2].id == raised.value.id
    assert listed[2].raw["headers"]["Pq-Keep"] == ["1h0m0s"]
    job = await queue.lease(ack_wait=None, expires=None, holder=None)
    assert job and (await queue.result(job.id, wait=None)).state == "leased"
    await job.nak(delay=None, reason=None)
    for settle in ("term", "ack"):
        job = await queue.lease()
        assert job
        await getattr(job, settle)(None)
    assert await queue.pop(expires=None) and await queue.redrive(max=None) == 0


async def test_buffers_are_pushed_as_their_bytes(queue: Queue) -> None:
    floats = array.array("f", [1.5])
    values = [bytearray(b"a"), memoryview(b"bcd")[::2], floats, (ctypes.c_uint8 * 2)(1, 2)]
    for value in values:
        await queue.push(value)

    items = await queue.pop_batch(len(values))

    assert [i.value for i in items] == [b"a", b"bd", floats.tobytes(), b"\1\2"]
    assert not any("Content-Type" in i.headers for i in items)


async def test_a_call_on_a_message_id_in_a_header_keeps_it(queue: Queue) -> None:
    first = await queue.push(b"one", headers={"Nats-Msg-Id": "mine"})
    second = await queue.push(b"two", msg_id="mine")

    assert second.id == first.id and second.duplicate


async def test_headers_survive_in_frames(queue: Queue) -> None:
    odd = [("X", "a"), ("X", "b"), ("Y", b"\xff".decode("utf-8", "surrogateescape")), ("x", "ü")]
    await queue.push(b"job", headers=odd)

    job = await queue.lease()

    assert job and sorted(job.headers.pairs) == sorted(
        [*odd, *((n, v) for n, v in job.headers.pairs if n == "Nats-Msg-Id")]
    )
    assert job.headers.get_all("X") == ["a", "b"]


async def test_a_stored_status_is_an_item(queue: Queue) -> None:
    await queue.push(b"job", headers={"Status": "503"})

    item = await queue.pop()

    assert item and item.headers["Status"] == "503"


async def test_the_largest_message_is_the_servers(queue: Queue, client: Client) -> None:
    most = client.nc.max_payload
    with pytest.raises(pqbridge.TooLargeError):
        await queue.push(b"x" * most)

    room = len("NATS/1.0\r\nA: b\r\n\r\n")
    await queue.push(b"x" * (most - room), msg_id="", headers={"A": "b"})

    with pytest.raises(pqbridge.TooLargeError):
        await queue.push(b"x" * (most - room + 1), msg_id="", headers={"A": "b"})
    item = await queue.pop()
    assert item and len(item.value) == most - room


async def test_many_items_with_the_outcome_of_each(queue: Queue) -> None:
    outcomes = await queue.push_many([{"value": b"%d" % i, "priority": 1} for i in range(5000)])
    assert all(isinstance(o, pqbridge.PushAck) for o in outcomes)

    items = await queue.pop_batch(1000)
    assert [i.value for i in items] == [b"%d" % i for i in range(1000)]

    bad = await queue.push_many([{"value": b"a"}, {"value": b"b", "headers": {"Pq-No": "x"}}, {"value": b"c"}])
    assert isinstance(bad[0], pqbridge.PushAck)
    assert isinstance(bad[1], pqbridge.BadRequestError)
    assert isinstance(bad[2], pqbridge.NotSentError)


async def test_each_push_of_many_has_message_ids_of_its_own(queue: Queue) -> None:
    for _ in range(2):
        await queue.push_many([{"value": b"a"}, {"value": b"a"}])

    assert len({item.headers["Nats-Msg-Id"] for item in await queue.pop_batch(10)}) == 4


async def test_an_item_that_is_too_large_stops_a_push_of_many(queue: Queue, client: Client) -> None:
    large = {"value": b"x" * client.nc.max_payload}
    small = {"value": b"x"}

    outcomes = await queue.push_many([small, small, large, small, small])  # type: ignore[list-item]

    kinds = [type(o) for o in outcomes]
    ack, too_large, not_sent = pqbridge.PushAck, pqbridge.TooLargeError, pqbridge.NotSentError
    assert kinds == [ack, ack, too_large, not_sent, not_sent]
    assert await queue.len() == 2


async def test_results_and_calls(queue: Queue) -> None:
    async def work() -> None:
        job = await queue.lease(expires=60)
        assert job
        await job.ack({"sum": 3})
        bad = await queue.lease(expires=60)
        assert bad
        await bad.term("broken")

    working = asyncio.create_task(work())

    assert await queue.call([1, 2]) == {"sum": 3}
    with pytest.raises(pqbridge.JobFailedError, match="broken"):
        await queue.call([1, 2])
    await working
    with pytest.raises(pqbridge.NotDoneError):
        await queue.call([1, 2], wait="10ms")


async def test_a_result_has_the_cause_of_failures(queue: Queue) -> None:
    pushed = await queue.push(b"job")
    job = await queue.lease()
    assert job
    with pytest.raises(pqbridge.BadArgumentError, match="Content-Type"):
        await job.ack(b"result", content_type="text/plain\r\nPq-Ack: +TERM")

    await job.nak(reason="disk full", delay=0)
    assert (await queue.result(pushed.id)).cause == "disk full"  # it is tried again
    again = await queue.lease()
    assert again
    await again.term()

    result = await queue.result(pushed.id)
    assert (result.state, result.reason, result.cause) == ("dead", "terminated", "disk full")


async def test_looking_and_managing(queue: Queue, client: Client, name: str) -> None:
    one = await queue.push(b"one", headers={"X": "y"})
    two = await queue.push(b"two", priority=3)
    settings = await queue.configure(max_deliver=1, backoff=[timedelta(seconds=1), "2s"])
    assert settings == {"max_deliver": 1, "backoff": ["1s", "2s"]}

    listed = [i async for i in queue.items()]
    assert [(i.id, i.priority, i.state) for i in listed] == [(one.id, 0, "ready"), (two.id, 3, "ready")]
    assert listed[0].string() == "one" and listed[0].pushed_at and listed[0].headers["X"] == "y"
    assert [i.headers["X"] async for i in queue.items(match="one", state="ready")] == ["y"]
    assert await queue.move(two.id, -1)
    peeked = await queue.peek()
    assert peeked and peeked.id == two.id
    assert (await queue.info())["ready"] == 2

    await queue.pause()
    assert await queue.pop() is None
    await queue.resume()
    await queue.pause("g")
    await queue.resume("g")
    await queue.remove(one.id)
    with pytest.raises(pqbridge.NotFoundError):
        await queue.remove(one.id)

    job = await queue.lease()
    assert job and job.last_try
    await job.nak(reason="no")
    dead = client.priority_queue(f"{name}-dead")
    assert await dead.redrive_ids([job.id]) == [name]
    assert await dead.redrive() == 0

    assert await queue.schedule("cron", cron="0 3 * * *", value=None, paused=None)
    schedule = await queue.schedule("tick", every=timedelta(hours=1), value=b"tock")
    assert schedule["every"] == "1h0m0s"
    assert [s["id"] async for s in queue.schedules()] == ["cron", "tick"]
    await queue.unschedule("tick")


async def test_ranks_and_releases(queue: Queue) -> None:
    first, second = await queue.push(b"first"), await queue.push(b"second")
    assert await queue.rank(second.id) == pqbridge.Rank(1, False)
    assert (await queue.rank(second.id, max=True)).rank == 0
    job = await queue.lease()
    assert job and job.id == first.id

    await queue.release(first.id)

    with pytest.raises(pqbridge.LeaseLostError):
        await job.ack()
    with pytest.raises(pqbridge.LeaseLostError):
        await queue.release(first.id)
    again = await queue.lease()
    assert again and again.id == first.id and again.deliveries == 1


async def test_several_items_are_edited_by_their_ids(queue: Queue, client: Client, name: str) -> None:
    pushed = [await queue.push(b"%d" % n) for n in range(3)]
    ids = [p.id for p in pushed]
    missing = "FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"

    moved = await queue.move_ids(reversed(ids), 7)
    assert [type(m) for m in moved] == [str] * 3
    assert [i.id async for i in queue.items()] == ids[::-1]
    await queue.lease()
    released = await queue.release_ids([ids[2], ids[1]])
    assert released[0] is None and isinstance(released[1], pqbridge.LeaseLostError)
    removed = await queue.remove_ids([ids[0], missing])
    assert removed[0] is None and isinstance(removed[1], pqbridge.NotFoundError)
    assert await queue.purge("leased") == 0 and await queue.purge() == 2 and await queue.len() == 0
    lists: list[Any] = [[], "id"]
    for bad in lists:
        with pytest.raises(pqbridge.BadArgumentError, match="want a list"):
            await queue.remove_ids(bad)
    with pytest.raises(pqbridge.BadRequestError):
        await queue.purge("dead")


async def test_the_queues_of_each_kind_are_listed(client: Client, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{name}-{n}" for n in range(3)]
    for n in names:
        await client.priority_queue(n).push(b"")
        await client.fifo_queue(n).push(b"")

    assert [n async for n in client.priority_queues() if n in names] == names
    assert [n async for n in client.fifo_queues() if n in names] == names


async def test_a_list_of_several_pages(queue: Queue) -> None:
    async def ask(query: dict[str, Any]) -> Any:
        return await queue.read("items", query | {"limit": 2})

    await queue.push_many({"value": b"%d" % n} for n in range(5))
    found = [i["value"] async for i in pages(ask, "items", {})]

    assert found == [base64.b64encode(b"%d" % n).decode() for n in range(5)]


async def test_async_with_for_connections_and_clients(shared_bridge: Bridge, name: str) -> None:
    async with pqbridge.connect(shared_bridge.url) as nc, Client(nc) as client:
        queue = client.priority_queue(name)
        leasing = asyncio.create_task(queue.lease(expires=60))
        await asyncio.sleep(0.1)
        leasing.cancel()
        await asyncio.wait({leasing})
        await queue.push(b"job")
    assert nc.is_closed and not queue.link._tasks
    nc = await asyncio.wait_for(pqbridge.connect(shared_bridge.url, name=None), PATIENCE)
    await nc.close()
