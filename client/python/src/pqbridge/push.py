"""Pushed items: values with their options, which become headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict

from .codec import Codec, encode
from .errors import BadArgumentError, check_text, check_whole
from .headers import HeadersLike, Pairs, checked_value, frame, frame_head, header_pairs
from .times import Duration, duration_text, time_text


class JoinerRef:
    """Names a job that other items can have as their joiner."""

    queue: str
    id: str

    @property
    def ref(self) -> str:
        """The job as Item.joiner and the header Pq-Joiner name it."""
        return f"{self.queue} {self.id}"


class PushOptions(TypedDict, total=False):
    """The options of a push; each may be absent, or None, which is the same.

    priority: an int64, smaller ones come first; 0 by default, and always in a FIFO queue.
    msg_id: a later push with the same id, 1 to 512 bytes, within the duplicate window of the queue
        (two minutes by default) changes nothing and returns the first one's id. By default it is
        random, so that a push of unknown outcome can be repeated; with "" there is none, and it is not.
    unique: the same for as long as an item with this key is in the queue.
    delay, at: how long, or until when, the item is held back, up to ten years.
    ttl: after how long the item expires, 1 s to ten years, or "never".
    group: among items of one priority, groups take turns: 1 to 128 bytes.
    weight: how many items of the group have a turn together, 1 to 100; 1 by default.
    keep: for how long the job is kept once it is done, for Queue.result: 1 s to ten years.
    join: makes the item a joiner. It is delayed until all its members have ended, but at most for
        that time, 1 s to ten years, and then has Item.joined. It has at most 64 KiB, and neither
        delay, at nor ttl. Without members it is ready at once.
    joiner: makes the item a member of a joiner that waits: a PushAck, an OpenJoin, or its name
        "QUEUE ID" as Item.joiner has it, in the same queue or in one that the setting next of the
        member's queue names. A member has ended when it is acknowledged, a dead letter, removed,
        popped or expired. In Queue.all, and among the items of one acknowledgement, a number counts
        those before it, from 0. unique is not possible beside it.
    headers: stored with the value. Names that begin with Pq- are refused.
    type: the kind of job, by which a Worker finds its handler: the header Type.
    """

    priority: int | None
    msg_id: str | None
    unique: str | None
    delay: Duration | None
    at: datetime | None
    ttl: Duration | Literal["never"] | None
    group: str | None
    weight: int | None
    keep: Duration | None
    join: Duration | None
    joiner: str | int | JoinerRef | None
    headers: HeadersLike | None
    type: str | None


class PushItem(PushOptions):
    """One item of several: its value, and the options of its push."""

    value: Any


class Successor(PushItem):
    """What an acknowledgement pushes to another queue: the item, and the name of the queue.

    The setting next of the job's queue must name it. msg_id, unique and weight are not possible. As a
    joiner, a number counts the items that the same job pushes, from 0.
    """

    queue: str


@dataclass(frozen=True)
class PushAck(JoinerRef):
    """A pushed item is durable.

    id is the id of the job, wherever its item goes. With duplicate, nothing was pushed, because of
    msg_id or unique: id and priority belong to the push that came before.
    """

    id: str
    priority: int
    duplicate: bool
    queue: str = ""


class Message(NamedTuple):
    """An item as it is sent: alone by its headers and value, among several by its head and value."""

    priority: int
    headers: Pairs
    head: bytes
    value: bytes
    has_id: bool  # a push may be repeated, as it has a message id
    has_own_id: bool  # one that nobody else knows, so that a duplicate is the push itself
    joiner: int | None = None  # the number of one before it, which only a request turns into a header

    @property
    def size(self) -> int:
        """Bytes that the item needs among several."""
        return len(self.head) + len(self.value) + (0 if self.joiner is None else _JOINER_SIZE)

    def frame(self, first: int = 0, parent: str = "") -> bytes:
        """Return the item as it is among several, where the one that its joiner counts from has that number.

        parent is the token of the lease whose job pushes it, "" for that of the subject.
        """
        more = [] if self.joiner is None else [("Pq-Joiner", str(first + self.joiner))]
        more += [("Pq-Token", parent)] if parent else []
        return frame(self.priority, [*self.headers, *more], self.value) if more else self.head + self.value


def _joiner_name(joiner: Any) -> Any:
    name = joiner.ref if isinstance(joiner, JoinerRef) else joiner
    if not isinstance(name, (str, int)) or name == "":
        raise BadArgumentError(f"joiner {joiner!r:.100}: want a PushAck, an OpenJoin, or the ref of one")
    return name


_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "msg_id": ("Nats-Msg-Id", partial(check_text, "msg_id", least=1, most=512)),
    "unique": ("Pq-Unique", partial(check_text, "unique", least=1, most=512)),
    "delay": ("Pq-Delay", duration_text),
    "at": ("Nats-Schedule", lambda at: f"@at {time_text(at)}"),
    "ttl": ("Nats-TTL", lambda ttl: ttl if ttl == "never" else duration_text(ttl, 1)),
    "group": ("Pq-Group", partial(check_text, "group", least=1, most=128)),
    "weight": ("Pq-Weight", lambda weight: str(check_whole("weight", weight, 1, 100))),
    "keep": ("Pq-Keep", partial(duration_text, least=1)),
    "join": ("Pq-Join", partial(duration_text, least=1)),
    "joiner": ("Pq-Joiner", _joiner_name),
    "type": ("Type", partial(check_text, "type")),
}
"""The header of each option, and how its value is written."""

MAX_SUCCESSORS = 256
_JOINER_SIZE = len("Pq-Joiner: 65535\r\n")
_RESERVED = {"Pq-Priority": "priority"} | {header: option for option, (header, _) in _OPTIONS.items()}
_MEMBERS = dict.fromkeys(("value", "priority", "headers", *_OPTIONS))


def message(codec: Codec, item: Mapping[str, Any], msg_id: str = "", before: int = 0, **given: str) -> Message:
    """Return an item, a value with the options of its push, as it is sent.

    msg_id is random, for an item that has none. before is how many items of the same request its
    joiner may be among. given are headers besides those of the options.
    """
    if not isinstance(item, Mapping) or "value" not in item:
        raise BadArgumentError(f"an item {item!r:.100}: want a dict with a value, and the options of its push")
    for name, option in item.items():
        if name not in _MEMBERS:
            raise BadArgumentError(f"unknown option {name!r}: want one of {', '.join(_MEMBERS)}")
        if name in _OPTIONS and option is not None and (option != "" or name not in ("msg_id", "type")):
            header, text = _OPTIONS[name]
            try:
                given[header] = text(option)
            except BadArgumentError as error:
                raise BadArgumentError(error.text if error.text.startswith(name) else f"{name}: {error}") from None
    if "Pq-Delay" in given and "Nats-Schedule" in given:
        raise BadArgumentError("delay and at: want one of them")
    joiner = item.get("joiner")
    if isinstance(joiner, int):
        del given["Pq-Joiner"]  # whose number only the request knows
        if not 0 <= joiner < before:
            raise BadArgumentError(f"joiner {joiner}: want a ref, or the number of an item before it in one request")

    data, content_type = encode(codec, item["value"])
    own = header_pairs(item.get("headers") or ())
    names = {name for name, _ in own}
    for name in names:
        if name.startswith("Pq-"):
            instead = f", use the option {_RESERVED[name]}" if name in _RESERVED else ""
            raise BadArgumentError(f"header {name}: names that begin with Pq- are reserved{instead}")
    if content_type and "Content-Type" not in names:
        given["Content-Type"] = content_type
    for header, value in given.items():
        checked_value(header, value)
    identify = bool(msg_id) and item.get("msg_id") is None and "Nats-Msg-Id" not in names
    if identify:
        given["Nats-Msg-Id"] = msg_id
    headers = [(name, value) for name, value in own if name not in given] + list(given.items())
    priority = item.get("priority")
    priority = check_priority(0 if priority is None else priority)
    head, has_id = frame_head(priority, headers, len(data)), "Nats-Msg-Id" in names or "Nats-Msg-Id" in given
    number, has_own_id = joiner if isinstance(joiner, int) else None, identify and "Pq-Unique" not in given
    return Message(priority, headers, head, data, has_id, has_own_id, number)


def check_priority(priority: int | None) -> int:
    """Return a priority, unless it is not an int64."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise BadArgumentError(f"priority {priority!r}: want an integer")
    if not -(2**63) <= priority < 2**63:
        raise BadArgumentError(f"priority {priority}: want -2**63 to 2**63 - 1")
    return priority


def successor(codec: Codec, item: Successor, before: int) -> Message:
    """Return what an acknowledgement pushes behind that many other items of the same job."""
    if before >= MAX_SUCCESSORS:
        raise BadArgumentError(f"next: an acknowledgement pushes at most {MAX_SUCCESSORS} items")
    if not isinstance(item, Mapping):
        raise BadArgumentError(f"next: {item!r:.100}: want a dict with a queue, a value, and the options of its push")
    own = {name: option for name, option in item.items() if name != "queue"}
    return message(codec, own, before=before, **{"Pq-Queue": item.get("queue", "")})
