"""How values that are not bytes become bytes."""

from __future__ import annotations

import contextlib
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


class JSONCodec:
    """JSON in UTF-8, by the module json."""

    content_type = "application/json"

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


JSON = JSONCodec()
"""The default codec."""


def encode(codec: Codec, value: Any) -> tuple[bytes, str]:
    """Return a value as bytes, and their content type: bytes and other buffers as they are, without a type."""
    if isinstance(value, bytes):
        return value, ""
    with contextlib.suppress(TypeError, ValueError, BufferError):
        view = memoryview(value)
        if view.ndim and "O" not in view.format:  # neither a number of NumPy nor pointers
            return view.tobytes(), ""
    try:
        return codec.encode(value), codec.content_type
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgumentError(f"{type(value).__name__} cannot be encoded: {error}") from error
