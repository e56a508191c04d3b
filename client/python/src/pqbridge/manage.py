"""Looking at queues, and managing them."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple

from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from .codec import JSON, Codec, encode
from .errors import (
    BadArgumentError,
    BadReplyError,
    DeniedError,
    NotFoundError,
    PQError,
    check_flag,
    check_text,
    check_whole,
    error_for,
)
from .headers import Headers, header_pairs
from .item import FoundItem, Item, StoredItem
from .link import Link, link_of
from .push import check_priority
from .times import duration_text, time_text

NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")  # of a queue
_DURATIONS = ("ack_wait", "ttl", "duplicate_window", "keep", "every", "jitter")


class Rank(NamedTuple):
    """How many items would be served before an item: rank, or with at_least maybe more."""

    rank: int
    at_least: bool


def default_holder(nc: NATS) -> str:
    """Name this process as the holder of leases: its host, process id and connection."""
    name = nc.options.get("name") or ""
    text = f"{socket.gethostname()} pid {os.getpid()} {name}".strip()
    return "".join(c for c in text if c.isprintable())[:100]


class Handle:
    """The part of a Queue that looks at it and manages it."""

    def __init__(self, nc: NATS, prefix: str, name: str, *, fifo: bool, codec: Codec, timeout: float) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadArgumentError(f"bad queue name {name!r}: want 1 to 128 letters, digits, -, _")
        self.name, self.fifo, self.codec, self.timeout = name, fifo, codec, timeout
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
        self,
        *,
        state: str | None = None,
        match: str | None = None,
        headers: Mapping[str, str] | None = None,
        value_bytes: int | None = None,
        max: bool = False,
        attempts: bool = False,
    ) -> AsyncIterator[StoredItem]:
        """Iterate over the items, in the order in which they would be served if all were ready.

        state is "ready", "delayed", "leased" or "done"; by default the first three. match is a text
        that the value, a header, the id or the holder contains; headers are those that the item must
        have, with their values. value_bytes is how much of each value and each result to return, up
        to 65,536, and 1,024 by default. With attempts, the items have their attempts and successors.
        Items stay where they are; pages are not of one moment.
        """
        asked: dict[str, Any] = {"value_bytes": value_bytes, "state": state, "match": match}
        asked |= {
            "headers": dict(headers or {}) or None,
            "end": "max" if check_flag("max", max) else None,
            "attempts": attempts or None,
        }
        query = {name: value for name, value in asked.items() if value not in (None, "")}
        async for raw in pages(lambda page: self.read("items", page), "items", query):
            yield StoredItem(raw)

    async def schedules(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the schedules of the queue with their states, sorted by id."""
        async for record in pages(lambda page: self.read("schedules", page), "schedules", {}):
            yield record

    async def get(self, id: str | None = None, *, msg_id: str | None = None) -> FoundItem:
        """Return an item in any state, by its id or, within the duplicate window, its msg_id.

        A dead letter is found too. If it has attempts or successors, these take a second request,
        which goes to the dead-letter queue: without the right to that, they are missing.

        Errors: NotFoundError.
        """
        found = item_of(await self.read("get", job_query(id, msg_id)))
        item = FoundItem(found.value, found.all)
        if not {"Pq-Trail", "Pq-Next"}.isdisjoint(item.all):  # of which nats-py keeps one value each
            with suppress(NotFoundError, DeniedError):  # it has left meanwhile
                item.note_past(await self._beside(item.all.get("Pq-Queue", self.name))._listed(item.id))
        return item

    def _beside(self, name: str) -> Any:
        """Return another queue of the same kind."""
        prefix = self._prefix[: -len(self.name) - 2]
        return type(self)(self.link.nc, prefix, name, fifo=self.fifo, codec=self.codec, timeout=self.timeout)

    async def _listed(self, id: str) -> dict[str, Any]:
        """Return an item as the protocol lists it, without its value."""
        raw: dict[str, Any] = parse(await self.read("get", {"ids": [id], "value_bytes": 0}), "items")["items"][0]
        if "code" in raw:
            raise error_for(raw["code"], raw.get("error_reason", ""), raw["error"])
        return raw

    async def rank(self, id: str, *, max: bool = False) -> Rank:
        """Return how many items pop would return before this one, or with max, pop(max=True).

        A leased or delayed item counts as if it came back now. Beyond 10,000 items of its priority
        the rank is a lower bound, and at_least is true.

        Errors: NotFoundError.
        """
        query = {"id": id, "end": "max"} if check_flag("max", max) else {"id": id}
        body = parse(await self.read("rank", query), "rank")
        return Rank(int(body["rank"]), bool(body.get("at_least")))

    # Managing

    async def remove(self, id: str) -> None:
        """Remove an item in any state. Its holder, if it is leased, gets LeaseLostError.

        Errors: NotFoundError.
        """
        await self._manage("remove", {"id": id}, "id")

    async def move(self, id: str | None = None, priority: int | None = None, *, place: str | None = None) -> str:
        """Move an item, named by the id of its job or by its place, to the end of a priority; return its place there.

        After UnknownOutcomeError, repeat it with the place that the item had before: one that has left it
        is not found, so nothing that has happened to the job since is undone.

        Errors: NotFoundError; LeasedError; JoinsError for a joiner that waits.
        """
        body = {**named(id=id, place=place), "priority": check_priority(priority)}
        return str((await self._manage("move", body, "place"))["place"])

    async def release(self, id: str) -> None:
        """End the lease of an item whose holder is known to be dead; the delivery does not count.

        Errors: LeaseLostError if it is not leased; NotFoundError.
        """
        await self._manage("release", {"id": id}, "id")

    async def purge(self, state: str | None = None) -> int:
        """Remove all items, or those that are "ready", "delayed", "leased" or "done"; return their number.

        Jobs that are done and kept go only with "done". An item that changes its state meanwhile may
        stay, and after an error some items may be gone. Members of joins have ended.

        Errors: JoinsError while too many joins have members here for one transaction.
        """
        done, asked = 0, {} if state is None else {"state": check_text("state", state, 1, 16)}
        while True:
            body = await self._manage("purge", asked, "purged")
            done += int(body["purged"])
            if not body.get("more"):
                return done

    async def redrive(self, *, max: int | None = None) -> int:
        """Send up to max dead letters of this queue, by default 1,000, back to where they came from.

        Returns their number. They keep their ids, and are at the end of their priority.
        """
        done, max = 0, check_whole("max", 1000 if max is None else max, 1, 2**63 - 1)
        while True:
            body = await self._manage("redrive", {"max": max - done}, "redriven")
            done += int(body["redriven"])
            if not body.get("more") or done >= max:
                return done

    async def remove_ids(self, ids: Iterable[str]) -> list[PQError | None]:
        """Remove 1 to 1,000 items in one transaction; return for each None, or the error that says why it stays.

        One that cannot be removed does not keep the others. This holds for all methods with ids.
        """
        return await self._each("remove", ids)

    async def move_ids(
        self, ids: Iterable[str] | None = None, priority: int | None = None, *, places: Iterable[str] | None = None
    ) -> list[str | PQError]:
        """Move 1 to 1,000 items to the end of a priority, in this order; return the place of each, or its error."""
        return await self._each("move", ids, "place", places, priority=check_priority(priority))

    async def release_ids(self, ids: Iterable[str]) -> list[PQError | None]:
        """End the leases of 1 to 1,000 items; return for each None, or its error."""
        return await self._each("release", ids)

    async def redrive_ids(
        self, ids: Iterable[str] | None = None, *, places: Iterable[str] | None = None
    ) -> list[str | PQError]:
        """Send 1 to 1,000 dead letters back, by ids or places; return for each the name of its queue, or why it stays.

        After UnknownOutcomeError, repeat it with places, as a move.
        """
        return await self._each("redrive", ids, "home", places)

    async def _each(
        self, verb: str, ids: Iterable[str] | None, member: str = "", places: Iterable[str] | None = None, **more: Any
    ) -> list[Any]:
        [(kind, names)] = named(ids=ids, places=places).items()
        listed = [] if isinstance(names, str) else list(names)
        if not listed:
            raise BadArgumentError(f"{kind} {names!r}: want a list of 1 to 1000 {kind}")
        results = (await self._manage(verb, {kind: listed, **more}, "results"))["results"]
        return [
            error_for(r["code"], r.get("error_reason", ""), r["error"]) if "code" in r else r.get(member)
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
        await self._pause(group, datetime(9999, 1, 1, tzinfo=timezone.utc), True)

    async def resume(self, group: str | None = None) -> None:
        """End a pause of the queue, or of a group."""
        await self._pause(group, None, False)

    async def _pause(self, group: str | None, until: datetime | None, is_paused: bool) -> None:
        if group is None:
            await self.configure(pause_until=until)
        else:
            await self.configure(paused_groups={check_text("group", group, 1, 128): is_paused})

    async def schedule(self, id: str, **members: Any) -> dict[str, Any]:
        """Create, replace, pause (paused=True), resume or run (run=True) a schedule.

            await jobs.schedule("nightly", cron="0 3 * * *", zone="Europe/Berlin", value=b"report")

        docs/schedules.md has the members; value as in push, every and jitter are
        durations, until is a datetime. Returns the schedule with its state.

        Errors: NotFoundError for one that does not exist.
        """
        body = {name: _written(name, value) for name, value in members.items() if value is not None}
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

    async def read(
        self, verb: str, body: dict[str, Any] | None = None, timeout: float | None = None, restless: bool = False
    ) -> Msg:
        data, timeout = b"" if body is None else encode(JSON, body)[0], self.timeout if timeout is None else timeout
        return await self.link.request(self.subject(verb), data, timeout=timeout, writes=False, restless=restless)

    async def _manage(self, verb: str, body: dict[str, Any], member: str = "") -> dict[str, Any]:
        data, headers = encode(JSON, body)[0], header_pairs({"User-Agent": f"{self.holder} pqbridge-python"})
        return parse(await self.link.request(self.subject(verb), data, headers, timeout=self.timeout), member)


def _written(name: str, value: Any) -> Any:
    """Return a setting, or a member of a schedule, as requests have it."""
    if name == "backoff" and value is not None:
        if not isinstance(value, (list, tuple)):
            raise BadArgumentError(f"backoff {value!r}: want a list of durations, such as ['1s', '10s']")
        return [duration_text(d, name=name) for d in value]
    if name in _DURATIONS and value is not None:
        return duration_text(value, name=name)
    return time_text(value) if isinstance(value, datetime) else value


def job_query(id: str | None, msg_id: str | None) -> dict[str, Any]:
    """Return the body of a request that names a job."""
    return named(id=id, msg_id=msg_id)


def named(**names: Any) -> dict[str, Any]:
    """Return the one of two names that is given."""
    given = {kind: name for kind, name in names.items() if name is not None}
    if len(given) != 1:
        raise BadArgumentError(f"want one of {' and '.join(names)}")
    return given


def item_of(reply: Msg) -> Item:
    return Item(reply.data, Headers((reply.headers or {}).items()))


async def pages(
    ask: Callable[[dict[str, Any]], Awaitable[Msg]], member: str, query: dict[str, Any]
) -> AsyncIterator[Any]:
    """Iterate over what the pages of a list have."""
    while True:
        page = parse(await ask(query), member)
        for entry in page[member]:
            yield entry
        if not page.get("next"):
            return
        query = query | {"after": page["next"]}


def parse(reply: Msg, member: str) -> dict[str, Any]:
    """Return the JSON object of a reply, which has that member."""
    try:
        body = json.loads(reply.data.decode())  # which json would do more slowly
    except ValueError:
        body = None
    if not isinstance(body, dict) or (member and member not in body) or ("seq" in body and "queue" not in body):
        raise BadReplyError(f"not the reply of a bridge: {reply.data[:64]!r}", unknown=True)
    return body
