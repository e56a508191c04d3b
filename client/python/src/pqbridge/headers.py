"""Headers that keep every value in its order, and frames, which carry them unchanged.

nats-py knows one value for each name, and replaces bytes that are not UTF-8. So repeated and odd
headers survive only in frames: in pushes, leases, and pops of several items.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from .errors import BadArgumentError, BadReplyError

HeadersLike = Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str]]
"""Headers of a push: names with a value or several, or pairs of name and value.

Values are text in one line. Bytes that are not UTF-8 are written as surrogates, as
bytes.decode("utf-8", "surrogateescape") returns them, and come back like that.
"""

Pairs = Sequence[tuple[str, str]]
"""Headers as they are sent."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[^\r\n\ud800-\udc7f\udd00-\udfff]*")  # other surrogates stand for no byte
_SURROGATE = re.compile("[\ud800-\udfff]")
_START = b"NATS/1.0\r\n"
_FRAME = struct.Struct(">qII")


class Headers(Mapping[str, str]):
    """The headers of an item. Names are compared byte by byte; values keep their order.

    headers[name] is the first value, get_all(name) has all of them, and pairs each header.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] | bytes = ()) -> None:
        self._given = pairs if isinstance(pairs, bytes) else list(pairs)  # bytes are read when they are asked for

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Each header, in order."""
        return _parse_block(self._given) if isinstance(self._given, bytes) else self._given

    @cached_property
    def _first(self) -> dict[str, str]:
        return dict(reversed(self.pairs))

    def __getitem__(self, name: str) -> str:
        return self._first[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.pairs))

    def __len__(self) -> int:
        return len(self._first)

    def __repr__(self) -> str:
        return f"Headers({self.pairs!r})"

    def get_all(self, name: str) -> list[str]:
        """Return all values of a name, in order."""
        return [value for key, value in self.pairs if key == name]


def header_pairs(headers: HeadersLike) -> list[tuple[str, str]]:
    """Return headers as pairs, unless NATS cannot carry one of them."""
    pairs = headers.pairs if isinstance(headers, Headers) else headers
    try:
        listed = [(name, values) for name, values in (pairs.items() if isinstance(pairs, Mapping) else pairs)]
    except (TypeError, ValueError):
        raise BadArgumentError(f"headers {headers!r}: want a dict, or pairs of name and value") from None
    checked = []
    for name, values in listed:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            want = "letters, digits and any of !#$%&'*+-.^_`|~"
            raise BadArgumentError(f"header {name!r}: want a name of {want}")
        texts = values if isinstance(values, (list, tuple)) else [values]
        checked += [(name, checked_value(name, text)) for text in texts]
    return checked


def checked_value(name: str, value: Any) -> str:
    """Return the value of a header, unless NATS cannot carry it."""
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise BadArgumentError(f"header {name}: {value!r}: want a string in one line, or a list of such strings")
    return value


def are_plain(pairs: Pairs) -> bool:
    """Report whether nats-py sends these headers unchanged."""
    return len(dict(pairs)) == len(pairs) and all(
        value == value.strip() and (value.isascii() or not _SURROGATE.search(value)) for _, value in pairs
    )


def header_block(pairs: Pairs) -> bytes:
    """Return headers as a message has them."""
    if not pairs:
        return b""
    text = "".join([name + ": " + value.strip(" \t") + "\r\n" for name, value in pairs])
    return _START + text.encode("utf-8", "surrogateescape") + b"\r\n"


def _parse_block(block: bytes) -> list[tuple[str, str]]:
    lines = block.removeprefix(_START).decode("utf-8", "surrogateescape").split("\r\n")
    parts = (line.partition(":") for line in lines)
    return [(name, value.strip(" \t")) for name, colon, value in parts if colon]


def frame(priority: int, pairs: Pairs, value: bytes) -> bytes:
    """Return the frame of an item or a result."""
    return frame_head(priority, pairs, len(value)) + value


def frame_head(priority: int, pairs: Pairs, size: int) -> bytes:
    """Return the part of a frame before its value of that many bytes."""
    block = header_block(pairs)
    return _FRAME.pack(priority, len(block), size) + block


def parse_frames(data: bytes, count: int) -> list[tuple[Headers, bytes]]:
    """Return what the frames of a reply have."""
    frames, at = [], 0
    try:
        while at < len(data):
            _, headers, value = _FRAME.unpack_from(data, at)
            middle = at + _FRAME.size + headers
            block = data[middle - headers : middle]
            at = middle + value
            frames.append((Headers(block), data[middle:at]))
    except struct.error:
        at = -1
    if at != len(data) or len(frames) != count:
        raise BadReplyError(f"{len(frames)} frames: want {count}", unknown=True)
    return frames
