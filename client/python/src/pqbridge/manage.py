"""Looking at queues, and managing them."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timezone
from typing import Any

from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from .codec import Codec, encode
from .errors import BadArgumentError, BadReplyError, PQError, error_for
from .headers import Headers, header_pairs
from .item import Item, StoredItem
from .link import Link, link_of
from .push import check_priority
from .times import duration_text, time_text

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DURATIONS = ("ack_wait", "ttl", "duplicate_window", "keep", "every", "jitter")


def default_holder(nc: NATS) -> str:
    """Name this process as the holder of leases: its host, process id and connection."""
    name = nc.options.get("name") or ""
    text = f"{socket.gethostname()} pid {os.getpid()} {name}".strip()
    return "".join(c for c in text if c.isprintable())[:100]


class Handle:
    """The part of a Queue that looks at it and manages it."""

    def __init__(self, nc: NATS, prefix: str, name: str, *, fifo: bool, codec: Codec, timeout: float) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
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

    # Looking

    async def len(self) -> int:
        """Return the number of ready items, without leased and delayed ones."""
        return int(parse(await self.read("len"), "len")["len"])

    async def info(self) -> dict[str, Any]:
        """Return the counts, settings and more of the queue: a dict, as the protocol has it."""
        return parse(await self.read("info"), "queue")

    async def items(
        self, *, state: str = "", match: str = "", value_bytes: int = 1024, max: bool = False
    ) -> AsyncIterator[StoredItem]:
        """Iterate over the items, in the order in which they would be served if all were ready.

        state is "ready", "delayed", "leased" or "done"; by default the first three. match is a text
        that the value, a header, the id or the holder contains. value_bytes is how much of each
        value to return, up to 65,536. Items stay where they are; pages are not of one moment.
        """
        asked = {"value_bytes": value_bytes, "state": state, "match": match, "end": "max" if max else ""}
        query = {name: value for name, value in asked.items() if value != ""}
        while True:
            page = parse(await self.read("items", query), "items")
            for raw in page["items"]:
                yield StoredItem(raw)
            if not page["next"]:
                return
            query["after"] = page["next"]

    async def get(self, id: str | None = None, *, msg_id: str | None = None) -> Item:
        """Return an item in any state, by its id or, within the duplicate window, its msg_id.

        Errors: NotFoundError.
        """
        return item_of(await self.read("get", job_query(id, msg_id)))

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
        """Send 1 to 1,000 dead letters back; return for each the name of its queue, or why it stays."""
        results = (await self._manage("redrive", {"ids": list(ids)}, "results"))["results"]
        return [
            error_for(r["code"], r.get("error_reason", ""), r["error"]) if "code" in r else str(r.get("home", ""))
            for r in results
        ]

    async def configure(self, **settings: Any) -> dict[str, Any]:
        """Change these settings, reset each that is None, and return all that are set.

            await jobs.configure(max_deliver=5, backoff=["1s", "10s"], dead_letter="failed")

        The names are the protocol's. Durations are seconds, timedeltas or texts.

        Errors: BadRequestError, which names the setting; nothing was changed.
        """
        return await self._manage("config", {name: _written(name, value) for name, value in settings.items()})

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

        docs/schedules.md has the members; value as in push, every and jitter are
        durations, until is a datetime. Returns the schedule with its state.

        Errors: NotFoundError for one that does not exist.
        """
        body = {name: _written(name, value) for name, value in members.items()}
        if "value" in body:
            body["value"] = base64.b64encode(encode(self.codec, body["value"])[0]).decode()
        return await self._manage("schedule", {"id": id, **body}, "id")

    async def unschedule(self, id: str) -> None:
        """Remove a schedule. What it has pushed stays.

        Errors: NotFoundError.
        """
        await self._manage("unschedule", {"id": id}, "id")

    # Requests

    def subject(self, verb: str) -> str:
        """Return the subject of a verb."""
        return self._prefix + verb

    async def read(self, verb: str, body: dict[str, Any] | None = None) -> Msg:
        data = b"" if body is None else json.dumps(body).encode()
        return await self.link.request(self.subject(verb), data, timeout=self.timeout, writes=False)

    async def _manage(self, verb: str, body: dict[str, Any], member: str = "") -> dict[str, Any]:
        reply = await self.link.request(
            self.subject(verb),
            json.dumps(body).encode(),
            header_pairs({"User-Agent": f"{self.holder} pqbridge-python"}),
            timeout=self.timeout,
        )
        return parse(reply, member)


def _written(name: str, value: Any) -> Any:
    """Return a setting, or a member of a schedule, as requests have it."""
    if name == "backoff" and value is not None:
        if not isinstance(value, (list, tuple)):
            raise BadArgumentError(f"backoff {value!r}: want a list of durations, such as ['1s', '10s']")
        return [duration_text(d) for d in value]
    if name in _DURATIONS and value is not None:
        return duration_text(value)
    return time_text(value) if isinstance(value, datetime) else value


def job_query(id: str | None, msg_id: str | None) -> dict[str, str | None]:
    """Return the body of a request that names a job."""
    if (id is None) == (msg_id is None):
        raise BadArgumentError("want an id or a msg_id")
    return {"id": id} if msg_id is None else {"msg_id": msg_id}


def item_of(reply: Msg) -> Item:
    return Item(reply.data, Headers((reply.headers or {}).items()))


def parse(reply: Msg, member: str) -> dict[str, Any]:
    """Return the JSON object of a reply, which has that member."""
    try:
        body = json.loads(reply.data)
    except ValueError:
        body = None
    if not isinstance(body, dict) or (member and member not in body) or ("seq" in body and "queue" not in body):
        raise BadReplyError(f"not the reply of a bridge: {reply.data[:64]!r}", unknown=True)
    return body
