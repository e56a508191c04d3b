"""Celery on queues of pqbridge: a transport of kombu, which importing this module registers.

    import pqbridge.celery

    app = Celery("shop", broker="pqbridge://127.0.0.1:4222")

docs/celery.md of the project says how to move an application here, and what is different.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import re
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from functools import partial
from itertools import count
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import uuid4
from weakref import WeakValueDictionary

import nats.errors
from amqp.protocol import queue_declare_ok_t
from celery import current_app, signals, states
from celery.app.task import Task
from celery.exceptions import Reject
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker import request as celery_request
from kombu import serialization
from kombu.exceptions import DecodeError
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.compat import detect_environment
from kombu.utils.json import dumps, loads
from kombu.utils.url import maybe_sanitize_url
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from . import errors as e
from .client import Client
from .delivery import Delivery, Renewal, Seldom, repeat
from .headers import header_block
from .job import text_of
from .manage import NAME
from .queue import lease_length
from .sync import Client as SyncClient
from .times import Pause, seconds

_LOG = logging.getLogger("pqbridge.celery")
_IDLE_WAIT = 300.0  # seconds that one request waits for a message
_MOST = 100  # messages of one request
_AHEAD = 16  # messages that wait for their consumer, where no prefetch count limits them
_KEPT = 64 << 20  # bytes of messages of core NATS that wait in this process
_GONE = 100_000  # results without room, whose `get` fails
_CLOSE_TIME = 5.0  # seconds for which a connection that closes tries to settle messages
_META = "Kombu"  # the header with all of a message but its body
# The property that makes a repeated publish happen once, and the header with the eta of a task that is due.
_ID, _DUE = "pqbridge-id", "pqbridge-eta"
_TAGS = count(1)


class LostError(e.PQError, ConnectionError):
    """NATS or the bridge is away: kombu tries again, as the policy of the caller says."""


class ResultLostError(e.PQError):
    """The result of a task came over core NATS, and this process had no room for it."""


_OWN = {"prefix": "pq", "core_prefix": "celery", "timeout": "10s"}
_OWN |= {"ack_wait": "", "smallest_first": "", "group_header": ""}
_KOMBU = {"max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout"}
_NATS = {name: p.default for name, p in inspect.signature(NATS.connect).parameters.items() if name != "servers"}
_NATS.pop("self")
_KINDS = _NATS | {"tls": False, "smallest_first": False, "ack_wait": 0, "timeout": 0, "flush_timeout": 0}


def _option(name: str, value: str) -> Any:
    """Return the value that a text gives an option, of the type that its default has."""
    kind = _KINDS.get(name)
    if isinstance(kind, bool):
        if value.lower() not in ("true", "false"):
            raise e.BadArgumentError(f"option {name} is {value!r}: want true or false")
        return value.lower() == "true"
    if isinstance(kind, int) and not (name in _OWN and not value.isdecimal()):  # as those may be "5m"
        try:
            return int(value) if value.isdecimal() else float(value)
        except ValueError:
            raise e.BadArgumentError(f"option {name} is {value!r}: want a number") from None
    return value


def options_of(urls: Iterable[str], given: dict[str, Any]) -> dict[str, Any]:
    """Read the URLs of a connection, which fails over among them, and its transport options.

    Errors: BadArgumentError, which names what is unknown or cannot be.
    """
    hosts, all = [], dict[str, Any]()
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "pqbridge" or parts.path.strip("/") or parts.fragment:
            want = "pqbridge://user:password@host:4222?option=value, several separated by semicolons"
            raise e.BadArgumentError(f"broker {maybe_sanitize_url(url)!r}: want {want}")
        of_url: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.username:
            of_url["token" if parts.password is None else "user"] = unquote(parts.username)
        if parts.password is not None:
            of_url["password"] = unquote(parts.password)
        for name, value in of_url.items():
            value = _option(name, value)
            if all.setdefault(name, value) != value:
                raise e.BadArgumentError(f"option {name} differs between the broker's URLs: one value holds for all")
        if parts.hostname:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            hosts.append(f"{host}:{parts.port or Transport.default_port}")

    values = {name: value for name, value in given.items() if value is not None}
    all |= {name: _option(name, value) if isinstance(value, str) else value for name, value in values.items()}
    if unknown := ", ".join(sorted(all.keys() - _OWN.keys() - _NATS.keys() - _KOMBU)):
        known = ", ".join([*_OWN, *sorted(_NATS)])
        raise e.BadArgumentError(f"unknown option {unknown} of the broker's URL or transport options: want {known}")
    own: dict[str, Any] = {name: all.pop(name, default) for name, default in _OWN.items()}
    own["ack_wait"] = lease_length(None if own["ack_wait"] == "" else own["ack_wait"]) or None
    own["timeout"] = seconds(own["timeout"], "timeout")
    if not (own["timeout"] and own["prefix"] and own["core_prefix"]):
        raise e.BadArgumentError("options timeout, prefix and core_prefix: want a time above 0, and names")
    tls = all.pop("tls", None)
    own["nats"] = {name: value for name, value in all.items() if name not in _KOMBU}
    own["nats"] |= {} if isinstance(tls, bool) or tls is None else {"tls": tls}
    own["servers"] = [f"{'tls' if tls else 'nats'}://{host}" for host in hosts] or None
    return own


def checked_name(name: str) -> str:
    """Return the name of a queue. Errors: BadArgumentError, with a name that would do."""
    if not NAME.fullmatch(name):
        like = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:128] or "celery"
        raise e.BadArgumentError(f"queue {name!r}: want 1 to 128 letters, digits, - and _, such as {like!r}")
    return name


def _token(name: str) -> str:
    """Return a name as one token of a subject."""
    return quote(name, safe="@").replace(".", "%2E") or "%"


def _pack(message: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Return a message of kombu as headers and bytes."""
    body, meta = message["body"], {name: part for name, part in message.items() if name != "body"}
    meta["properties"] = {name: value for name, value in meta["properties"].items() if name != _ID}
    headers = {_META: dumps(meta), "Content-Type": message.get("content-type") or "application/data"}
    return headers, body.encode() if isinstance(body, str) else bytes(body or b"")


class Message(virtual.Message):
    """A message, which becomes a dead letter if its body cannot be read."""

    why, is_begun = "", False  # it is rejected; its task runs

    def _decode(self) -> Any:
        try:
            body = super()._decode()
            if "task" not in self.headers or (isinstance(body, dict) and "args" in body):
                return body
            if [type(part) for part in body] in ([list, dict, dict], [tuple, dict, dict]):
                return body
            raise TypeError("want [args, kwargs, {}]")
        except Exception as error:
            self.why = f"its body cannot be read: {text_of(error)}"
            raise DecodeError(self.why) from error

    def ack(self, multiple: bool = False) -> None:
        """Acknowledge the message: Celery does that with one that it could not decode."""
        if self.why and self._decoded_cache is None:
            self.reject()
        else:
            super().ack(multiple)


def _all(got: list[Delivery] | Delivery | None) -> list[Delivery]:
    return got if isinstance(got, list) else [got] if got else []


class _Held:
    """A leased message, from its lease to its acknowledgement."""

    def __init__(self, channel: PQChannel, delivery: Delivery) -> None:
        self.channel, self.delivery = channel, delivery
        self.tag = f"{delivery.id}.{next(_TAGS)}"
        self.message: Any = None  # once the consumer has it
        self.renewal = Renewal(delivery, self._lost, _LOG, channel.seldom)

    def _lost(self, error: e.PQError) -> None:
        _LOG.warning("lost the lease of %s, and another worker may run it, unless it was removed: %s", self, error)

    def __str__(self) -> str:
        headers = self.delivery.headers
        return f"{headers.get('Type', 'message')}[{headers.get('task_id', self.delivery.id)}]"


class _Consumer:
    """Gets the messages of a queue, until it is cancelled."""

    def __init__(self, channel: PQChannel, queue: _Queue, no_ack: bool, callback: Callable[[Any], Any]) -> None:
        self.channel, self.queue, self.no_ack, self.callback = channel, queue, no_ack, callback
        self.fetcher: Future[None] | None = None  # where the bridge has the queue
        self.is_over = False


class _Mailbox:
    """What has come from core NATS for a queue to any connection of this process.

    Celery declares where results come to on another connection than the one that consumes them.
    """

    def __init__(self) -> None:
        self.is_transient, self.size = False, 0
        self.kept: deque[Msg] = deque()  # until a consumer takes it
        self.gone: deque[tuple[str, str]] = deque(maxlen=_GONE)  # ids of tasks, and how their results were written
        self.consumers: list[_Consumer] = []

    def keep(self, message: Msg) -> bool:
        """Add a message, and report whether the largest mailbox had to drop some for it."""
        with _LOCK:
            self.kept.append(message)
            self.size += _size(message)
            boxes, is_full = list(_MAILBOXES.values()), False
            while sum(box.size for box in boxes) > _KEPT:
                box, is_full = max(boxes, key=lambda box: box.size), True
                if result := _result_in(box._pop()):
                    box.gone.append(result)
            return is_full

    def _pop(self) -> Msg:
        message = self.kept.popleft()
        self.size -= _size(message)
        return message

    def take(self) -> Msg | None:
        """Return the oldest message, or the failure of a task whose result was dropped."""
        with _LOCK:
            if self.gone:
                return _failure(*self.gone.popleft())
            return self._pop() if self.kept else None

    def clear(self) -> None:
        """Drop all."""
        with _LOCK:
            self.kept.clear()
            self.gone.clear()
            self.size = 0


def _size(message: Msg) -> int:
    """Return how many bytes a message takes in memory, about."""
    return 1024 + len(message.data) + sum(map(len, (message.headers or {}).values()))


def _result_in(message: Msg) -> tuple[str, str] | None:
    """Return the id of the task whose last result a message has, and its content type."""
    try:
        meta = loads((message.headers or {})[_META])
        body = loads(message.data) if meta["content-type"] == "application/json" else {"status": states.FAILURE}
        is_last = "task" not in meta["headers"] and body["status"] in states.READY_STATES
        return (meta["properties"]["correlation_id"], meta["content-type"]) if is_last else None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def _failure(task: str, kind: str) -> Msg:
    """Return what has the `get` of a task fail, written as its result was."""
    text = f"the result of task {task} came and was dropped, as {_KEPT >> 20} MiB of messages waited to be taken: "
    text += "want ignore_result for tasks whose results nobody gets"
    result = {"exc_type": ResultLostError.__name__, "exc_module": __name__, "exc_message": [text]}
    body = {"task_id": task, "status": states.FAILURE, "result": result, "traceback": None, "children": []}
    kind, encoding, data = serialization.dumps(body, serialization.registry.type_to_name.get(kind))
    meta = {"content-type": kind, "content-encoding": encoding, "properties": {"correlation_id": task}}
    return Msg(None, data=data.encode() if isinstance(data, str) else data, headers={_META: dumps(meta)})  # type: ignore


class _Queue:
    """What a connection knows of a queue, and where it listens for it in core NATS."""

    def __init__(self, name: str, mailbox: _Mailbox) -> None:
        self.name, self.mailbox = name, mailbox
        self.sources: dict[str, set[str]] = {}  # patterns of routing keys, by subject
        self.listening: dict[str, Any] = {}


_LOCK = threading.Lock()
_MAILBOXES: WeakValueDictionary[str, _Mailbox] = WeakValueDictionary()


def _after_fork() -> None:
    _MAILBOXES.clear()
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_after_fork)


class PQChannel(virtual.Channel):
    """Publishes tasks as items of queues, and leases them; everything else goes over core NATS.

    Items are tasks, and persistent messages to direct exchanges.
    """

    supports_fanout = True
    Message = Message

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self._transport, self._own, self.seldom = connection, connection.own, Seldom()
        self._mine: dict[str, _Consumer] = {}
        self._prefetch, self.closed = 0, False
        self._held: dict[str, _Held] = {}
        # Of the thread with the connection to NATS:
        self._waits: set[asyncio.Task[Any]] = set()  # each for one message, if there is room by then
        self._room = asyncio.Event()

    # Declaring

    def queue_declare(self, queue: str | None = None, passive: bool = False, **options: Any) -> Any:
        """Note a queue, which needs no creation. Only a passive declaration counts its messages."""
        name = queue or f"gen-{uuid4()}"
        if not passive:
            known = self._transport.queue(name)
            own = options.get("exclusive"), options.get("auto_delete"), not options.get("durable", True)
            known.mailbox.is_transient = any(own)
            self._transport.listen(known, self._subject("", name), "")
        return queue_declare_ok_t(name, self._size(name) if passive else 0, 0)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        key = routing_key if self.typeof(exchange).type == "direct" else None
        self._transport.listen(self._transport.queue(queue), self._subject(exchange, key), pattern or "")

    def _subject(self, exchange: str, routing_key: str | None) -> str:
        key = "*" if routing_key is None else _token(routing_key)
        return f"{self._own['core_prefix']}.{_token(exchange)}.{key}"

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> int:
        """Purge a queue, forget its bindings, and return the number of its messages."""
        if if_unused:
            raise NotImplementedError("if_unused: nobody knows who consumes from a queue, so want False")
        if if_empty and self._size(queue):
            return 0
        purged = self._purge(queue)
        self._transport.forget(queue)
        self.state.queue_bindings_delete(queue)
        return purged

    def _has_items(self, queue: _Queue) -> bool:
        """Report whether a queue is one of the bridge too.

        Errors: BadArgumentError for one that tasks are sent to, and that cannot have this name.
        """
        if {self.typeof(binding.exchange).type for binding in self.state.queue_bindings(queue.name)} == {"fanout"}:
            return False
        if queue.mailbox.is_transient or queue.name.endswith(".pidbox"):
            return bool(NAME.fullmatch(queue.name))
        return bool(checked_name(queue.name))

    def _count(self, queue: str, count: Callable[[Any], Coroutine[Any, Any, int]]) -> int:
        known = self._transport.queue(queue)
        if known.mailbox.is_transient or not NAME.fullmatch(queue):  # Celery purges those of a Broadcast undeclared
            return len(known.mailbox.kept)
        return len(known.mailbox.kept) + int(self._transport.run(lambda c: count(c.priority_queue(queue))))

    def _size(self, queue: str) -> int:
        return self._count(queue, lambda q: q.len())

    def _purge(self, queue: str) -> int:
        purged = self._count(queue, lambda q: q.purge("ready"))
        self._transport.queue(queue).mailbox.clear()
        return purged + self._count(queue, lambda q: q.purge("delayed"))

    # Publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Publish a message. An item is durable once this returns, and is there once if kombu repeats this.

        Errors: LostError; TooLargeError; BadArgumentError for a task that no queue would get.
        """
        properties, is_task, kind = message["properties"], "task" in message["headers"], self._type_of(exchange)
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        properties.setdefault(_ID, str(uuid4()))
        if kind != "fanout" and (is_task or (kind == "direct" and properties.get("delivery_mode") != 1)):
            known, queues = self._transport.queues, self._lookup(exchange, routing_key)
            queues = [q for q in queues if is_task or q not in known or not known[q].mailbox.is_transient]
            for queue in queues:
                self._push(checked_name(queue), message)
            if queues:
                return
            if is_task:
                want = "send the task to a queue by its name, or declare what is bound to the exchange"
                raise e.BadArgumentError(f"no queue is bound to exchange {exchange!r} by {routing_key!r} here: {want}")
        self._transport.publish(self._subject(exchange, routing_key), *_pack(message))

    def _type_of(self, exchange: str) -> str:
        """Return the type of an exchange. Celery declares none of those that broadcast tasks."""
        for queue in () if exchange in self.state.exchanges else current_app.amqp.queues.values():
            if exchange and queue.exchange and queue.exchange.name == exchange:
                return str(queue.exchange.type)
        return str(self.typeof(exchange).type)

    def _push(self, queue: str, message: dict[str, Any]) -> None:
        own, properties = message["headers"], message["properties"]
        headers, value = _pack(message)
        headers |= {"task_id": str(own["id"])} if "id" in own else {}
        if not isinstance(priority := properties.get("priority") or 0, int):
            raise e.BadArgumentError(f"priority {priority!r}: want an integer")
        push: dict[str, Any] = {"type": own.get("task"), "headers": headers, "msg_id": properties[_ID]}
        push["priority"] = priority if self._own["smallest_first"] else -priority
        if "task" in own and own.get("eta"):
            push["at"] = maybe_make_aware(maybe_iso8601(own["eta"]), current_app.conf.timezone)
        if properties.get("expiration") and "task" not in own:  # in milliseconds; Celery revokes tasks itself
            push["ttl"] = max(1.0, int(properties["expiration"]) / 1000)
        if (group := own.get(self._own["group_header"])) not in (None, ""):
            push["group"] = str(group)
        self._transport.run(lambda c: c.priority_queue(queue).push(value, **push))

    # Consuming

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **_: Any) -> None:
        """Have a consumer get the messages of a queue."""
        known = self._transport.queue(queue)
        try:
            has_items = self._has_items(known)
        except e.BadArgumentError as error:
            if not self._transport.is_looping:
                raise
            _LOG.error("cannot consume: %s", error)  # the worker was told to, and goes on
            return
        consumer = self._mine[consumer_tag] = _Consumer(self, known, no_ack, callback)
        self._transport.consume(consumer)
        if has_items and (loop := self._transport.loop):
            consumer.fetcher = asyncio.run_coroutine_threadsafe(self._fetch(consumer), loop)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. Messages that it has not got yet go back."""
        if consumer := self._mine.pop(consumer_tag, None):
            self._transport.cancel(consumer)
            if consumer.fetcher:
                consumer.fetcher.cancel()

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return a message of a queue, if there is one."""
        known = self._transport.queue(queue)
        self._transport.subscribe(known)
        while came := known.mailbox.take():
            if message := self.read(came):
                return message

        async def lease(c: Client) -> _Held | None:
            delivery = await c.priority_queue(queue).lease(ack_wait=self._own["ack_wait"])
            return self._hold(delivery) if delivery else None

        held = self._transport.run(lease) if self._has_items(known) else None
        return self.read(held, no_ack) if held else None

    def read(self, came: _Held | Msg, no_ack: bool = False) -> Any:
        """Return a message as its consumer gets it, None if it cannot be read or its lease is lost.

        Besides what _pack wrote, this takes what any other program pushed for a task: its name as the
        type, and [args, kwargs, {}] as the value.
        """
        tag, message = f"core.{next(_TAGS)}", None
        if isinstance(came, _Held):
            headers, body, tag = dict(came.delivery.all), came.delivery.value, came.tag
        else:
            headers, body = came.headers or {}, came.data
        try:
            raw: dict[str, Any] = {"content-type": "application/json", "content-encoding": "utf-8", "body": body}
            raw |= loads(headers.get(_META, "{}"))
            properties, own = raw.setdefault("properties", {}), raw.setdefault("headers", {})
            if _META not in headers:
                own |= {"task": headers["Type"], "id": headers.get("task_id") or headers["Pq-Id"], "lang": "py"}
            if "task" in own and own.get("eta"):
                own["eta"], own[_DUE] = None, own["eta"]  # it is due: Celery would count it as one more that waits
            properties["delivery_tag"] = tag
            properties.setdefault("delivery_info", {})["redelivered"] = int(headers.get("Pq-Deliveries", 0)) > 1
            message = self.Message(raw, channel=self)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            why = f"not a message of kombu, nor of a task: {text_of(error)}"
            _LOG.error("cannot read %s: %s", came, why)
            self._settle(tag, partial(Delivery.term, reason=why))
        if isinstance(came, _Held):
            came.message, message = message, None if came.renewal.lost else message
            if no_ack or message is None:
                self._settle(tag)
        return message

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many messages may be unacknowledged, 0 for any number."""
        if apply_global or prefetch_size:
            raise NotImplementedError("QoS in bytes, or for all consumers of a connection: set a prefetch count")
        self._prefetch = prefetch_count
        self._transport.post(self._changed)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, from any thread. It never waits."""
        tags = list(self._held) if multiple and delivery_tag in self._held else [delivery_tag]
        for tag in tags[: tags.index(delivery_tag) + 1]:
            self._settle(tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Have a message come back, after the backoff of its queue if there is one, or make it a dead letter."""
        if held := self._held.get(delivery_tag):
            why, task = getattr(held.message, "why", ""), held.delivery.headers.get("Type")
            why = why or (f"this worker has no task {task!r}" if task and task not in current_app.tasks else "rejected")
            nak, term = partial(Delivery.nak, retry_delay=0, reason=why), partial(Delivery.term, reason=why)
            self._settle(delivery_tag, nak if requeue else term)

    def basic_recover(self, requeue: bool = False) -> None:
        """Give back all that is unacknowledged, and count the delivery of tasks that have begun."""
        if not requeue:
            raise NotImplementedError("recover(requeue=False): want requeue=True")
        for tag, held in list(self._held.items()):
            is_begun = getattr(held.message, "is_begun", False)
            self._settle(
                tag, partial(Delivery.nak, retry_delay=0, reason="given back") if is_begun else Delivery.snooze
            )

    def tx_select(self, *_: Any) -> None:
        """Transactions of channels do not exist."""
        raise NotImplementedError("transactions of channels: a message is durable once its publish returns")

    tx_commit = tx_rollback = tx_select

    def close(self) -> None:
        """Cancel all consumers, and give back what is unacknowledged."""
        if not self.closed:
            self.closed = True
            for tag in list(self._mine):
                self.basic_cancel(tag)
            self.basic_recover(requeue=True)
            self._transport.close_channel(self)

    # In the thread with the connection to NATS

    def _hold(self, delivery: Delivery) -> _Held:
        held = _Held(self, delivery)
        self._held[held.tag] = held
        self._changed()
        return held

    def _free(self) -> int:
        """Return how many more messages this channel may have."""
        return self._prefetch - len(self._held) if self._prefetch else _AHEAD - len(self._transport.ready)

    def _changed(self) -> None:
        """Go on, or ask for nothing more, as there is room or not."""
        if self._free() > 0:
            self._room.set()
            return
        for wait in self._waits:
            wait.cancel()

    async def _fetch(self, consumer: _Consumer) -> None:
        """Lease the messages of a queue as long as there is room for them."""
        queue, pause, more = self._transport.pq.priority_queue(consumer.queue.name), Pause(), False
        self._transport.keep(asyncio.current_task())
        while True:
            while (room := self._free()) <= 0:
                self._room.clear()
                await self._room.wait()
            n, got = min(room, _MOST) if more else 1, list[Delivery]()
            try:
                got = await self._lease(queue, n)
                more = len(got) == n
                while got and self._free() > 0:
                    await got[0].confirm()
                    self._transport.put(consumer, self._hold(got.pop(0)))
                pause.reset()
            except e.PQError as error:
                if self._transport.pq.nc.is_closed or isinstance(error, (e.BadRequestError, e.DeniedError)):
                    if not consumer.queue.mailbox.is_transient:
                        self._transport.fail(LostError(str(error)) if self._transport.pq.nc.is_closed else error)
                    return
                if not (more and isinstance(error, e.OverloadedError)):  # at a limit: the next request waits for it
                    _LOG.log(self.seldom.level("lease"), "cannot lease from %s: %s", consumer.queue.name, error)
                    await pause.wait()
                more = False
            finally:  # those of another queue took the room, or the consumer is over
                for delivery in got:
                    self._transport.spawn(self._give_back(delivery))

    async def _give_back(self, delivery: Delivery) -> None:
        with contextlib.suppress(e.PQError):
            await delivery.snooze()

    async def _lease(self, queue: Any, n: int) -> list[Delivery]:
        """Lease what there is, up to n messages, or wait for one."""
        ack_wait = self._own["ack_wait"]
        lease = queue.lease_batch(n, ack_wait=ack_wait) if n > 1 else queue.lease(ack_wait=ack_wait, expires=_IDLE_WAIT)
        request = self._transport.spawn(lease)
        if n == 1:
            self._waits.add(request)
        try:
            await asyncio.wait({request})
        except asyncio.CancelledError:
            if not request.cancel() and not request.exception():  # it has come at the same time
                for delivery in _all(request.result()):
                    self._transport.spawn(self._give_back(delivery))
            raise
        finally:
            self._waits.discard(request)
        return [] if request.cancelled() else _all(request.result())

    def _settle(self, tag: str, send: Callable[[Delivery], Awaitable[None]] = Delivery.ack) -> None:
        """End a lease, from any thread, once."""
        if held := self._held.pop(tag, None):
            self._transport.post(self._settling, held, send)

    def _settling(self, held: _Held, send: Callable[[Delivery], Awaitable[None]]) -> None:
        if held.renewal.end():
            _LOG.warning("%s ended after its lease was lost, so this is not acknowledged", held)
        else:
            self._transport.spawn(self._send(held, send))
        self._changed()

    async def _send(self, held: _Held, send: Callable[[Delivery], Awaitable[None]]) -> None:
        """Send what ends a lease until there is an answer."""
        pause = Pause()

        async def go_on(error: e.PQError) -> bool:
            again = error.is_passing and not self._transport.pq.nc.is_closed
            _LOG.log(self.seldom.level("settle") if again else logging.ERROR, "cannot settle %s: %s", held, error)
            if again:
                await pause.wait()
            return again

        try:
            await repeat(lambda: send(held.delivery), go_on)
        except e.PQError as error:
            _LOG.warning("the end of %s did not count: %s", held, error)


class Transport(virtual.Transport):
    """A connection to NATS in a thread of its own, which renews leases whatever the consumer does.

    It reconnects by itself, so kombu hears of an outage only while it connects or publishes.
    """

    Channel = PQChannel
    can_parse_url = True
    default_port = 4222
    driver_type, driver_name = "pqbridge", "nats-py"
    connection_errors = (*virtual.Transport.connection_errors, LostError)
    recoverable_connection_errors, recoverable_channel_errors = connection_errors, ()
    implements = virtual.Transport.implements.extend(asynchronous=True, exchange_type={"direct", "topic", "fanout"})

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        if client.ssl:
            raise e.BadArgumentError(
                "broker_use_ssl: want tls=true in the URL, or tls=<an ssl.SSLContext> as a transport option"
            )
        if detect_environment() != "default":
            want = "a program that does not patch them, and the pool prefork, threads or solo"
            raise e.BadArgumentError(f"{detect_environment()} patches the threads that this needs: want {want}")
        self.own = own = options_of(client.alt or [client.hostname], client.transport_options)
        client.info = partial(self._info, client.info)
        client.cycle = None  # nats-py fails over by itself, and kombu cannot read such URLs then
        own["nats"]["closed_cb"] = self._closed
        self._sync = SyncClient(own["servers"], timeout=own["timeout"], nats=own["nats"], prefix=own["prefix"])
        self.queues: dict[str, _Queue] = {}
        # What consumers get next: a leased message, or, with None, the oldest of their mailbox.
        self.ready: deque[tuple[_Consumer, _Held | None]] = deque()
        self._lock = threading.Lock()
        self._failure: e.PQError | None = None
        self._seldom = Seldom()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._tasks = set[asyncio.Task[Any]]()
        self._pid, self.is_looping = os.getpid(), False

    def _info(self, info: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Describe the connection for `inspect stats`, without passwords and what JSON cannot write."""
        return info() | {"hostname": ", ".join(self.own["servers"] or ()), "alternates": [], "transport_options": {}}

    # Connecting

    def establish_connection(self) -> Transport:
        """Connect to NATS. Errors: LostError if no server is there within the timeout."""

        async def connected(client: Client) -> None:
            self.pq, self.loop = client, asyncio.get_running_loop()

        try:
            self.run(connected)
        except BaseException:
            self._sync.close()
            raise
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._avail_channels.append(self.create_channel(self))
        return self

    def close_connection(self, connection: Transport) -> None:
        """Give back what is unacknowledged, send the acknowledgements under way, and disconnect."""
        if self._pid != os.getpid():  # in a child, which has nothing of this
            return
        for channel in [*self._avail_channels, *self.channels]:
            channel.close()
        self._avail_channels.clear()
        if self.loop:
            with contextlib.suppress(e.PQError):
                self._sync.run(self._finish)
            self.loop = None
            self._sync.close()
            self._woken.close()
            self._wake.close()

    async def _finish(self, client: Client) -> None:
        await asyncio.sleep(0)  # what channels have posted comes before this
        end = monotonic() + _CLOSE_TIME
        while self._tasks and (left := end - monotonic()) > 0:  # one may begin another
            await asyncio.wait(self._tasks, timeout=left)
        async with client:
            pass  # gives back what came to leases that were cancelled
        await client._link.ping(0.5)

    def run(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        """Run something in the thread with the connection, and wait for it."""
        if self._pid != os.getpid():
            raise LostError("this connection is of the process that this one was forked from")
        try:
            return self._sync.run(work)
        except e.PQError as error:
            if error.is_passing and error.reason != "full":
                raise LostError(str(error)) from error
            raise

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call something in the thread with the connection soon, unless it is closed."""
        if self.loop and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(function, *args)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background, in that thread."""
        task = asyncio.get_running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: Any) -> None:
        """Have the end of the connection wait for a task in that thread."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _closed(self) -> None:
        if self.loop:
            self.fail(LostError("the connection to NATS is closed"))

    def fail(self, error: e.PQError) -> None:
        """Have the consumer hear that trying again cannot help."""
        self._failure = error
        self._wake_up()

    # Core NATS

    def publish(self, subject: str, headers: dict[str, str], data: bytes) -> None:
        """Publish over core NATS: whoever listens gets it, and nobody knows. Errors: LostError, TooLargeError."""

        async def send(client: Client) -> None:
            nc, size = client.nc, len(header_block(list(headers.items()))) + len(data)
            if nc.is_connected and size > nc.max_payload:
                raise e.TooLargeError(f"a message of {size} bytes: the NATS server takes {nc.max_payload} at most")
            try:
                await nc.publish(subject, data, headers=headers)
            except nats.errors.Error as error:
                raise e.NotSentError(f"a message on {subject}: {error}") from error

        self.run(send)

    def queue(self, name: str) -> _Queue:
        """Return what is known of a queue."""
        if name not in self.queues:
            with _LOCK:
                key = f"{self.own['servers']} {self.own['core_prefix']} {name}"
                self.queues[name] = _Queue(name, _MAILBOXES.setdefault(key, _Mailbox()))
        return self.queues[name]

    def forget(self, name: str) -> None:
        """Listen no more for a queue that is deleted."""
        for subscription in self.queues.pop(name).listening.values():
            self.post(self._unsubscribe, subscription)

    def _unsubscribe(self, subscription: Any) -> None:
        self.spawn(subscription.unsubscribe())

    def listen(self, queue: _Queue, subject: str, pattern: str) -> None:
        """Have a queue get what is published on a subject, once it is consumed or at once if it is transient."""
        queue.sources.setdefault(subject, set()).add(pattern)
        if queue.mailbox.is_transient or queue.mailbox.consumers:
            self.subscribe(queue)

    def subscribe(self, queue: _Queue) -> None:
        """Listen for a queue from now on."""

        async def receive(subject: str, message: Msg) -> None:
            token = message.subject.rpartition(".")[2]
            key = "" if token == "%" else unquote(token)
            if any(re.match(pattern, key) for pattern in queue.sources.get(subject, ())):
                if queue.mailbox.keep(message):
                    text = "messages over core NATS that nobody took are dropped, the oldest of the largest queue first"
                    _LOG.log(self._seldom.level("kept"), text)
                self._tell(queue.mailbox)

        async def subscribe(client: Client) -> None:
            for subject in wanted:
                queue.listening[subject] = await client.nc.subscribe(
                    subject, _token(queue.name), partial(receive, subject), pending_msgs_limit=0, pending_bytes_limit=0
                )
            await client._link.ping(2.0)  # from now on, an answer to what this process sends arrives

        if wanted := queue.sources.keys() - queue.listening.keys():
            self.run(subscribe)

    # Consumers

    def consume(self, consumer: _Consumer) -> None:
        """Have a consumer get the messages of its queue."""
        with _LOCK:
            consumer.queue.mailbox.consumers.append(consumer)
        self._tell(consumer.queue.mailbox)
        self.subscribe(consumer.queue)

    def cancel(self, consumer: _Consumer) -> None:
        """End a consumer. What it has not got goes back."""
        with _LOCK, self._lock:
            consumer.is_over = True
            consumer.queue.mailbox.consumers.remove(consumer)
            came, self.ready = self.ready, deque()
        for entry in came:
            (self._put_back if entry[0] is consumer else self.put)(*entry)

    def _put_back(self, consumer: _Consumer, came: _Held | None) -> None:
        if came:
            came.channel._settle(came.tag, Delivery.snooze)
        else:
            self._tell(consumer.queue.mailbox)

    def _tell(self, mailbox: _Mailbox) -> None:
        """Have the latest consumer of a mailbox take what is there."""
        with _LOCK:
            consumer = mailbox.consumers[-1] if mailbox.consumers and (mailbox.kept or mailbox.gone) else None
        if consumer:
            consumer.channel._transport.put(consumer, None)

    def put(self, consumer: _Consumer, came: _Held | None) -> None:
        """Have a consumer get a message, and wake it."""
        with self._lock:
            if not consumer.is_over and (came or (consumer, None) not in self.ready):
                self.ready.append((consumer, came))
        if consumer.is_over:
            self._put_back(consumer, came)
        self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # it is closed, or has been told often enough
            self._wake.send(b"\0")

    def _next(self) -> bool:
        """Hand over a message, and report whether there was one. Errors: what ended the connection."""
        if self._failure:
            raise self._failure
        with self._lock:
            if not self.ready:
                return False
            consumer, came = self.ready.popleft()
        got = came or (None if consumer.is_over else consumer.queue.mailbox.take())
        if came is None:
            self._tell(consumer.queue.mailbox)  # if there is more
        if consumer.is_over:
            self._put_back(consumer, came)
        elif got and (message := consumer.channel.read(got, consumer.no_ack)):
            try:
                consumer.callback(message)
            except (*self.connection_errors, e.PQError):
                raise
            except Exception as error:
                if not isinstance(came, _Held) or came.tag not in consumer.channel._held:
                    raise
                _LOG.exception("cannot take %s", came)
                why = f"a worker cannot take it: {text_of(error)}"
                consumer.channel._settle(came.tag, partial(Delivery.term, reason=why))
        self.post(consumer.channel._changed)
        return True

    def drain_events(self, connection: Transport, timeout: float | None = None) -> None:
        """Hand over a message, and wait for one. Errors: socket.timeout; what ended the connection."""
        end = None if timeout is None else monotonic() + timeout
        while not self._next():
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                raise socket.timeout
            self._woken.settimeout(left)
            self._woken.recv(4096)

    def register_with_event_loop(self, connection: Transport, loop: Any) -> None:
        """Have the event loop of a worker hand over messages as they come."""
        self.is_looping = True
        loop.add_reader(self._woken, self.on_readable, connection, loop)
        self._wake_up()

    def on_readable(self, connection: Transport, loop: Any) -> None:
        """Hand over what has come."""
        self._woken.settimeout(0)
        with contextlib.suppress(OSError):
            self._woken.recv(4096)
        if self._failure:
            loop.call_soon(self._next)  # raises it, where the loop does not only log it
        elif self._next() and self.ready:  # one at a time, as a worker that runs it itself may have to stop
            self._wake_up()


class Request(celery_request.Request):
    """A task under way, which knows its eta, and whose message learns why it is rejected."""

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        self._request_dict["eta"] = self._request_dict.pop(_DUE, None) or self._request_dict.get("eta")

    def on_accepted(self, *args: Any, **kwargs: Any) -> Any:
        self._message.is_begun = True
        return super().on_accepted(*args, **kwargs)

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        error = getattr(exc_info.exception, "exc", None) or exc_info.exception
        self._message.why = str(error.reason) if isinstance(error, Reject) and error.reason else text_of(error)
        return super().on_failure(exc_info, *args, **kwargs)


@signals.worker_init.connect(weak=False)
def _name_reasons(sender: Any, **_: Any) -> None:
    """Have the tasks of a worker say why they are rejected, unless they have a request of their own."""
    if sender.app.connection_for_read().transport_cls == "pqbridge" and Task.Request.startswith("celery."):
        Task.Request = f"{__name__}:Request"


@signals.worker_ready.connect(weak=False)
def _tell_order(sender: Any, **_: Any) -> None:
    """Say what fetching ahead does to the order of priorities, unless nothing is."""
    late = all(task.acks_late for name, task in sender.app.tasks.items() if not name.startswith("celery."))
    n, free = sender.initial_prefetch_count, sender.pool.num_processes
    free = max(free, sender.controller.max_concurrency or 0) if hasattr(sender.pool, "grow") else free
    if sender.app.connection_for_read().transport_cls == "pqbridge" and not (late and 0 < n <= free):
        text = "this worker fetches %s tasks for %s processes, and one of a higher priority waits for these: want %s"
        want = "task_acks_late, worker_prefetch_multiplier=1 and, with the pool solo, -c 1 (docs/celery.md, Order)"
        _LOG.warning(text, n or "all", free, want)


TRANSPORT_ALIASES["pqbridge"] = f"{__name__}:Transport"
