"""The transport for Celery and kombu, against a bridge."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import Any

import pytest
from conftest import PATIENCE, Bridge

import pqbridge
from pqbridge import Queue

pytest.importorskip("celery", reason="Celery is not installed")

import celery
import kombu
from celery.contrib.testing.worker import start_worker
from celery.events import EventReceiver
from kombu.common import Broadcast

from pqbridge.celery import _MAILBOXES, LostError, ResultLostError, Transport, options_of

Work = Callable[[], Any]


@pytest.fixture
def url(shared_bridge: Bridge, name: str) -> str:
    """The URL of a broker whose transient messages no other test gets."""
    return shared_bridge.url.replace("nats://", "pqbridge://") + f"?core_prefix={name}"


@pytest.fixture
async def connection(url: str) -> AsyncIterator[kombu.Connection]:
    connection = kombu.Connection(url)
    yield connection
    await asyncio.to_thread(connection.release)


async def run(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run what blocks in a thread."""
    return await asyncio.to_thread(work, *arguments, **options)


def app_at(url: str, name: str, **conf: Any) -> celery.Celery:
    app = celery.Celery(name, broker=url, set_as_current=False)
    app.conf.update(task_default_queue=name, worker_prefetch_multiplier=1, task_acks_late=True, **conf)
    return app


def take(connection: kombu.Connection, queue: Any, n: int, **options: Any) -> list[Any]:
    """Return n messages that a consumer of a queue gets."""
    got: list[Any] = []
    with connection.Consumer(
        queue, on_message=got.append, accept=["json", "text/plain", "application/data"], **options
    ):
        while len(got) < n:
            connection.drain_events(timeout=PATIENCE)
    return got


# What becomes of a message


async def test_an_item_has_the_task_in_its_headers(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name, broker_transport_options={"group_header": "tenant"})
    eta = datetime.now(timezone.utc) + timedelta(hours=24)
    options: dict[str, Any] = {"task_id": "t-1", "priority": 7, "headers": {"tenant": "acme"}}

    await run(app.send_task, "mail", (1,), {"to": "eve"}, eta=eta, **options)

    [item] = [item async for item in queue.items()]
    assert (item.type, item.headers["task_id"], item.group, item.priority) == ("mail", "t-1", "acme", -7)
    assert item.raw["state"] == "delayed" and item.raw["due"] == eta.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert item.json()[:2] == [[1], {"to": "eve"}] and item.headers["Content-Type"] == "application/json"
    assert item.headers["Kombu"].isascii()
    await run(app.close)


@pytest.mark.parametrize(("tenant", "group"), [(0, "0"), (False, "False"), ("", ""), (None, "")])
async def test_a_group_is_any_value_but_none_and_an_empty_text(queue: Queue, url: str, tenant: Any, group: str) -> None:
    app = app_at(url, queue.name, broker_transport_options={"group_header": "tenant"})

    await run(app.send_task, "mail", headers={"tenant": tenant})

    assert [item.group async for item in queue.items()] == [group]
    await run(app.close)


PAST = datetime(2020, 1, 1, tzinfo=timezone.utc)
NOW: list[dict[str, Any]] = [{"countdown": 0}, {"countdown": -5}, {"eta": PAST}, {"expires": 0}, {"expiration": 0}]


@pytest.mark.parametrize("options", [{"priority": 0}, {"priority": None}, *NOW])
async def test_a_task_for_now_is_ready_at_once(queue: Queue, url: str, options: dict[str, Any]) -> None:
    app = app_at(url, queue.name)

    await run(app.send_task, "mail", **options)

    info = await queue.info()
    assert (info["ready"], info["delayed"]) == (1, 0)
    assert [item.priority async for item in queue.items()] == [0]
    await run(app.close)


async def test_a_task_that_is_sent_again_is_another_item(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name)
    for _ in range(2):
        await run(app.send_task, "mail", task_id="same")
    assert await queue.len() == 2
    await run(app.close)


async def test_a_publish_that_kombu_repeats_happens_once(queue: Queue, connection: kombu.Connection) -> None:
    push, attempts = Queue.push, []

    async def lost(self: Queue, value: Any, **options: Any) -> Any:
        ack = await push(self, value, **options)
        attempts.append(ack)
        if len(attempts) == 1:
            raise pqbridge.UnknownOutcomeError("no reply")
        return ack

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "push", lost)
        producer = connection.Producer()
        await run(producer.publish, {"a": 1}, routing_key=queue.name, retry=True)

    assert len(attempts) == 2
    assert await queue.len() == 1


async def test_the_order_of_redis_is_an_option(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name, broker_transport_options={"smallest_first": True})
    for priority in (9, 0, 5):
        await run(app.send_task, str(priority), priority=priority)
    assert [item.type async for item in queue.items()] == ["0", "5", "9"]
    await run(app.close)


@pytest.mark.parametrize("body", [{"a": "ä"}, "text", b"\x00\xff", None, 5, 0, False, [], {}, "x" * 200_000])
async def test_a_message_comes_as_it_was_sent(queue: Queue, connection: kombu.Connection, body: Any) -> None:
    for mode in (1, 2):
        target = kombu.Queue(queue.name if mode == 2 else f"{queue.name}-t", durable=mode == 2, auto_delete=mode == 1)

        def work(target: kombu.Queue = target, mode: int = mode) -> Any:
            with connection.Consumer(target):
                pass
            producer = connection.Producer(serializer=None)
            options = {"delivery_mode": mode, "headers": {"a": [1, None]}, "correlation_id": "c", "reply_to": "r"}
            producer.publish(body, routing_key=target.name, compression="zlib", **options)
            return take(connection, target, 1)[0]

        message = await run(work)
        assert message.payload == body
        assert (message.headers["a"], message.properties["correlation_id"]) == ([1, None], "c")
        assert message.properties["reply_to"] == "r" and message.delivery_info["routing_key"] == target.name
        message.ack()


async def test_a_task_that_another_program_pushed(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name)
    done: list[Any] = []

    @app.task(name="add", bind=True, shared=False)
    def add(self: Any, a: int, b: int = 0) -> None:
        done.append((a, b, self.request.id))

    ack = await queue.push([[1], {"b": 2}, {}], type="add")
    await queue.push([[3], {}, {}], type="add", headers={"task_id": "mine"})

    await working(app, lambda: len(done) == 2)
    assert sorted(done) == [(1, 2, ack.id), (3, 0, "mine")]


async def working(app: celery.Celery, is_so: Callable[[], bool]) -> None:
    """Run a worker until something is so."""

    def work() -> None:
        over, end = threading.Event(), PATIENCE
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
            while not is_so() and end > 0:
                over.wait(0.02)
                end -= 0.02
        assert is_so()

    await run(work)
    await run(app.close)


async def test_what_cannot_be_read_is_a_dead_letter(queue: Queue, connection: kombu.Connection) -> None:
    await queue.push(b"anything")
    await queue.push(b"[]", headers={"Kombu": "no JSON"})

    def work() -> None:
        with pytest.raises(socket.timeout), connection.Consumer(kombu.Queue(queue.name)):
            while True:
                connection.drain_events(timeout=2)

    await run(work)
    dead = pqbridge.Client(queue.link.nc).priority_queue(f"{queue.name}-dead")
    reasons = [item.reason async for item in dead.items()]
    assert [r.startswith("not a message of kombu, nor of a task: ") for r in reasons] == [True, True]


# Acknowledging


async def test_messages_are_settled_or_come_back_uncounted(queue: Queue, connection: kombu.Connection) -> None:
    for n in range(6):
        await run(connection.Producer().publish, {"n": n}, routing_key=queue.name)

    def work() -> None:
        acked, rejected, requeued, *_ = take(connection, kombu.Queue(queue.name), 6)
        acked.ack()
        rejected.reject()
        requeued.requeue()
        [again] = take(connection, kombu.Queue(queue.name), 1)
        assert again.payload == {"n": 2} and again.delivery_info["redelivered"]
        again.ack()
        connection.release()

    await run(work)
    while (await queue.info())["leased"]:
        await asyncio.sleep(0.02)
    assert [(i.json(), i.deliveries) async for i in queue.items()] == [({"n": n}, 0) for n in (3, 4, 5)]
    dead = pqbridge.Client(queue.link.nc).priority_queue(f"{queue.name}-dead")
    assert [(i.json(), i.reason) async for i in dead.items()] == [({"n": 1}, "rejected")]


async def test_acknowledging_several_messages_at_once(queue: Queue, connection: kombu.Connection) -> None:
    for n in range(4):
        await run(connection.Producer().publish, n, routing_key=queue.name)

    def work() -> None:
        messages = take(connection, kombu.Queue(queue.name), 4)
        messages[2].ack(multiple=True)
        connection.release()

    await run(work)
    while (await queue.info())["leased"]:
        await asyncio.sleep(0.02)
    assert [i.json() async for i in queue.items()] == [3]


async def test_the_prefetch_count_limits_what_is_leased(queue: Queue, connection: kombu.Connection) -> None:
    other = pqbridge.Client(queue.link.nc).priority_queue(f"{queue.name}-2")
    for n in range(10):
        for name in (queue.name, other.name):
            await run(connection.Producer().publish, n, routing_key=name)
    got: list[Any] = []
    channel = await run(connection.channel)
    await run(channel.basic_qos, prefetch_count=3)
    consumer = connection.Consumer([kombu.Queue(queue.name), kombu.Queue(other.name)], channel=channel)
    consumer.on_message = got.append
    await run(consumer.consume)

    while len(got) < 3:
        await run(connection.drain_events, timeout=PATIENCE)
    with pytest.raises(socket.timeout):
        await run(connection.drain_events, timeout=0.3)
    leased = [(await q.info())["leased"] for q in (queue, other)]
    assert len(got) == 3 and sum(leased) == 3

    while len(got) < 20:
        got[-1].ack()
        await run(connection.drain_events, timeout=PATIENCE)
    assert sorted(m.payload for m in got) == sorted([*range(10), *range(10)])


async def test_get_and_the_number_of_messages(queue: Queue, connection: kombu.Connection) -> None:
    def work() -> None:
        simple = connection.SimpleQueue(queue.name)
        assert simple.qsize() == 0
        with pytest.raises(simple.Empty):
            simple.get(block=False)
        for n in range(3):
            simple.put({"n": n})
        assert simple.qsize() == 3
        message = simple.get(timeout=PATIENCE)
        assert message.payload == {"n": 0}
        message.ack()
        simple.close()  # what it has fetched goes back
        bound = kombu.Queue(queue.name)(connection.default_channel)
        while (message := bound.get(accept=["json"])) is None:
            pass
        assert message.payload == {"n": 1}
        while bound.queue_declare(passive=True) == 0:
            pass
        assert bound.purge() == 1
        assert bound.get() is None

    await run(work)


async def test_purge_empties_all_queues_beside_one_that_broadcasts(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name, task_queues=(Broadcast("tell"), kombu.Queue(queue.name)))
    for options in ({}, {"countdown": 60}, {"countdown": 60}):
        await run(app.send_task, "mail", **options)

    def work() -> list[int]:
        with app.connection() as connection:  # as `celery purge` does
            return [connection.default_channel.queue_purge(name) for name in app.amqp.queues]

    assert await run(work) == [0, 3]
    assert await queue.len() == 0
    await run(app.close)


async def test_a_queue_that_is_deleted_has_no_tasks_left(queue: Queue, connection: kombu.Connection) -> None:
    exchange = kombu.Exchange("", type="direct")
    for n in range(2):
        await run(connection.Producer().publish, n, routing_key=queue.name)
    bound = await run(kombu.Queue(queue.name, exchange), connection.default_channel)

    assert await run(bound.delete, if_empty=True) == 0
    with pytest.raises(NotImplementedError, match="if_unused"):
        await run(bound.delete, if_unused=True)
    assert await queue.len() == 2
    assert await run(bound.delete) == 2
    assert await queue.len() == 0


# What goes over core NATS


async def test_exchanges_of_all_types_reach_other_connections(url: str, connection: kombu.Connection) -> None:
    kinds = {
        "direct": [("a.b", "a.b", True), ("a.b", "a.c", False), ("", "", True)],
        "topic": [("a.#", "a", False), ("a.#", "a.b.c", True), ("*.b", "a.b", True), ("*.b", "a.b.c", False)],
        "fanout": [("", "anything", True)],
    }

    def work() -> None:
        for kind, cases in kinds.items():
            for n, (bound, key, comes) in enumerate(cases):
                exchange = kombu.Exchange(f"my {kind}.{n}*", kind, durable=False, delivery_mode=1)
                target = kombu.Queue(f"{kind} {n}", exchange, bound, auto_delete=True, durable=False)
                got: list[Any] = []
                with kombu.Connection(url) as other, connection.Consumer(target, on_message=got.append, no_ack=True):
                    other.Producer().publish(n, exchange=exchange, routing_key=key, declare=[exchange])
                    other.Producer().publish("end", routing_key=target.name, delivery_mode=1)
                    while not got or got[-1].payload != "end":
                        connection.drain_events(timeout=PATIENCE)
                assert [m.payload for m in got] == ([n, "end"] if comes else ["end"]), (kind, bound, key)

    await run(work)


async def test_results_over_rpc_and_events(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name, result_backend="rpc://", worker_send_task_events=True, task_send_sent_event=True)
    seen: list[str] = []

    @app.task(name="add", shared=False)
    def add(a: int, b: int) -> int:
        return a + b

    def work() -> Any:
        with app.connection() as connection:
            receiver = EventReceiver(connection, app=app, handlers={"*": lambda event: seen.append(event["type"])})
            with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
                with receiver.consumer_context() as (own, _, _):
                    polled = add.delay(1, 2)
                    while polled.state != "SUCCESS":
                        threading.Event().wait(0.02)
                    seven = add.delay(3, 4).get(timeout=PATIENCE)
                    while "task-succeeded" not in seen:
                        own.drain_events(timeout=PATIENCE)
                return polled.result, seven

    assert await run(work) == (3, 7)
    assert {"task-sent", "task-received", "task-started", "task-succeeded"} <= set(seen)
    await run(app.close)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
async def test_a_result_without_room_fails_its_get_and_later_ones_stay(
    queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch, serializer: str
) -> None:
    monkeypatch.setattr("pqbridge.celery._KEPT", 50_000)
    own = {"result_serializer": serializer, "accept_content": ["json", serializer], "task_track_started": True}
    app = app_at(url, queue.name, result_backend="rpc://", **own)

    @app.task(name="text", shared=False)
    def text() -> str:
        return "x" * 10_000

    def work() -> tuple[int, list[Any]]:
        sent = [text.delay() for _ in range(9)]
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
            wait_for(lambda: any(b"SUCCESS" in data and sent[-1].id.encode() in data for data in kept()))
        size = sum(map(len, kept()))
        return size, [one.get(timeout=PATIENCE, propagate=False) for one in sent]

    size, results = await run(work)
    lost = [isinstance(result, ResultLostError) for result in results]
    assert lost == sorted(lost, reverse=True) and True in lost and size <= 50_000
    assert results[lost.count(True) :] == ["x" * 10_000] * lost.count(False) != []
    assert "was dropped, as" in str(results[0])
    await run(app.close)


def kept() -> list[bytes]:
    """Return the messages of core NATS that wait in this process."""
    return [message.data for box in list(_MAILBOXES.values()) for message in list(box.kept)]


def wait_for(is_so: Callable[[], Any]) -> None:
    end = monotonic() + PATIENCE
    while not is_so():
        assert monotonic() < end
        threading.Event().wait(0.02)


async def test_messages_for_a_consumer_that_takes_none_are_bounded_by_bytes(
    name: str, connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pqbridge.celery._KEPT", 50_000)
    target = kombu.Queue(name, durable=False, auto_delete=True)
    got: list[Any] = []

    def work() -> None:
        with connection.Consumer(target, on_message=got.append, accept=["text/plain"], no_ack=True):
            for n in range(9):
                connection.Producer().publish(f"{n}" * 10_000, routing_key=name, delivery_mode=1)
            wait_for(lambda: any(data.startswith(b"8") for data in kept()))
            assert sum(map(len, kept())) <= 50_000
            while not got or not got[-1].payload.startswith("8"):
                connection.drain_events(timeout=PATIENCE)

    await run(work)
    taken = [int(message.payload[0]) for message in got]
    assert taken == list(range(9 - len(got), 9)) and 1 < len(got) < 9


async def test_persistent_results_wait_as_items(queue: Queue, url: str) -> None:
    app = app_at(url, queue.name, result_backend="rpc://", result_persistent=True)

    @app.task(name="add", shared=False)
    def add(a: int, b: int) -> int:
        return a + b

    def work() -> Any:
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
            return add.delay(1, 2).get(timeout=PATIENCE)

    assert await run(work) == 3
    await run(app.close)


def add_teller(app: celery.Celery, n: int, told: list[int]) -> None:
    @app.task(name="tell", shared=False)
    def tell() -> None:
        told.append(n)


async def test_a_broadcast_task_reaches_all_workers(name: str, url: str) -> None:
    apps = [app_at(url, name, task_queues=(Broadcast("tell"), kombu.Queue(name))) for _ in range(3)]
    told: list[int] = []
    for n, app in enumerate(apps[:2]):
        add_teller(app, n, told)

    def work() -> None:
        options: dict[str, Any] = {"pool": "solo", "perform_ping_check": False, "shutdown_timeout": PATIENCE}
        with start_worker(apps[0], **options), start_worker(apps[1], **options):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("pqbridge.celery.current_app", apps[2])
                apps[2].send_task("tell", queue="tell")
            for _ in range(int(PATIENCE / 0.02)):
                if len(told) == 2:
                    break
                threading.Event().wait(0.02)

    await run(work)
    assert len(told) == 2  # in one process both run the same function
    for app in apps:
        await run(app.close)


# What is refused


async def test_names_that_no_subject_can_have_are_refused(url: str, connection: kombu.Connection) -> None:
    want = r"queue 'high\.priority': want 1 to 128 letters, digits, - and _, such as 'high-priority'"
    with pytest.raises(pqbridge.BadArgumentError, match=want):
        await run(connection.Producer().publish, 1, routing_key="high.priority")
    with pytest.raises(pqbridge.BadArgumentError, match=want):
        await run(connection.Consumer(kombu.Queue("high.priority")).consume)


async def test_other_things_are_refused(queue: Queue, url: str, connection: kombu.Connection) -> None:
    channel = await run(connection.channel)
    for refused in (
        lambda: channel.basic_qos(0, 1, True),
        lambda: channel.basic_qos(1, 1),
        channel.tx_select,
        channel.tx_commit,
        lambda: channel.basic_recover(requeue=False),
    ):
        with pytest.raises(NotImplementedError):
            refused()
    app = app_at(url, queue.name)
    wrong: list[dict[str, Any]] = [{"priority": "high"}, {"eta": "soon"}, {"task_id": "a\nb"}]
    for options in [*wrong, {"exchange": "none", "routing_key": "x"}]:
        with pytest.raises(ValueError):
            await run(app.send_task, "mail", **options)
    for mode in (1, 2):
        with pytest.raises(pqbridge.TooLargeError):
            await run(connection.Producer().publish, "x" * (2 << 20), routing_key=queue.name, delivery_mode=mode)
    assert await queue.len() == 0
    assert await run(lambda: connection.connected)
    await run(app.close)


async def test_a_queue_that_is_full_is_said_at_once(queue: Queue, connection: kombu.Connection) -> None:
    await queue.configure(max_items=1)
    await run(connection.Producer().publish, 1, routing_key=queue.name)
    with pytest.raises(pqbridge.OverloadedError):
        await run(connection.Producer().publish, 2, routing_key=queue.name, retry=True)


@pytest.mark.parametrize(
    ("urls", "given", "text"),
    [
        (["pqbridge://a?visibility_timeout=3"], {}, "unknown option visibility_timeout"),
        (["pqbridge://a"], {"queue_order_strategy": "priority"}, "unknown option queue_order_strategy"),
        (["pqbridge://a/vhost"], {}, "want pqbridge://user:password@host"),
        (["nats://a"], {}, "want pqbridge://user:password@host"),
        (["pqbridge://u:secret@a/x"], {}, r"broker 'pqbridge://u:\*\*@a/x'"),
        (["pqbridge://a?name=x", "pqbridge://b?name=y"], {}, "option name differs"),
        (["pqbridge://a"], {"ack_wait": "1ms"}, "ack_wait"),
        (["pqbridge://a"], {"ack_wait": 0}, "ack_wait 0: want 100 ms"),
        (["pqbridge://a?timeout=0"], {}, "want a time above 0"),
        (["pqbridge://a?core_prefix="], {}, "and names"),
        (["pqbridge://a"], {"timeout": "soon"}, "timeout 'soon': want seconds"),
        (["pqbridge://a?smallest_first=no"], {}, "option smallest_first is 'no': want true or false"),
        (["pqbridge://a"], {"tls": "1"}, "option tls is '1': want true or false"),
        (["pqbridge://a?ping_interval=5s"], {}, "option ping_interval is '5s': want a number"),
    ],
)
def test_options_are_refused_by_name(urls: list[str], given: dict[str, Any], text: str) -> None:
    with pytest.raises(pqbridge.BadArgumentError, match=text):
        options_of(urls, given)


def test_options_are_read_from_urls_and_transport_options() -> None:
    context = ssl.create_default_context()
    urls = ["pqbridge://us%40er:p%3Bw@a?user_credentials=/f&timeout=5", "pqbridge://[::1]:5?tls=true", "pqbridge://b"]
    own = options_of(urls, {"ack_wait": 60, "ping_interval": 5, "max_retries": 3, "smallest_first": True})
    assert own["servers"] == ["tls://a:4222", "tls://[::1]:5", "tls://b:4222"]
    login = {"user": "us@er", "password": "p;w", "user_credentials": "/f"}
    assert own["nats"] == {**login, "ping_interval": 5}
    assert (own["timeout"], own["ack_wait"], own["smallest_first"], own["prefix"]) == (5, 60, True, "pq")

    own = options_of(["pqbridge://a?ping_interval=5&reconnect_time_wait=0.5&no_echo=true&smallest_first=False"], {})
    assert own["nats"] == {"ping_interval": 5, "reconnect_time_wait": 0.5, "no_echo": True}
    assert own["smallest_first"] is False
    assert options_of(["pqbridge://"], {})["servers"] is None
    assert options_of(["pqbridge://u:@a"], {})["nats"] == {"user": "u", "password": ""}
    assert options_of(["pqbridge://t@a"], {"tls": context})["nats"] == {"token": "t", "tls": context}


def test_options_are_refused_when_a_worker_starts(url: str) -> None:
    app = celery.Celery(broker=f"{url}&socket_timeout=3", set_as_current=False)
    with pytest.raises(pqbridge.BadArgumentError, match="unknown option socket_timeout"):
        app.WorkController()
    for ssl_given in (True, {"ca_certs": "x"}):
        with pytest.raises(pqbridge.BadArgumentError, match="broker_use_ssl"):
            kombu.Connection(url, ssl=ssl_given).connect()


def test_green_pools_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.celery.detect_environment", lambda: "gevent")
    with pytest.raises(pqbridge.BadArgumentError, match="gevent patches the threads that this needs"):
        Transport(kombu.Connection(url))


# Connections


async def test_it_fails_over_to_the_second_server(shared_bridge: Bridge, queue: Queue, unused_tcp_port: int) -> None:
    urls = [f"pqbridge://127.0.0.1:{unused_tcp_port}?timeout=5s", shared_bridge.url.replace("nats", "pqbridge")]
    for broker in (";".join(urls), urls):
        app = celery.Celery(broker=broker, set_as_current=False)
        app.conf.task_default_queue = queue.name
        await run(app.send_task, "mail", ignore_result=True)
        await run(app.close)
    assert await queue.len() == 2


async def test_without_a_server_sending_fails_in_time(unused_tcp_port: int) -> None:
    url = f"pqbridge://127.0.0.1:{unused_tcp_port}?timeout=300ms"
    with pytest.raises(LostError), kombu.Connection(url) as connection:
        await run(connection.connect)
    app = celery.Celery(broker=url, set_as_current=False)
    with pytest.raises(kombu.exceptions.OperationalError):
        await run(app.send_task, "mail", ignore_result=True, retry_policy={"max_retries": 1, "interval_start": 0})
    await run(app.close)


async def test_a_connection_that_fails_leaves_nothing(unused_tcp_port: int) -> None:
    def work() -> None:
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(LostError):
                kombu.Connection(f"pqbridge://127.0.0.1:{unused_tcp_port}?timeout=100ms").connect()
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before

    await run(work)


async def test_who_listens_hears_that_the_connection_is_closed_for_good(connection: kombu.Connection) -> None:
    def work() -> None:
        with connection.Consumer(kombu.Queue("replies", exchange=kombu.Exchange("x", "fanout"), durable=False)):
            transport = connection.transport
            asyncio.run_coroutine_threadsafe(transport.pq.nc.close(), transport.loop)
            with pytest.raises(LostError):
                connection.drain_events(timeout=PATIENCE)

    await run(work)


async def test_replies_that_were_collected_leave_nothing(url: str, name: str) -> None:
    app = app_at(url, name)

    def work() -> None:
        with app.connection() as connection:
            for _ in range(5):
                app.control.ping(timeout=0.05, connection=connection)
            transport = connection.transport
            end = monotonic() + PATIENCE
            while transport.queues or transport.pq.nc._subs:  # they end in another thread
                assert monotonic() < end, (transport.queues, transport.pq.nc._subs)

    await run(work)
    await run(app.close)


async def test_a_connection_that_closes_as_messages_come_gives_all_back_uncounted(queue: Queue, url: str) -> None:
    await queue.push_many([{"value": b"[[], {}, {}]", "type": "note"} for _ in range(300)])

    def work() -> None:
        for n in range(20):
            with kombu.Connection(url) as connection, connection.channel() as channel:
                channel.basic_qos(0, 50)
                consumer = kombu.Consumer(channel, kombu.Queue(queue.name), callbacks=[lambda *_: None])
                consumer.consume()
                for _ in range(n):
                    connection.drain_events(timeout=PATIENCE)

    await run(work)
    info = await queue.info()
    assert (info["ready"], info["leased"]) == (300, 0)
    assert {item.deliveries async for item in queue.items()} == {0}


async def test_a_process_that_was_forked_uses_no_connection_of_its_parent(connection: kombu.Connection) -> None:
    await run(connection.connect)
    connection.transport._pid -= 1
    with pytest.raises(LostError):
        connection.transport.publish("x", {}, b"")
    connection.transport._pid += 1


async def test_statistics_have_no_password(url: str) -> None:
    context = ssl.create_default_context()
    urls = url.replace("pqbridge://", "pqbridge://u:secret@") + ";pqbridge://u:secret@b"
    one = kombu.Connection(urls, transport_options={"tls": context})
    Transport(one)
    text = json.dumps({name: value for name, value in one.info().items() if name != "password"})
    assert "secret" not in text and "127.0.0.1" in text


async def test_tls_is_demanded_of_the_server(shared_bridge: Bridge) -> None:
    at = shared_bridge.url.replace("nats://", "pqbridge://user:secret@")
    with pytest.raises(kombu.exceptions.OperationalError):
        await run(kombu.Connection(f"{at}?tls=true&timeout=500ms").ensure_connection, max_retries=1)


async def test_passwords_are_not_shown() -> None:
    connection = kombu.Connection("pqbridge://eve:secret@a?token=secret;pqbridge://eve:secret@b")
    assert "secret" not in connection.as_uri() + repr(connection)


async def test_json_of_the_header_is_what_the_page_says(queue: Queue, connection: kombu.Connection) -> None:
    await run(connection.Producer().publish, {"a": 1}, routing_key=queue.name, headers={"x": "y"})
    [item] = [item async for item in queue.items()]
    meta = json.loads(item.headers["Kombu"])
    assert meta["headers"] == {"x": "y"} and set(meta) == {"headers", "properties", "content-type", "content-encoding"}
    assert "pqbridge-id" not in meta["properties"]
