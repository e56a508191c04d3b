"""A bridge and its NATS connection in this process: one queue whose replies a test can change."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nats.aio.msg import Msg

from pqbridge import Client, Queue
from pqbridge.headers import frame, parse_frames

Reply = tuple[dict[str, str], bytes]
LOST = {"Nats-Service-Error-Code": "409", "Nats-Service-Error": "the lease is lost", "Pq-Reason": "lost"}
EMPTY = {"Nats-Service-Error-Code": "404", "Nats-Service-Error": "the queue is empty"}


@dataclass
class Request:
    """What a client sent: the last part of the subject, or the token, and the payload."""

    verb: str
    ack: str
    options: dict[str, Any]
    results: list[bytes]
    reply: str = ""


class Subscription:
    _id = 1
    pending_msgs = 0

    def __init__(self, cb: Callable[[Msg], Any]) -> None:
        self.cb = cb

    async def unsubscribe(self) -> None:
        pass


@dataclass
class FakeNATS:
    """As much of nats-py's connection as the package uses. Its server has one queue of a bridge."""

    answer: Callable[[Request], Reply | str | None] = lambda request: ""
    """Called with each request: returns a reply, None for no reply, or "" for what a bridge replies."""
    is_connected: bool = True
    is_closed: bool = False
    is_draining: bool = False
    max_payload: int = 1 << 20
    pending_data_size: int = 0
    last_error: Exception | None = None
    stats: dict[str, int] = field(default_factory=lambda: {"reconnects": 0})
    options: dict[str, Any] = field(default_factory=dict)
    ready: list[bytes] = field(default_factory=list)
    leased: dict[str, bytes] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    headers: list[tuple[str, str]] = field(default_factory=list)
    turns: int = 0
    """Of the event loop, until nats-py has read a reply."""

    def __post_init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._numbers = itertools.count(1)

    @property
    def queue(self) -> Queue:
        return Client(self).priority_queue("jobs")  # type: ignore[arg-type]

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._numbers)}"

    async def subscribe(self, subject: str, cb: Callable[[Msg], Any], **_: Any) -> Subscription:
        self._subscriptions[subject[:-1]] = Subscription(cb)
        return self._subscriptions[subject[:-1]]

    async def flush(self, timeout: float = 0) -> None:
        pass

    async def _send_unsubscribe(self, sid: int) -> None:
        pass

    def push(self, *values: bytes) -> None:
        self.ready += values
        while self.waiting and self.ready:
            self._send(self.waiting.pop(0), self._lease(1))

    async def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        if headers and "Pq-Ack" in headers:
            text = headers["Pq-Ack"]
            count = int(headers.get("Pq-Frames", "0"))
            results = [value for _, value in parse_frames(data, count)] if count else [data]
        else:
            text, results = data.decode(), []
        ack, _, options = ("", "", text) if text.startswith("{") else text.partition(" ")
        is_json = options.startswith("{")
        request = Request(subject.rpartition(".")[2], ack, json.loads(options) if is_json else {}, results, reply)
        self.requests.append(request)
        answer = self.answer(request)
        if answer == "":
            answer = self.carry_out(request)
        if isinstance(answer, tuple):
            self._send(reply, answer)

    def carry_out(self, request: Request) -> Reply | None:
        """Do what a bridge does, and return its reply, or None if it waits."""
        if "cancel" in request.options:
            for waiting in self.waiting:
                self._send(waiting, (EMPTY, b""))
            self.waiting.clear()
            return {}, b""
        if request.verb == "min":
            if self.ready:
                return self._lease(1)
            self.waiting.append(request.reply)
            return None

        tokens = [request.verb, *request.options.get("also", ())]
        lost = [str(n) for n, token in enumerate(tokens) if token not in self.leased]
        if lost:
            return LOST | {"Pq-Lost": ",".join(lost)}, b""
        if request.ack != "+WPI":
            for token in tokens:
                self.leased.pop(token)
        return self._lease(request.options.get("batch", 1)) if request.ack == "+NXT" else ({}, b"")

    def _lease(self, n: int) -> Reply:
        frames = []
        for value in self.ready[:n]:
            token = f"t{next(self._numbers)}"
            self.leased[token] = value
            about = [("Pq-Token", token), ("Pq-Id", value.decode()), ("Pq-Ack-Wait", "30s"), ("Pq-Deliveries", "1")]
            frames.append(frame(0, about + self.headers, value))
        del self.ready[:n]
        if not frames:
            return EMPTY, b""
        count = {"Pq-Batch-Count": str(len(frames))} if n > 1 else {}
        return {"Pq-Frames": str(len(frames))} | count, b"".join(frames)

    def _send(self, reply: str, answer: Reply) -> None:
        prefix = reply.rpartition(".")[0] + "."
        headers, data = answer
        message = Msg(_client=self, subject=reply, reply="", data=data, headers=headers or None)  # type: ignore[arg-type]

        async def receive() -> None:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if prefix in self._subscriptions:  # nobody reads the answer to a cancel
                await self._subscriptions[prefix].cb(message)

        task = asyncio.ensure_future(receive())
        task.add_done_callback(lambda done: done.result())
