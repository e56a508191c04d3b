"""Celery on queues of pqbridge: a transport of kombu, which importing this module registers.

    import pqbridge.celery

    app = Celery("shop", broker="pqbridge://127.0.0.1:4222")

docs/celery.md of the project says how to move an application here, and what is different.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import inspect
import logging
import os
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import uuid4
from weakref import WeakValueDictionary

import nats.errors
from amqp.protocol import queue_declare_ok_t
from celery import current_app, signals
from celery.app.task import Task
from celery.exceptions import Reject
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker import request as celery_request
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.compat import detect_environment
from kombu.utils.json import dumps, loads
from kombu.utils.url import maybe_sanitize_url
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from . import errors as e
from .client import Client
from .delivery import Delivery, Renewal, Seldom, repeat
from .headers import header_block
from .job import text_of
from .queue import Queue, lease_length
from .sync import Client as SyncClient
from .times import Pause, seconds

_LOG = logging.getLogger("pqbridge.celery")
_IDLE_WAIT = 300.0  # seconds that one request waits for a message
_MOST = 100  # messages of one request
_AHEAD = 16  # messages that wait for their consumer, where no prefetch count limits them
_KEPT = 10_000  # messages of core NATS that wait for their consumer
_TURN = 64  # messages that the event loop of a worker takes before it looks at something else
_CLOSE_TIME = 5.0  # seconds for which a connection that closes tries to settle messages
_META = "Kombu"  # the header with all of a message but its body
_ID = "pqbridge-id"  # the property that makes a repeated publish happen once
_VALID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TAGS = count(1)
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)

T = TypeVar("T")


class LostError(e.PQError, ConnectionError):
    """NATS or the bridge is away: kombu tries again, as the policy of the caller says."""


# Options


class Options(NamedTuple):
    """What the URLs of a connection and its transport options say."""

    servers: list[str] | None
    nats: dict[str, Any]
    own: dict[str, Any]


_OWN: dict[str, Any] = {
    "prefix": "pq",
    "core_prefix": "celery",
    "ack_wait": None,
    "timeout": "10s",
    "smallest_first": False,
    "group_header": "",
    "tls_ca": "",
    "tls_cert": "",
    "tls_key": "",
}
_KOMBU = ("max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout")
_NATS = {n: p.default for n, p in inspect.signature(NATS.connect).parameters.items() if n not in ("self", "servers")}


def _from_text(name: str, text: str) -> Any:
    """Return an option as a URL has it, as a value of the kind that its default is."""
    default = False if name == "tls" else {**_NATS, **_OWN}.get(name)
    try:
        if isinstance(default, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return type(default)(text) if isinstance(default, (int, float)) else text
    except (KeyError, ValueError):
        want = type(default).__name__
        raise e.BadArgumentError(f"option {name}={text!r} of the broker's URL: want a {want}") from None


def options_of(urls: Iterable[str], given: dict[str, Any]) -> Options:
    """Read the URLs of a connection, which fails over among them, and its transport options.

    Errors: BadArgumentError, which names what is unknown or cannot be.
    """
    servers, all = [], dict[str, Any]()
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "pqbridge" or parts.path.strip("/") or parts.fragment:
            want = "pqbridge://user:password@host:4222?option=value, several separated by semicolons"
            raise e.BadArgumentError(f"broker {maybe_sanitize_url(url)!r}: want {want}")
        of_url = {name: _from_text(name, text) for name, text in parse_qsl(parts.query, keep_blank_values=True)}
        if parts.password:
            of_url |= {"user": unquote(parts.username or ""), "password": unquote(parts.password)}
        elif parts.username:
            of_url["token"] = unquote(parts.username)
        for name, value in of_url.items():
            if all.setdefault(name, value) != value:
                raise e.BadArgumentError(f"option {name} differs between the broker's URLs: one value holds for all")
        if parts.hostname:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            servers.append(f"{host}:{parts.port or Transport.default_port}")

    all |= {name: value for name, value in given.items() if value is not None}
    if unknown := sorted(all.keys() - _OWN.keys() - _NATS.keys() - set(_KOMBU)):
        known = ", ".join([*_OWN, *_NATS])
        raise e.BadArgumentError(f"unknown option {', '.join(unknown)} of the broker's URL or options: want {known}")
    own = {name: all.pop(name, default) for name, default in _OWN.items()}
    own["ack_wait"], own["timeout"] = lease_length(own["ack_wait"]) or None, seconds(own["timeout"])
    options = {name: value for name, value in all.items() if name not in _KOMBU}
    tls = options.pop("tls", None)
    if own["tls_ca"] or own["tls_cert"]:
        tls = ssl.create_default_context(cafile=own["tls_ca"] or None)
        if own["tls_cert"]:
            tls.load_cert_chain(own["tls_cert"], own["tls_key"] or None)
    if isinstance(tls, ssl.SSLContext):
        options["tls"] = tls
    scheme = "tls" if tls else "nats"
    return Options([f"{scheme}://{server}" for server in servers] or None, options, own)


# Messages


def checked_name(name: str) -> str:
    """Return the name of a queue. Errors: BadArgumentError, with a name that would do."""
    if not _VALID.fullmatch(name):
        like = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:128] or "celery"
        raise e.BadArgumentError(f"queue {name!r}: want 1 to 128 letters, digits, - and _, such as {like!r}")
    return name


def _token(name: str) -> str:
    """Return a name as one token of a subject."""
    return quote(name, safe="@").replace(".", "%2E") or "%"


def _routing_key(subject: str) -> str:
    """Return the routing key that is the last token of a subject."""
    token = subject.rpartition(".")[2]
    return "" if token == "%" else unquote(token)


def _pack(message: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Return a message of kombu as headers and bytes."""
    body, meta = message["body"], {name: part for name, part in message.items() if name != "body"}
    meta["properties"] = {name: value for name, value in meta["properties"].items() if name != _ID}
    headers = {_META: dumps(meta), "Content-Type": message.get("content-type") or "application/data"}
    return headers, body.encode() if isinstance(body, str) else bytes(body or b"")


def _unpack(headers: Any, body: bytes) -> dict[str, Any]:
    """Return the message of kombu that _pack wrote, or one of a task that any other program pushed.

    The latter has the name of the task as its type, and [args, kwargs, {}] as its value.

    Errors: ValueError.
    """
    message: dict[str, Any] = {"content-type": "application/json", "content-encoding": "utf-8"}
    message |= loads(headers.get(_META, "{}"))
    message.setdefault("properties", {}).setdefault("delivery_info", {})
    own = message.setdefault("headers", {})
    if _META not in headers:
        if not headers.get("Type"):
            raise ValueError("not a message of kombu, nor of a task: it has no type")
        own |= {"task": headers["Type"], "id": headers.get("task_id") or headers["Pq-Id"], "lang": "py"}
    message["body"] = body
    return message


def _due(text: Any) -> Any:
    """Return the eta of a task as a time with a zone."""
    return maybe_make_aware(maybe_iso8601(text), current_app.conf.timezone)


class PQMessage(virtual.Message):
    """A message as its consumer gets it."""

    why = ""  # it is rejected


class _Held:
    """A leased message, from its lease to its acknowledgement."""

    def __init__(self, channel: PQChannel, queue: str, delivery: Delivery) -> None:
        self.channel, self.queue, self.delivery = channel, queue, delivery
        self.tag = f"{delivery.id}.{next(_TAGS)}"
        self.message: PQMessage | None = None  # once the consumer has it
        self.unknown = False  # whether an acknowledgement may have counted
        self.renewal = Renewal(delivery, self._lost, _LOG, channel.seldom)

    def _lost(self, error: e.PQError) -> None:
        _LOG.warning("lost the lease of %s, which runs again: %s", self, error)

    def __str__(self) -> str:
        headers = self.delivery.headers
        return f"{headers.get('Type', 'message')}[{headers.get('task_id', self.delivery.id)}]"


class _Consumer(NamedTuple):
    channel: PQChannel
    tag: str
    no_ack: bool
    callback: Callable[[PQMessage], Any]


class _Mailbox:
    """What has come from core NATS for a queue to any connection of this process.

    Celery declares where results come to on another connection than the one that consumes them.
    """

    def __init__(self) -> None:
        self.is_transient = False
        self.kept: deque[Msg] = deque(maxlen=_KEPT)  # until there is a consumer
        self.consumers: list[_Consumer] = []


class _Queue:
    """What a connection knows of a queue, and where it listens for it in core NATS."""

    def __init__(self, name: str, mailbox: _Mailbox) -> None:
        self.name, self.mailbox = name, mailbox
        self.consumer: _Consumer | None = None
        self.sources: dict[str, list[str] | None] = {}  # patterns of routing keys by subject, None for all
        self.listening: dict[str, Subscription] = {}


_LOCK = threading.Lock()
_MAILBOXES: WeakValueDictionary[tuple[Any, ...], _Mailbox] = WeakValueDictionary()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_MAILBOXES.clear)


class PQChannel(virtual.Channel):
    """Publishes tasks as items of queues, and leases them; everything else goes over core NATS.

    Items are tasks, and persistent messages to direct exchanges.
    """

    Message = PQMessage
    supports_fanout = True

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self._transport, self.seldom = connection, Seldom()
        self._prefetch, self.closed = 0, False
        self._held: dict[str, _Held] = {}
        # Of the thread with the connection to NATS:
        self._fetchers: dict[str, asyncio.Task[None]] = {}
        self._waits: set[asyncio.Task[Delivery | None]] = set()  # each is for one message, if there is room by then
        self._asked = 0  # for so many messages there is room, and requests under way
        self._room = asyncio.Event()
        self._acks: list[_Held] = []
        self._acking: asyncio.Task[None] | None = None

    # Declaring

    def queue_declare(self, queue: str | None = None, passive: bool = False, **options: Any) -> Any:
        """Note a queue, which needs no creation. Only a passive declaration counts its messages."""
        name = queue or f"gen-{uuid4()}"
        known = self._transport.queue(name)
        if not passive:
            known.mailbox.is_transient = bool(
                options.get("exclusive") or options.get("auto_delete") or not options.get("durable", True)
            )
            self._transport.listen(known, self._subject("", name), None)
        return queue_declare_ok_t(name, self._size(name) if passive else 0, 0)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        kind, known = self.typeof(exchange).type, self._transport.queue(queue)
        if kind == "direct":
            self._transport.listen(known, self._subject(exchange, routing_key), None)
        else:
            self._transport.listen(known, self._subject(exchange, None), pattern)

    def _subject(self, exchange: str, routing_key: str | None) -> str:
        last = "*" if routing_key is None else _token(routing_key)
        return f"{self._transport.options.own['core_prefix']}.{_token(exchange)}.{last}"

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        """Remove the messages of a queue, and forget it."""
        if not if_empty or not self._size(queue):
            self._purge(queue)
            self._transport.forget(queue)
            self.state.queue_bindings_delete(queue)
            for exchange in self.state.exchanges.values():
                exchange["table"] = [meta for meta in exchange["table"] if meta[-1] != queue]

    def _has_items(self, queue: _Queue) -> bool:
        """Report whether a queue is one of the bridge too.

        Errors: BadArgumentError for one that tasks are sent to, and that cannot have this name.
        """
        types = {self.typeof(binding.exchange).type for binding in self.state.queue_bindings(queue.name)}
        if types == {"fanout"}:
            return False
        if not _VALID.fullmatch(queue.name) and not queue.mailbox.is_transient and not queue.name.endswith(".pidbox"):
            checked_name(queue.name)
        return bool(_VALID.fullmatch(queue.name))

    def _size(self, queue: str) -> int:
        known = self._transport.queue(queue)
        items = self._has_items(known) and not known.mailbox.is_transient
        return len(known.mailbox.kept) + (self._transport.run(lambda c: c.priority_queue(queue).len()) if items else 0)

    def _purge(self, queue: str) -> int:
        known = self._transport.queue(queue)
        purged = len(known.mailbox.kept)
        known.mailbox.kept.clear()
        if self._has_items(known) and not known.mailbox.is_transient:
            for state in ("ready", "delayed"):
                purged += self._transport.run(partial(_purge, queue, state))
        return purged

    # Publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Publish a message. An item is durable once this returns, and is there once if kombu repeats this.

        Errors: LostError; TooLargeError; BadArgumentError for a task that no queue would get.
        """
        properties = message["properties"]
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        properties.setdefault(_ID, str(uuid4()))
        kind, is_task = self._type_of(exchange), "task" in message["headers"]
        if kind != "fanout" and (is_task or (kind == "direct" and properties.get("delivery_mode") != 1)):
            if queues := [name for name in self._lookup(exchange, routing_key) if self._is_stored(name, is_task)]:
                for queue in queues:
                    self._push(checked_name(queue), message)
                return
            if is_task:
                want = "send the task to a queue by its name, or declare what is bound to the exchange"
                raise e.BadArgumentError(f"no queue is bound to exchange {exchange!r} by {routing_key!r} here: {want}")
        self._transport.publish(self._subject(exchange, routing_key), *_pack(message))

    def _type_of(self, exchange: str) -> str:
        """Return the type of an exchange. Celery declares none of those that broadcast tasks."""
        if exchange and exchange not in self.state.exchanges:
            for queue in current_app.amqp.queues.values():
                if queue.exchange and queue.exchange.name == exchange:
                    return str(queue.exchange.type)
        return str(self.typeof(exchange).type) if exchange else "direct"

    def _is_stored(self, queue: str, is_task: bool) -> bool:
        known = self._transport.queues.get(queue)
        return is_task or not (known and known.mailbox.is_transient)

    def _push(self, queue: str, message: dict[str, Any]) -> None:
        own, properties, options = message["headers"], message["properties"], self._transport.options.own
        headers, value = _pack(message)
        if "id" in own:
            headers["task_id"] = str(own["id"])
        if not isinstance(priority := properties.get("priority") or 0, int):
            raise e.BadArgumentError(f"priority {priority!r}: want an integer")
        push: dict[str, Any] = {
            "type": own.get("task"),
            "headers": headers,
            "msg_id": properties[_ID],
            "priority": priority if options["smallest_first"] else -priority,
        }
        if own.get("eta"):
            push["at"] = _due(own["eta"])
        if properties.get("expiration"):  # of AMQP, in milliseconds
            push["ttl"] = max(1.0, int(properties["expiration"]) / 1000)
        if group := own.get(options["group_header"]):
            push["group"] = str(group)
        self._transport.run(lambda c: c.priority_queue(queue).push(value, **push))

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[PQMessage], Any], consumer_tag: str, **_: Any
    ) -> None:
        """Have a consumer get the messages of a queue."""
        known, transport = self._transport.queue(queue), self._transport
        has_items = self._has_items(known)
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        transport.consume(known, _Consumer(self, consumer_tag, no_ack, callback))
        if has_items:
            transport.post(self._begin, consumer_tag, queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. Messages that it has not got yet go back."""
        if consumer_tag in self._consumers:
            self._consumers.discard(consumer_tag)
            self._transport.post(self._end, consumer_tag)
            self._transport.cancel(self._transport.queue(self._tag_to_queue.pop(consumer_tag)), consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> PQMessage | None:
        """Return a message of a queue, if there is one."""
        known, transport = self._transport.queue(queue), self._transport
        transport.subscribe(known)
        while known.mailbox.kept:
            if message := self.received(known.mailbox.kept.popleft()):
                return message
        if not self._has_items(known):
            return None

        async def lease(c: Client) -> _Held | None:
            delivery = await c.priority_queue(queue).lease(ack_wait=transport.options.own["ack_wait"])
            return self._hold(queue, delivery) if delivery else None

        held = transport.run(lease)
        return self.leased(held, no_ack) if held else None

    def received(self, message: Msg) -> PQMessage | None:
        """Return a message of core NATS as its consumer gets it, None if it cannot be read."""
        try:
            raw = _unpack(message.headers or {}, message.data)
            raw["properties"]["delivery_tag"] = f"core.{next(_TAGS)}"
            return PQMessage(raw, channel=self)
        except _UNREADABLE as error:
            _LOG.warning("cannot read a message on %s: %s", message.subject, error)
            return None

    def leased(self, held: _Held, no_ack: bool) -> PQMessage | None:
        """Return a leased message as its consumer gets it, None if it cannot be read or its lease is lost."""
        delivery = held.delivery
        if held.renewal.lost:
            self._settle(held.tag, None)
            return None
        try:
            raw = _unpack(delivery.all, delivery.value)
            if raw["headers"].get("eta"):
                raw["headers"]["eta"] = None  # it is due: Celery would count it as one more that waits
            raw["properties"]["delivery_tag"] = held.tag
            raw["properties"]["delivery_info"]["redelivered"] = delivery.deliveries > 1
            held.message = PQMessage(raw, channel=self)
        except _UNREADABLE as error:
            text = f"cannot read the message: {text_of(error)}"
            _LOG.error("%s is a dead letter: %s", held, text)
            self._settle(held.tag, partial(Delivery.term, reason=text))
            return None
        if no_ack:
            self.basic_ack(held.tag)
        return held.message

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many messages may be unacknowledged, 0 for any number."""
        if apply_global or prefetch_size:
            raise NotImplementedError("QoS in bytes, or for all consumers of a connection: set a prefetch count")
        self._prefetch = prefetch_count
        self._transport.post(self._changed)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, from any thread. It never waits."""
        tags = list(self._held)
        for tag in tags[: tags.index(delivery_tag)] if multiple and delivery_tag in tags else ():
            self._settle(tag)
        self._settle(delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Have a message come back, after the backoff of its queue if there is one, or make it a dead letter."""
        held = self._held.get(delivery_tag)
        if held is None:
            return
        why, task = held.message.why if held.message else "", held.delivery.headers.get("Type")
        if not why and task and task not in current_app.tasks:
            why = f"this worker has no task {task!r}"
        if requeue:
            self._settle(delivery_tag, partial(Delivery.nak, retry_delay=0, reason=why or "requeued"))
        else:
            self._settle(delivery_tag, partial(Delivery.term, reason=why or "rejected"))

    def basic_recover(self, requeue: bool = False) -> None:
        """Give back all that is unacknowledged."""
        if not requeue:
            raise NotImplementedError("recover(requeue=False): want requeue=True")
        for tag in list(self._held):
            self._settle(tag, Delivery.snooze)

    def tx_select(self, *_: Any) -> None:
        """Transactions of channels do not exist."""
        raise NotImplementedError("transactions of channels: the message of each publish is durable once it returns")

    tx_commit = tx_rollback = tx_select

    def close(self) -> None:
        """Cancel all consumers, and give back what is unacknowledged, without counting the delivery."""
        if not self.closed:
            self.closed = True
            for tag in list(self._consumers):
                self.basic_cancel(tag)
            self.basic_recover(requeue=True)
            self._transport.close_channel(self)
        self.exchange_types = None

    # In the thread with the connection to NATS

    def _hold(self, queue: str, delivery: Delivery) -> _Held:
        held = _Held(self, queue, delivery)
        self._held[held.tag] = held
        self._changed()
        return held

    def _free(self) -> int:
        """Return how many more messages this channel may have."""
        taken = self._prefetch - len(self._held) if self._prefetch else _AHEAD - len(self._transport.ready)
        return taken - self._asked

    def _changed(self) -> None:
        """Go on, or ask for nothing more, as there is room or not."""
        if self._free() > 0:
            self._room.set()
            return
        for wait in self._waits:
            wait.cancel()

    def _begin(self, consumer_tag: str, queue: str) -> None:
        self._fetchers[consumer_tag] = self._transport.spawn(self._fetch(consumer_tag, queue))

    def _end(self, consumer_tag: str) -> None:
        if fetcher := self._fetchers.pop(consumer_tag, None):
            fetcher.cancel()

    async def _fetch(self, consumer_tag: str, name: str) -> None:
        """Lease the messages of a queue as long as there is room for them."""
        queue, pause, more = self._transport.pq.priority_queue(name), Pause(), False
        while True:
            while (room := self._free()) <= 0:
                self._room.clear()
                await self._room.wait()
            n = min(room, _MOST) if more else 1
            try:
                got = await (self._lease(queue, n) if n > 1 else self._wait(queue))
                more = len(got) == n
                for delivery in got:
                    await self._take(consumer_tag, name, delivery)
                pause.reset()
            except e.PQError as error:
                more = False
                if self._transport.pq.nc.is_closed or isinstance(error, (e.BadRequestError, e.DeniedError)):
                    if not isinstance(error, e.DeniedError) or not self._transport.queue(name).mailbox.is_transient:
                        self._transport.fail(error)
                    return
                _LOG.log(self.seldom.level("lease"), "cannot lease from queue %s, trying again: %s", name, error)
                await pause.wait()

    async def _lease(self, queue: Queue, n: int) -> list[Delivery]:
        """Lease what there is, up to n messages."""
        self._asked += n
        try:
            return await queue.lease_batch(n, ack_wait=self._transport.options.own["ack_wait"])
        except e.OverloadedError as error:
            if error.reason in ("limit", "rate"):
                return []  # a request that waits is served once the queue may deliver again
            raise
        finally:
            self._asked -= n

    async def _wait(self, queue: Queue) -> list[Delivery]:
        """Wait for one message, for as long as there is room."""
        lease = queue.lease(ack_wait=self._transport.options.own["ack_wait"], expires=_IDLE_WAIT)
        wait = self._transport.spawn(lease)
        self._waits.add(wait)
        try:
            await asyncio.wait({wait})
        finally:
            self._waits.discard(wait)
            wait.cancel()  # if this was cancelled
        delivery = None if wait.cancelled() else wait.result()
        return [delivery] if delivery else []

    async def _take(self, consumer_tag: str, name: str, delivery: Delivery) -> None:
        try:
            if self._free() > 0 and consumer_tag in self._consumers:
                await delivery.confirm()
                self._transport.put(self._transport.queue(name), self._hold(name, delivery))
            else:
                await delivery.snooze()
        except e.PQError as error:
            _LOG.info("a message of queue %s comes back when its lease is over: %s", name, error)

    def _settle(self, tag: str, send: Callable[[Delivery], Awaitable[None]] | None = Delivery.ack) -> None:
        """End a lease from any thread, once. Without a request to send, the lease is lost."""
        if held := self._held.pop(tag, None):
            self._transport.post(self._settling, held, send)

    def _settling(self, held: _Held, send: Callable[[Delivery], Awaitable[None]] | None) -> None:
        lost = held.renewal.end()
        self._changed()
        if lost or send is None:
            _LOG.warning("%s was settled too late: it runs again", held)
        elif send is not Delivery.ack:
            self._transport.spawn(self._send_back(held, send), settles=True)
        else:
            self._acks.append(held)
            if self._acking is None or self._acking.done():
                self._acking = self._transport.spawn(self._acknowledge(), settles=True)

    async def _send_back(self, held: _Held, send: Callable[[Delivery], Awaitable[None]]) -> None:
        pause = Pause()

        async def go_on(error: e.PQError) -> bool:
            return await self._go_on(held, error, pause)

        try:
            await repeat(lambda: send(held.delivery), go_on)
        except e.PQError as error:
            _LOG.warning("%s was settled too late: %s", held, error)

    async def _acknowledge(self) -> None:
        """Acknowledge all that is done, in as few requests as possible, until there are answers."""
        pause = Pause()
        while self._acks:
            batch, self._acks = self._acks, []
            outcomes = await self._transport.pq.ack_all([held.delivery for held in batch])
            failed = [(held, error) for held, error in zip(batch, outcomes, strict=True) if error]
            for held, error in failed:
                if isinstance(error, e.LeaseLostError):
                    if not held.unknown:
                        _LOG.warning("%s was acknowledged too late, and runs again: %s", held, error)
                elif await self._go_on(held, error, pause if held is failed[-1][0] else None):
                    held.unknown = held.unknown or error.unknown
                    self._acks.append(held)

    async def _go_on(self, held: _Held, error: e.PQError, pause: Pause | None) -> bool:
        """Report whether to send what ends a lease once more, after a pause."""
        if not error.is_passing or self._transport.pq.nc.is_closed:
            _LOG.error("cannot settle %s, which comes back: %s", held, error)
            return False
        _LOG.log(self.seldom.level("settle"), "cannot settle %s, trying again: %s", held, error)
        if pause:
            await pause.wait()
        return True


class Transport(virtual.Transport):
    """A connection to NATS in a thread of its own, which renews leases whatever the consumer does.

    It reconnects by itself, so kombu hears of an outage only while it connects or publishes.
    """

    Channel = PQChannel
    can_parse_url = True
    default_port = 4222
    driver_type, driver_name = "pqbridge", "nats-py"
    connection_errors = (*virtual.Transport.connection_errors, LostError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(("direct", "topic", "fanout")), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        if client.ssl:
            raise e.BadArgumentError("broker_use_ssl: want tls_ca, tls_cert and tls_key as transport options")
        if detect_environment() != "default":
            raise e.BadArgumentError(f"{detect_environment()}: want the pool prefork, threads or solo")
        self.options = options_of(client.alt or [client.hostname], client.transport_options)
        client.cycle = None  # nats-py fails over by itself, and kombu cannot read such URLs then
        own = self.options.own
        self._sync = SyncClient(
            self.options.servers, timeout=own["timeout"], nats=self.options.nats, prefix=own["prefix"]
        )
        self.queues: dict[str, _Queue] = {}
        self.ready: deque[tuple[_Queue, _Held | Msg]] = deque()  # what consumers get next
        self._arrived = threading.Condition()
        self._failure: e.PQError | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None  # for the event loop of a worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._settles: set[asyncio.Task[Any]] = set()
        self._pid = os.getpid()

    def driver_version(self) -> str:
        """Return the version of nats-py."""
        return importlib.metadata.version("nats-py")

    # Connecting

    def establish_connection(self) -> Transport:
        """Connect to NATS. Errors: LostError if no server is there within the timeout."""
        self._failure = None
        self.run(self._connected)
        self._avail_channels.append(self.create_channel(self))
        return self

    async def _connected(self, client: Client) -> None:
        self.pq, self._loop = client, asyncio.get_running_loop()

    def verify_connection(self, connection: Transport) -> bool:
        """Report whether the connection can still be used."""
        return self._failure is None

    def close_connection(self, connection: Transport) -> None:
        """Give back what is unacknowledged, send the acknowledgements under way, and disconnect."""
        if self._pid != os.getpid():  # in a child, which has nothing of this
            return
        for channel in [*self._avail_channels, *self.channels]:
            channel.close()
        self._avail_channels.clear()
        if self._loop:
            with contextlib.suppress(e.PQError):
                self._sync.run(self._finish)
            self._loop = None
            self._sync.close()
        if self._wake:
            if self._hub:
                self._hub.remove(self._wake[0])
            for end in self._wake:
                end.close()
            self._wake = None

    async def _finish(self, client: Client) -> None:
        for _ in range(2):  # what channels have posted comes before this
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        if self._settles:
            await asyncio.wait(self._settles, timeout=_CLOSE_TIME)
        async with client:  # gives back what came to leases that were cancelled
            pass
        await client._link.ping(0.5)

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run something in the thread with the connection, and wait for it."""
        try:
            return self._sync.run(work)
        except e.PQError as error:
            if error.is_passing and error.reason != "full":
                raise LostError(str(error)) from error
            raise

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call something in the thread with the connection soon, unless it is closed."""
        if self._loop and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *args)

    def spawn(self, work: Coroutine[Any, Any, T], settles: bool = False) -> asyncio.Task[T]:
        """Run something in the background, in that thread. What settles a message is not cancelled at the end."""
        task = asyncio.get_running_loop().create_task(work)
        tasks = self._settles if settles else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def fail(self, error: e.PQError) -> None:
        """Have the consumer hear that trying again cannot help."""
        closed = self.pq.nc.is_closed
        with self._arrived:
            self._failure = LostError(str(error)) if closed else error
            self._arrived.notify()
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
            broker = (*(self.options.servers or ()), self.options.own["core_prefix"], name)
            with _LOCK:
                self.queues[name] = _Queue(name, _MAILBOXES.setdefault(broker, _Mailbox()))
        return self.queues[name]

    def listen(self, queue: _Queue, subject: str, pattern: str | None) -> None:
        """Have a queue get what is published on a subject, once it is consumed or at once if it is transient."""
        patterns = queue.sources.setdefault(subject, [] if pattern else None)
        if patterns is not None and pattern:
            patterns.append(pattern)
        if queue.mailbox.is_transient or queue.consumer:
            self.subscribe(queue)

    def subscribe(self, queue: _Queue) -> None:
        """Listen for a queue from now on."""
        wanted = [subject for subject in queue.sources if subject not in queue.listening]
        if not wanted:
            return

        async def receive(subject: str, message: Msg) -> None:
            patterns = queue.sources.get(subject, [])
            if patterns is None or any(re.match(pattern, _routing_key(message.subject)) for pattern in patterns):
                self._deliver_core(queue, message)

        async def subscribe(client: Client) -> None:
            for subject in wanted:
                queue.listening[subject] = await client.nc.subscribe(
                    subject, _token(queue.name), partial(receive, subject), pending_msgs_limit=0, pending_bytes_limit=0
                )
            await client._link.ping(2.0)  # from now on, an answer to what this process sends arrives

        self.run(subscribe)

    def forget(self, name: str) -> None:
        """Listen no more for a queue."""
        queue = self.queues.pop(name, None)
        if queue and queue.listening:
            self.run(lambda client: _unsubscribe(queue.listening.values()))

    def _deliver_core(self, queue: _Queue, message: Msg) -> None:
        with _LOCK:
            consumer = queue.mailbox.consumers[-1] if queue.mailbox.consumers else None
            if consumer is None:
                queue.mailbox.kept.append(message)
                return
        transport = consumer.channel._transport
        transport.put(transport.queue(queue.name), message)

    # Consumers

    def consume(self, queue: _Queue, consumer: _Consumer) -> None:
        """Have a consumer get the messages of a queue."""
        queue.consumer = consumer
        with _LOCK:
            queue.mailbox.consumers.append(consumer)
            kept = list(queue.mailbox.kept)
            queue.mailbox.kept.clear()
        for message in kept:
            self.put(queue, message)
        self.subscribe(queue)

    def cancel(self, queue: _Queue, consumer_tag: str) -> None:
        """End a consumer of a queue. What it has not got goes back."""
        with _LOCK:
            queue.mailbox.consumers = [c for c in queue.mailbox.consumers if c.tag != consumer_tag]
        if queue.consumer is None or queue.consumer.tag != consumer_tag:
            return
        queue.consumer = None
        with self._arrived:
            mine = [message for of, message in self.ready if of is queue]
            others = [entry for entry in self.ready if entry[0] is not queue]
            self.ready.clear()
            self.ready.extend(others)
        for message in mine:
            self._keep(queue, message)

    def _keep(self, queue: _Queue, message: _Held | Msg) -> None:
        """Put back what has no consumer any more."""
        if isinstance(message, _Held):
            message.channel._settle(message.tag, Delivery.snooze)
        else:
            queue.mailbox.kept.append(message)

    def put(self, queue: _Queue, message: _Held | Msg) -> None:
        """Have the consumer of a queue get a message, and wake it."""
        with self._arrived:
            self.ready.append((queue, message))
            self._arrived.notify()
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake:
            with contextlib.suppress(OSError):
                self._wake[1].send(b"\0")

    def _next(self) -> bool:
        """Hand over a message, and report whether there was one. Errors: what ended the connection."""
        if self._failure:
            raise self._failure
        with self._arrived:
            if not self.ready:
                return False
            queue, waiting = self.ready.popleft()
        consumer = queue.consumer
        if consumer is None:
            self._keep(queue, waiting)
            return True
        if isinstance(waiting, _Held):
            message = waiting.channel.leased(waiting, consumer.no_ack)
            self.post(waiting.channel._changed)
        else:
            message = consumer.channel.received(waiting)
        if message is not None:
            consumer.callback(message)
        return True

    def drain_events(self, connection: Transport, timeout: float | None = None) -> None:
        """Hand over a message, and wait for one. Errors: socket.timeout; what ended the connection."""
        end = None if timeout is None else monotonic() + timeout
        while not self._next():
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                raise socket.timeout
            with self._arrived:
                if not self.ready and not self._failure:
                    self._arrived.wait(left)

    def register_with_event_loop(self, connection: Transport, loop: Any) -> None:
        """Have the event loop of a worker hand over messages as they come."""
        if self._wake is None:
            self._wake = socket.socketpair()
            for end in self._wake:
                end.setblocking(False)
        self._hub = loop
        loop.add_reader(self._wake[0], self.on_readable, connection, loop)
        self._wake_up()

    def on_readable(self, connection: Transport, loop: Any) -> None:
        """Hand over what has come."""
        if self._wake:
            with contextlib.suppress(OSError):
                self._wake[0].recv(4096)
        if self._failure:
            loop.call_soon(self._next)  # raises it, where the loop does not only log it
            return
        for _ in range(_TURN):
            if not self._next():
                return
        self._wake_up()


async def _purge(queue: str, state: str, client: Client) -> int:
    return await client.priority_queue(queue).purge(state)


async def _unsubscribe(subscriptions: Iterable[Subscription]) -> None:
    for subscription in subscriptions:
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()


# Celery


class Request(celery_request.Request):
    """A task under way, whose message learns why it is rejected."""

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        error = getattr(exc_info.exception, "exc", None) or exc_info.exception
        if isinstance(self._message, PQMessage):
            self._message.why = str(error.reason) if isinstance(error, Reject) and error.reason else text_of(error)
        return super().on_failure(exc_info, *args, **kwargs)


@signals.worker_init.connect(weak=False)
def _name_reasons(sender: Any, **_: Any) -> None:
    """Have the tasks of a worker say why they are rejected, unless they have a request of their own."""
    if sender.app.connection_for_read().transport_cls == "pqbridge" and Task.Request == "celery.worker.request:Request":
        Task.Request = f"{__name__}:Request"


@signals.worker_ready.connect(weak=False)
def _tell_order(sender: Any, **_: Any) -> None:
    """Say what fetching ahead does to the order of priorities, unless nothing is."""
    if sender.app.connection_for_read().transport_cls != "pqbridge":
        return
    late = all(task.acks_late for name, task in sender.app.tasks.items() if not name.startswith("celery."))
    if not late or sender.prefetch_multiplier != 1:
        ahead = sender.initial_prefetch_count or "any number of"
        _LOG.warning(
            "this worker fetches %s tasks ahead, and one of a higher priority that comes later waits for them."
            " For exact order: task_acks_late=True and worker_prefetch_multiplier=1",
            ahead,
        )


TRANSPORT_ALIASES["pqbridge"] = f"{__name__}:Transport"
