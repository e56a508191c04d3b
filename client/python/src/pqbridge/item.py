"""Items of a queue, and what became of jobs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from .errors import BadReplyError, JobFailedError
from .headers import Headers
from .times import parse_time

_ORIGINS = {"Pq-Schedule", "Pq-Scheduled-At", "Pq-Source", "Pq-Parent"}
_LISTED = {
    f"Pq-{member.replace('_', '-').title()}": member
    for member in ("id", "place", "priority", "pushed_at", "group", "state", "deliveries")
}
T = TypeVar("T")


def read(parse: Callable[[str], T], text: str) -> T:
    """Return what a header says. Errors: BadReplyError."""
    try:
        return parse(text)
    except ValueError as error:
        raise BadReplyError(f"not the reply of a bridge: {error}", unknown=True) from error


class Joined(NamedTuple):
    """What has become of the members of a joiner."""

    done: int
    """Were acknowledged."""
    dead: int
    """Became dead letters."""
    gone: int
    """Left their queues in another way: popped, removed or expired."""
    open: int
    """Had not ended when the time of the joiner was over."""


class JobRef(NamedTuple):
    """A job, and the queue that it was pushed to."""

    queue: str
    id: str


def _parse_job(text: str) -> JobRef | None:
    queue, _, id = text.partition(" ")
    return JobRef(queue, id) if id else None


def _parse_joiner(text: str) -> str | None:
    return text or None


def _parse_joined(text: str) -> Joined | None:
    if not text:
        return None
    try:
        return Joined(**{name: int(n) for name, _, n in (count.partition("=") for count in text.split(" "))})
    except TypeError:
        raise ValueError(f"Pq-Joined: {text!r}") from None


class Read(Generic[T]):
    """A property that is read from a header of an item."""

    def __init__(self, header: str, parse: Callable[[str], T], default: str = "") -> None:
        self._header, self._parse, self._default = header, parse, default

    def __get__(self, item: Item, _: object = None) -> T:
        return read(self._parse, item.all.get(self._header, self._default))


def _is_own(name: str) -> bool:
    return not name.startswith("Pq-") or name in _ORIGINS


class Item:
    """An item, and what the bridge says about it.

    value is the item's bytes, headers are the pusher's and the ones naming the schedule, source or
    job it comes from. about has all other headers of the reply; a property that is read from it is ""
    or 0 or None where the message had no room for it.
    """

    def __init__(self, value: bytes, headers: Headers) -> None:
        self.value = value
        self.all = headers
        """All headers, as they came."""

    @cached_property
    def headers(self) -> Headers:
        """The pusher's headers, and the ones that name the schedule, source or parent."""
        return Headers(h for h in self.all.pairs if _is_own(h[0]))

    @cached_property
    def about(self) -> Headers:
        """What the bridge says about the item."""
        return Headers(h for h in self.all.pairs if not _is_own(h[0]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, value={self.value[:40]!r})"

    def json(self) -> Any:
        """Return the value, read as JSON."""
        return json.loads(self.value)

    def string(self) -> str:
        """Return the value as text in UTF-8."""
        return self.value.decode()

    id = Read("Pq-Id", str)
    """Id of the job, as its push returned it: the same through moves, death and redrives."""

    @property
    def place(self) -> str:
        """Where the item is now, which names it until it moves."""
        return self.about.get("Pq-Place", self.id)

    priority = Read("Pq-Priority", int, "0")
    """The priority, 0 in a FIFO queue."""

    pushed_at = Read("Pq-Pushed-At", parse_time)
    """When the item was pushed, by the bridge's clock."""

    group = Read("Pq-Group", str)
    """The group that takes turns with others, "" for none."""

    joiner = Read("Pq-Joiner", _parse_joiner)
    """The joiner that the item is a member of, as the option joiner names it; None for none."""

    parent = Read("Pq-Parent", _parse_job)
    """The job whose acknowledgement pushed the item, if its queue has the setting trail; None for none."""

    joined = Read("Pq-Joined", _parse_joined)
    """What has become of the members of a joiner, once it has waited; None for any other item."""

    type = Read("Type", str)
    """The kind of job: the header Type, "" without."""

    state = Read("Pq-State", str)
    """Of Queue.get: "ready", "delayed", "leased" or "done"."""

    deliveries = Read("Pq-Deliveries", int, "0")
    """How many times the item was leased, a present lease included."""

    max_deliver = Read("Pq-Max-Deliver", int, "0")
    """How many deliveries the settings of the queue allow, 0 for no limit."""

    @property
    def last_try(self) -> bool:
        """Whether the item becomes a dead letter if this delivery fails."""
        return 0 < self.max_deliver <= self.deliveries


class FoundItem(Item):
    """An item with what its job has gone through and pushed, as Queue.get returns it.

    Queue.items returns such items too; there these are empty unless attempts asks for them.
    """

    attempts: Sequence[dict[str, Any]] = ()
    """The attempts of the job that have ended, oldest first, as far as the setting trail keeps them: dicts with
    life, number, from, to, how, holder and reason, as the protocol has them."""

    successors: Sequence[JobRef] = ()
    """The first 64 jobs that one which is done has pushed, if the setting trail was there."""

    more_successors: int = 0
    """How many more there were."""

    def note_past(self, raw: Mapping[str, Any]) -> None:
        """Take the past from an item as the protocol lists it."""
        self.attempts = raw.get("attempts", [])
        self.successors = [JobRef(s["queue"], s["id"]) for s in raw.get("successors", ())]
        self.more_successors = raw.get("more_successors", 0)


class JobResult(Item):
    """What became of a job: its state is "ready", "delayed", "leased", "done" or "dead"."""

    def __init__(self, value: bytes, headers: Headers) -> None:
        super().__init__(value, headers)
        self.has_result = "Pq-Result-Size" in self.about

    def __repr__(self) -> str:
        return f"JobResult(id={self.id!r}, state={self.state!r}, cause={self.cause!r}, value={self.value[:40]!r})"

    content_type = Read("Content-Type", str)
    """The type of the result, "" if the worker did not say."""

    @property
    def is_over(self) -> bool:
        """Whether the job is done or dead."""
        return self.state in ("done", "dead")

    @property
    def cause(self) -> str:
        """What failed, as a handler raised it: of a dead letter, or of a job that is tried again."""
        if self.state != "dead":
            return self.about.get("Pq-Last-Reason", "")
        return (self.reason in ("max_deliver", "terminated") and self.error) or self.reason

    reason = Read("Pq-Dead-Reason", str)
    """Why a dead letter is one: "max_deliver", or the reason of a Drop. See cause."""

    error = Read("Pq-Dead-Error", str)
    """The last error of a dead letter that was not a Drop, "" without any. See cause."""

    @property
    def progress(self) -> bytes | None:
        """What the worker said of how far a leased job is, None if it said nothing."""
        text = self.about.get("Pq-Progress")
        return None if text is None else read(base64.b64decode, text)

    def raise_for_death(self) -> None:
        """Raise JobFailedError if the job is a dead letter."""
        if self.state == "dead":
            deliveries = read(int, self.all.get("Pq-Dead-Deliveries", "0"))
            raise JobFailedError(self.id, self.cause, self.reason, self.error, deliveries)


class StoredItem(FoundItem):
    """An item as Queue.items lists it. raw is the JSON of the reply, with all its members.

    value is the beginning of the value: all of it unless raw has "value_cut". result is that of what
    a finished job returned: all of it unless result_cut. It is None for none.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        pairs = [(name, value) for name, values in raw.get("headers", {}).items() for value in values]
        pairs += [(name, str(raw[member])) for name, member in _LISTED.items() if member in raw]
        super().__init__(base64.b64decode(raw.get("value", "")), Headers(pairs))
        self.raw = raw
        self.note_past(raw)
        self.result = base64.b64decode(raw.get("result", "")) if "result_size" in raw else None
        self.result_cut: bool = raw.get("result_cut", False)
        self.reason: str = raw.get("reason", "")
        """The reason of the last failure that gave one, or why a dead letter is one."""
