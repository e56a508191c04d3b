"""Pushed items: values with their options, which become headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict

from .codec import Codec, encode
from .errors import BadArgumentError
from .headers import HeadersLike, frame, header_pairs
from .times import Duration, duration_text, time_text


class PushOptions(TypedDict, total=False):
    """The options of a push; each may be absent.

    priority: an int64, smaller ones come first; 0 by default, and always in a FIFO queue.
    msg_id: a later push with the same id, 1 to 512 bytes, within the duplicate window of the queue
        (two minutes by default) changes nothing and returns the first one's id.
    unique: the same for as long as an item with this key is in the queue.
    delay, at: how long, or until when, the item is held back, up to ten years.
    ttl: after how long the item expires, 1 s to ten years, or "never".
    group: among items of one priority, groups take turns: 1 to 128 bytes.
    weight: how many items of the group have a turn together, 1 to 100; 1 by default.
    keep: for how long the job is kept once it is done, for Queue.result: 1 s to ten years.
    headers: stored with the value. Names that begin with Pq- are reserved.
    type: the kind of job, by which a Worker finds its handler: the header Type.
    """

    priority: int
    msg_id: str
    unique: str
    delay: Duration
    at: datetime
    ttl: Duration | Literal["never"]
    group: str
    weight: int
    keep: Duration
    headers: HeadersLike
    type: str


class PushItem(PushOptions):
    """One item of several: its value, and the options of its push."""

    value: Any


class Successor(PushItem):
    """What an acknowledgement pushes to another queue: the item, and the name of the queue.

    The setting next of the job's queue must name it. msg_id, unique and weight are not possible.
    """

    queue: str


@dataclass(frozen=True)
class PushAck:
    """A pushed item is durable.

    id is the id of the job, wherever its item goes. With duplicate, nothing was pushed, because of
    msg_id or unique: id and priority belong to the push that came before.
    """

    id: str
    priority: int
    duplicate: bool


@dataclass(frozen=True)
class Message:
    """An item as it is sent."""

    priority: int
    headers: Sequence[tuple[str, str]]
    value: bytes

    def frame(self) -> bytes:
        """Return the item as it is among several."""
        return frame(self.priority, self.headers, self.value)


def message(
    codec: Codec,
    value: Any,
    *,
    priority: int = 0,
    msg_id: str | None = None,
    unique: str | None = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    ttl: Duration | None = None,
    group: str | None = None,
    weight: int | None = None,
    keep: Duration | None = None,
    headers: HeadersLike = (),
    type: str | None = None,
) -> Message:
    """Return a value and the options of its push as they are sent."""
    if delay is not None and at is not None:
        raise BadArgumentError("delay and at: want one of them")
    data, content_type = encode(codec, value)
    options: dict[str, str | None] = {
        "Content-Type": content_type or None,
        "Nats-Msg-Id": msg_id or None,
        "Pq-Unique": unique,
        "Pq-Delay": _optional(delay),
        "Nats-Schedule": None if at is None else f"@at {time_text(at)}",
        "Nats-TTL": "never" if ttl == "never" else _optional(ttl),
        "Pq-Group": group,
        "Pq-Weight": None if weight is None else str(weight),
        "Pq-Keep": _optional(keep),
        "Type": type,
    }
    given = {name: text for name, text in options.items() if text is not None}
    own = [(name, text) for name, text in header_pairs(headers) if name == "Content-Type" or name not in given]
    if any(name == "Content-Type" for name, _ in own):
        given.pop("Content-Type", None)
    return Message(check_priority(priority), own + header_pairs(given), data)


def _optional(duration: Duration | None) -> str | None:
    return None if duration is None else duration_text(duration)


def check_priority(priority: int) -> int:
    """Return a priority, unless it is not an int64."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise BadArgumentError(f"priority {priority!r}: want an integer")
    if not -(2**63) <= priority < 2**63:
        raise BadArgumentError(f"priority {priority}: want -2**63 to 2**63 - 1")
    return priority


def successor(codec: Codec, item: Successor) -> Message:
    """Return what an acknowledgement pushes."""
    options: dict[str, Any] = {**item}
    name = options.pop("queue")
    m = message(codec, **options)
    return Message(m.priority, [*m.headers, ("Pq-Queue", name)], m.value)
