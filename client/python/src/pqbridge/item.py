"""Items of a queue, and what became of jobs."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .errors import JobFailedError
from .headers import Headers
from .times import parse_time

_ORIGINS = {"Pq-Schedule", "Pq-Scheduled-At", "Pq-Source"}


class Item:
    """An item, and what the bridge says about it.

    value is the item's bytes, headers are the pusher's and the ones naming the schedule or source
    it comes from. about has all other headers of the reply; a property that is read from it is ""
    or 0 or None where the message had no room for it.
    """

    def __init__(self, value: bytes, headers: Headers) -> None:
        own = [h for h in headers.pairs if not h[0].startswith("Pq-") or h[0] in _ORIGINS]
        self.value = value
        self.headers = Headers(own)
        self.about = Headers(h for h in headers.pairs if h not in own)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, value={self.value[:40]!r})"

    def json(self) -> Any:
        """Return the value, read as JSON."""
        return json.loads(self.value)

    def string(self) -> str:
        """Return the value as text in UTF-8."""
        return self.value.decode()

    def _number(self, name: str) -> int:
        return int(self.about.get(name, "0"))

    @property
    def id(self) -> str:
        """Id of the job, as its push returned it: the same through moves, death and redrives."""
        return self.about.get("Pq-Id", "")

    @property
    def place(self) -> str:
        """Where the item is now, which names it until it moves."""
        return self.about.get("Pq-Place", self.id)

    @property
    def priority(self) -> int:
        """The priority, 0 in a FIFO queue."""
        return self._number("Pq-Priority")

    @property
    def pushed_at(self) -> datetime | None:
        """When the item was pushed, by the bridge's clock."""
        return parse_time(self.about.get("Pq-Pushed-At"))

    @property
    def group(self) -> str:
        """The group that takes turns with others, "" for none."""
        return self.about.get("Pq-Group", "")

    @property
    def type(self) -> str:
        """The kind of job: the header Type, "" without."""
        return self.headers.get("Type", "")

    @property
    def state(self) -> str:
        """Of Queue.get: "ready", "delayed", "leased" or "done"."""
        return self.about.get("Pq-State", "")

    @property
    def deliveries(self) -> int:
        """How many times the item was leased, a present lease included."""
        return self._number("Pq-Deliveries")

    @property
    def max_deliver(self) -> int:
        """How many deliveries the settings of the queue allow, 0 for no limit."""
        return self._number("Pq-Max-Deliver")

    @property
    def last_try(self) -> bool:
        """Whether the item becomes a dead letter if this delivery fails."""
        return 0 < self.max_deliver <= self.deliveries


class JobResult(Item):
    """What became of a job: its state is "ready", "delayed", "leased", "done" or "dead"."""

    def __init__(self, value: bytes, headers: Headers) -> None:
        super().__init__(value, headers)
        self.has_result = "Pq-Result-Size" in self.about

    def __repr__(self) -> str:
        return f"JobResult(id={self.id!r}, state={self.state!r}, cause={self.cause!r}, value={self.value[:40]!r})"

    @property
    def content_type(self) -> str:
        """The type of the result, "" if the worker did not say."""
        return self.headers.get("Content-Type", "")

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

    @property
    def reason(self) -> str:
        """Why a dead letter is one: "max_deliver", or the reason of a Drop. See cause."""
        return self.about.get("Pq-Dead-Reason", "")

    @property
    def error(self) -> str:
        """The last error of a dead letter that was not a Drop, "" without any. See cause."""
        return self.about.get("Pq-Dead-Error", "")

    @property
    def progress(self) -> bytes | None:
        """What the worker said of how far a leased job is, None if it said nothing."""
        text = self.about.get("Pq-Progress")
        return None if text is None else base64.b64decode(text)

    def raise_for_death(self) -> None:
        """Raise JobFailedError if the job is a dead letter."""
        if self.state == "dead":
            deliveries = self._number("Pq-Dead-Deliveries")
            raise JobFailedError(self.id, self.cause, self.reason, self.error, deliveries)


@dataclass(frozen=True)
class StoredItem:
    """An item as Queue.items lists it. raw is the JSON of the reply, with all its members."""

    raw: dict[str, Any]
    id: str
    priority: int
    state: str
    value: bytes
    """The beginning of the value: all of it unless raw has "value_cut"."""
    headers: Headers
    deliveries: int
    reason: str
    """The reason of the last failure that gave one, or why a dead letter is one."""

    @staticmethod
    def parse(raw: dict[str, Any]) -> StoredItem:
        """Return an item of a reply."""
        headers = raw.get("headers", {}).items()
        return StoredItem(
            raw=raw,
            id=raw.get("id", ""),
            priority=raw.get("priority", 0),
            state=raw.get("state", ""),
            value=base64.b64decode(raw.get("value", "")),
            headers=Headers((name, value) for name, values in headers for value in values),
            deliveries=raw.get("deliveries", 0),
            reason=raw.get("reason", ""),
        )
