"""How values that are not bytes become bytes."""

from __future__ import annotations

import json
from typing import Any, Protocol

from .errors import BadArgumentError


class Codec(Protocol):
    """Turns values into bytes and back."""

    content_type: str
    """The type of the bytes, such as "application/json"."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value. What it raises is raised by the push."""

    def decode(self, data: bytes) -> Any:
        """Return the value of bytes."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class JSONCodec:
    """JSON in UTF-8, by the module json."""

    content_type = "application/json"

    def encode(self, value: Any) -> bytes:
        return _ENCODER.encode(value).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


JSON = JSONCodec()
"""The default codec."""


def encode(codec: Codec, value: Any) -> tuple[bytes, str]:
    """Return a value as bytes, and their content type: bytes and other buffers as they are, without a type."""
    if isinstance(value, bytes):
        return value, ""
    try:
        view = memoryview(value)
        if view.ndim and "O" not in view.format:  # neither a number of NumPy nor pointers
            return view.tobytes(), ""
    except (TypeError, ValueError, BufferError):
        pass  # no buffer
    try:
        return codec.encode(value), codec.content_type
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgumentError(f"{type(value).__name__} cannot be encoded: {error}") from error
