"""Queues and their verbs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from .codec import Codec, encode
from .delivery import Delivery
from .errors import (
    BadArgumentError,
    BadReplyError,
    BadRequestError,
    NotDoneError,
    NotFoundError,
    NotSentError,
    PQError,
    TooLargeError,
    error_for,
)
from .headers import Headers, are_plain, header_pairs
from .item import Item, JobResult, StoredItem
from .link import Link, link_of
from .pop import Pop, Received
from .push import Message, PushAck, PushItem, PushOptions, check_priority, message
from .times import Duration, clock, duration_text, seconds, time_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MAX_FRAMES = 4096
_MAX_BATCH = 4 << 20  # bytes of a batch of push_many: larger ones are no faster
_RESULT_WAIT = 30.0
_DURATIONS = ("ack_wait", "ttl", "duplicate_window", "keep")


class Pause:
    """The time between attempts: 50 ms, twice as long after each, 2 s at most."""

    def __init__(self) -> None:
        self._next = 0.05

    def reset(self) -> None:
        """Begin again, after a success."""
        self._next = 0.05

    async def wait(self, most: float = 2.0) -> None:
        """Wait, for no longer than that many seconds."""
        await asyncio.sleep(max(0.0, min(self._next, most)))
        self._next = min(2 * self._next, 2.0)


def default_holder(nc: NATS) -> str:
    """Name this process for those who look at leases: its host, process id and connection."""
    name = nc.options.get("name") or ""
    text = f"{socket.gethostname()} pid {os.getpid()} {name}".strip()
    return "".join(c for c in text if c.isprintable())[:100]


class Queue:
    """A queue, as Client.priority_queue and Client.fifo_queue return it.

    All methods raise the errors of any request besides those that they name: BadArgumentError for
    what cannot be sent, BadRequestError, OverloadedError, InternalError, UnavailableError,
    NoBridgeError, BadReplyError, NotSentError, DeniedError, and UnknownOutcomeError if it can
    change something. An empty queue is None, not an error.
    """

    def __init__(self, nc: NATS, prefix: str, name: str, *, fifo: bool, codec: Codec, timeout: float) -> None:
        if not _NAME.fullmatch(name):
            raise BadArgumentError(f"bad queue name {name!r}: want 1 to 128 letters, digits, -, _")
        self.name = name
        self.fifo = fifo
        self.codec = codec
        self.timeout = timeout
        self.link: Link = link_of(nc)
        self.holder = default_holder(nc)
        self._prefix = f"{prefix}.{name}."

    def __repr__(self) -> str:
        return f"Queue({self._prefix[:-1]!r})"

    # Pushing

    async def push(self, value: Any, **options: Unpack[PushOptions]) -> PushAck:
        """Add an item, and return once it is durable.

        value is bytes, as they are, or anything that the codec of the client takes; for the options
        see PushOptions. The push has a random msg_id unless it has one of its own, and is repeated
        with it until the timeout of the client is over: it happens once. With msg_id="" it has
        none, and is sent once.

        Errors: TooLargeError, OverloadedError for a full queue, and those of any request.
        """
        is_random = "msg_id" not in options
        own = options.setdefault("msg_id", secrets.token_urlsafe(16))
        m = self._message(message(self.codec, value, **options))
        loop, pause = asyncio.get_running_loop(), Pause()
        end = loop.time() + self.timeout
        while True:
            try:
                # Time for a second attempt, if a reply is lost.
                ack = await self._push(m, max(0.05, min(end - loop.time(), self.timeout / 2)))
                # A duplicate of its own earlier try is none.
                return replace(ack, duplicate=False) if is_random and "unique" not in options else ack
            except PQError as error:
                left = end - loop.time()
                if left <= 0 or not own or not error.is_passing or error.reason == "full":
                    raise
                await pause.wait(left)

    def _message(self, m: Message) -> Message:
        if self.fifo and m.priority:
            raise BadArgumentError(f"priority {m.priority} in a FIFO queue: want 0")
        return m

    async def _push(self, m: Message, timeout: float) -> PushAck:
        if not are_plain(m.headers):  # which nats-py would change
            return (await self._push_batch([m], timeout))[0]
        headers = [*m.headers]
        if m.priority:
            headers.append(("Pq-Priority", str(m.priority)))
        reply = await self.link.request(self.subject("push"), m.value, headers, timeout=timeout, restless=True)
        body = _parse(reply, "id")
        return PushAck(body["id"], body.get("priority", 0), body.get("duplicate", False))

    async def _push_batch(self, batch: Sequence[Message], timeout: float) -> list[PushAck]:
        data = b"".join(m.frame() for m in batch)
        subject = self.subject("push.batch")
        body = _parse(await self.link.request(subject, data, timeout=timeout, restless=True), "ids")
        duplicates = set(body.get("duplicates", ()))
        return [
            PushAck(id, m.priority, i in duplicates) for i, (id, m) in enumerate(zip(body["ids"], batch, strict=True))
        ]

    async def push_many(self, items: Sequence[PushItem]) -> list[PushAck | PQError]:
        """Add any number of items in as few requests as possible, and return what became of each.

            outcomes = await jobs.push_many([{"value": b"a", "priority": 1}, {"value": b"b"}])

        Items of one priority are served in this order. Nothing is repeated, and nothing is sent
        after a failure: first come the items that are in the queue, then those that have failed,
        then NotSentError for the rest. With UnknownOutcomeError an item may be in the queue: push
        it again if it has a msg_id.
        """
        outcomes: list[PushAck | PQError] = []
        messages: list[Message] = []
        wrong: PQError | None = None
        try:
            for item in items:
                messages.append(self._message(message(self.codec, **item)))  # noqa: PERF401
        except BadArgumentError as error:
            wrong = error

        limit = len(messages)
        while len(outcomes) < len(messages):
            batch = self._fitting(messages[len(outcomes) : len(outcomes) + limit])
            try:
                outcomes += await self._push_batch(batch, self.timeout)
            except (BadRequestError, TooLargeError) as error:
                limit = len(batch) // 2  # look for the item at fault
                if not limit:
                    wrong = error
                    break
            except PQError as error:
                wrong = error
                outcomes += [error] * (len(batch) - 1)
                break

        if wrong:
            outcomes.append(wrong)
        rest = NotSentError(f"not sent because of an earlier item: {wrong}")
        return outcomes + [rest] * (len(items) - len(outcomes))

    def _fitting(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the first messages that fit into one batch, and whose ids fit into its reply."""
        most = self.link.nc.max_payload
        room = min(most, _MAX_BATCH)
        for n, m in enumerate(messages[: max(1, min(_MAX_FRAMES, (most - 512) // 59))]):
            room -= len(m.frame())
            if room < 0:
                return messages[: max(1, n)]
        return messages[: max(1, min(_MAX_FRAMES, (most - 512) // 59))]

    async def call(self, value: Any, *, wait: Duration | None = None, **options: Unpack[PushOptions]) -> Any:
        """Push a job, wait until a worker has done it, and return what its handler returned.

        The result is kept for an hour after the job is done, or as long as keep says. To outlast a
        crash of the caller, give a msg_id, and call again with it within the duplicate window.

        Errors: JobFailedError if the job became a dead letter; NotDoneError when wait is over (None
        waits as long as it takes), and the job goes on; NotFoundError if it was removed, popped or
        has expired; those of push.
        """
        options.setdefault("keep", 3600)
        ack = await self.push(value, **options)
        result = await self._result({"id": ack.id}, float("inf") if wait is None else seconds(wait))
        result.raise_for_death()
        if not result.is_over:
            raise NotDoneError(f"job {ack.id} is {result.state}, not done, after {wait}")
        if not result.has_result:
            return None
        typed = result.content_type == self.codec.content_type
        return self.codec.decode(result.value) if typed else result.value

    async def result(self, id: str | None = None, *, msg_id: str | None = None, wait: Duration = 0) -> JobResult:
        """Return what became of a job, by its id or, within the duplicate window, its msg_id.

        Waits until the job is done or dead, but no longer than wait; then returns the state that it
        has. Asks again after restarts of bridges and NATS servers.

        Errors: NotFoundError if there is no such job, or it is over and not kept.
        """
        if (id is None) == (msg_id is None):
            raise BadArgumentError("result: want an id or a msg_id")
        query = {"id": id} if msg_id is None else {"msg_id": msg_id}
        return await self._result(query, seconds(wait))

    async def _result(self, query: dict[str, Any], wait: float) -> JobResult:
        pause, end = Pause(), clock() + wait
        while True:
            left = end - clock()
            part = min(left, _RESULT_WAIT)
            asked = {"expires": duration_text(part)} if part >= 0.001 else {}
            try:
                reply = await self.link.request(
                    self.subject("result"),
                    json.dumps(query | asked).encode(),
                    timeout=part + 5 if asked else self.timeout,
                    writes=False,
                    restless=bool(asked),
                )
                result = JobResult(reply.data, Headers((reply.headers or {}).items()))
                if not result.state:
                    raise BadReplyError(f"not the state of a job: {reply.data[:64]!r}")
                if result.is_over or left <= _RESULT_WAIT:
                    return result
                query = {"id": result.id}  # a message id is forgotten earlier
                pause.reset()
            except PQError as error:
                if left <= 0 or not error.is_passing:
                    raise
                await pause.wait(left)

    # Popping

    async def pop(self, *, max: bool = False, expires: Duration = 0) -> Item | None:
        """Remove and return the first item: the smallest priority, the oldest among equals.

        max takes the largest priority instead, the newest among equals. expires waits that long for
        an item, up to 1 h. The item has left the queue: if this process dies, it is lost; if the
        task is cancelled, an item that was on its way may be lost. Leases lose nothing.
        """
        received = await self._pop(max, expires, {})
        return Item(received[0].value, received[0].headers) if received else None

    async def pop_batch(self, n: int, *, max: bool = False, expires: Duration = 0) -> list[Item]:
        """Remove and return up to n items, 1 to 1,000, in one transaction.

        With expires it returns once it has n items or the time is over. See pop.
        """
        received = await self._pop(max, expires, {"batch": n, "frames": True})
        return [Item(r.value, r.headers) for r in received]

    async def lease(
        self, *, ack_wait: Duration = 0, expires: Duration = 0, holder: str | None = None, max: bool = False
    ) -> Delivery | None:
        """Lease the item that pop would remove: nobody else gets it for ack_wait.

        ack_wait is 100 ms to 12 h; 0 is what the settings of the queue say, or else 30 s. holder is
        the name that others see, by default this process. See pop for the rest. If the task is
        cancelled, so is the request, and an item that still comes is given back uncounted.
        """
        options: dict[str, Any] = {
            "ack_wait": duration_text(ack_wait) if ack_wait else 0,
            "holder": self.holder if holder is None else holder,
            "frames": True,
        }
        length = seconds(ack_wait)
        received = await self._pop(max, expires, options, length)
        return Delivery(self, received[0], length) if received else None

    def pop_request(self, max: bool, expires: float, options: dict[str, Any], ack_wait: float = 0) -> Pop:
        """Return a request that pops, with the options of the protocol."""
        if max and self.fifo:
            raise BadArgumentError("max in a FIFO queue, which is served from one end")
        heartbeat = 0.0
        if expires:
            # Leases begin up to a heartbeat before the worker can know.
            heartbeat = min(5.0, ack_wait / 3 if ack_wait >= 1.5 else 0.5) if ack_wait else 5.0
            options = options | {"expires": duration_text(expires), "idle_heartbeat": duration_text(heartbeat)}
        return Pop(
            self.link,
            self.subject("pop" if self.fifo else "pop.max" if max else "pop.min"),
            options,
            acks=self.subject("ack."),
            timeout=self.timeout,
            expires=expires,
            heartbeat=heartbeat,
        )

    async def _pop(self, max: bool, expires: Duration, options: dict[str, Any], ack_wait: float = 0) -> list[Received]:
        end = clock() + seconds(expires)
        while True:
            left = end - clock()
            pop = self.pop_request(max, left if left >= 0.001 else 0, dict(options), ack_wait)
            try:
                return await pop.run()
            except NotFoundError:
                if not pop.interrupted or left <= 0:  # otherwise the connection is back: ask again
                    return []

    async def peek(self, *, max: bool = False) -> Item | None:
        """Return the item that pop would remove, and leave it in the queue."""
        verb = "peek" if self.fifo else "peek.max" if max else "peek.min"
        try:
            return _item(await self._read(verb))
        except NotFoundError:
            return None

    # Looking

    async def len(self) -> int:
        """Return the number of ready items, without leased and delayed ones."""
        return int(_parse(await self._read("len"), "len")["len"])

    async def info(self) -> dict[str, Any]:
        """Return the counts, settings and more of the queue, as the protocol has them."""
        return _parse(await self._read("info"), "queue")

    async def items(
        self, *, state: str = "", match: str = "", value_bytes: int = 1024, max: bool = False
    ) -> AsyncIterator[StoredItem]:
        """Iterate over the items, in the order in which they would be served if all were ready.

        state is "ready", "delayed", "leased" or "done"; by default the first three. match is a text
        that the value, a header, the id or the holder contains. value_bytes is how much of each
        value to return, up to 65,536. Items stay where they are; pages are not of one moment.
        """
        query: dict[str, Any] = {"value_bytes": value_bytes}
        query |= {"state": state} if state else {}
        query |= {"match": match} if match else {}
        query |= {"end": "max"} if max else {}
        while True:
            page = _parse(await self._read("items", query), "items")
            for raw in page["items"]:
                yield StoredItem.parse(raw)
            if not page["next"]:
                return
            query["after"] = page["next"]

    async def get(self, id: str | None = None, *, msg_id: str | None = None) -> Item:
        """Return an item in any state, by its id or, within the duplicate window, its msg_id.

        Errors: NotFoundError.
        """
        if (id is None) == (msg_id is None):
            raise BadArgumentError("get: want an id or a msg_id")
        return _item(await self._read("get", {"id": id} if msg_id is None else {"msg_id": msg_id}))

    # Managing

    async def remove(self, id: str) -> None:
        """Remove an item in any state. Its holder, if it is leased, gets LeaseLostError.

        Errors: NotFoundError.
        """
        await self._manage("remove", {"id": id}, "id")

    async def move(self, id: str, priority: int) -> str:
        """Move an item to the end of a priority, and return its place there.

        After UnknownOutcomeError, repeat it with the place that the item had before.

        Errors: NotFoundError; LeasedError.
        """
        body = {"id": id, "priority": check_priority(priority)}
        return str((await self._manage("move", body, "place"))["place"])

    async def redrive(self, *, max: int = 1000) -> int:
        """Send up to max dead letters of this queue back to where they came from.

        Returns their number. They keep their ids, and are at the end of their priority.
        """
        done = 0
        while True:
            body = await self._manage("redrive", {"max": max - done}, "redriven")
            done += int(body["redriven"])
            if not body.get("more") or done >= max:
                return done

    async def redrive_ids(self, ids: Sequence[str]) -> list[str | PQError]:
        """Send 1 to 1,000 dead letters back; return for each its queue, or why it stays."""
        results = (await self._manage("redrive", {"ids": list(ids)}, "results"))["results"]
        return [
            error_for(r["code"], r.get("error_reason", ""), r["error"]) if "code" in r else str(r.get("home", ""))
            for r in results
        ]

    async def configure(self, **settings: Any) -> dict[str, Any]:
        """Change these settings, reset those that are None, and return all that are set.

            await jobs.configure(max_deliver=5, backoff=["1s", "10s"], dead_letter="failed")

        The names are the protocol's. Durations are seconds, timedeltas or texts.

        Errors: BadRequestError, which names the setting; nothing was changed.
        """
        for name, value in settings.items():
            if name in _DURATIONS and value is not None:
                settings[name] = duration_text(value)
            elif name == "backoff" and value is not None:
                settings[name] = [duration_text(d) for d in value]
            elif isinstance(value, datetime):
                settings[name] = time_text(value)
        return await self._manage("config", settings)

    async def pause(self, group: str | None = None) -> None:
        """Serve no items of the queue, or of a group, until resume."""
        until = datetime(9999, 1, 1, tzinfo=timezone.utc)
        await self.configure(**({"pause_until": until} if group is None else {"paused_groups": {group: True}}))

    async def resume(self, group: str | None = None) -> None:
        """End a pause of the queue, or of a group."""
        await self.configure(**({"pause_until": None} if group is None else {"paused_groups": {group: False}}))

    async def schedule(self, id: str, **members: Any) -> dict[str, Any]:
        """Create, replace, pause (paused=True), resume or run (run=True) a schedule.

            await jobs.schedule("nightly", cron="0 3 * * *", zone="Europe/Berlin", value=b"report")

        The members are those of docs/schedules.md; value as in push, every and jitter are
        durations, until is a datetime. Returns the schedule with its state.

        Errors: NotFoundError for one that does not exist.
        """
        for name, value in members.items():
            if name == "value":
                members[name] = base64.b64encode(encode(self.codec, value)[0]).decode()
            elif name in ("every", "jitter"):
                members[name] = duration_text(value)
            elif isinstance(value, datetime):
                members[name] = time_text(value)
        return await self._manage("schedule", {"id": id, **members}, "id")

    async def unschedule(self, id: str) -> None:
        """Remove a schedule. What it has pushed stays.

        Errors: NotFoundError.
        """
        await self._manage("unschedule", {"id": id}, "id")

    # Requests

    def subject(self, verb: str) -> str:
        """Return the subject of a verb."""
        return self._prefix + verb

    async def _read(self, verb: str, body: dict[str, Any] | None = None) -> Msg:
        data = b"" if body is None else json.dumps(body).encode()
        return await self.link.request(self.subject(verb), data, timeout=self.timeout, writes=False)

    async def _manage(self, verb: str, body: dict[str, Any], member: str = "") -> dict[str, Any]:
        reply = await self.link.request(
            self.subject(verb),
            json.dumps(body).encode(),
            header_pairs({"User-Agent": f"{self.holder} pqbridge-python"}),
            timeout=self.timeout,
        )
        return _parse(reply, member)


def _item(reply: Msg) -> Item:
    return Item(reply.data, Headers((reply.headers or {}).items()))


def _parse(reply: Msg, member: str) -> dict[str, Any]:
    """Return the JSON object of a reply, which has that member."""
    try:
        body = json.loads(reply.data)
    except ValueError:
        body = None
    if not isinstance(body, dict) or (member and member not in body):
        raise BadReplyError(f"not the reply of a bridge: {reply.data[:64]!r}", unknown=True)
    return body
