"""What the NATS server refuses, as a connection without a bridge hears it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import pqbridge
from pqbridge.errors import PQError


class Server:
    """The server's side of one connection, which refuses what it is told to."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.published: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"headers":true,"version":"2.10.0"}\r\n')
        while line := (await reader.readline()).decode():
            verb, *args = line.split()
            if verb == "PING":
                writer.write(b"PONG\r\n")
            elif verb in ("PUB", "HPUB"):
                await reader.readexactly(int(args[-1]) + 2)
                self.published.append(args[0])
                self.refuse("Publish", args[0], writer)
            elif verb == "SUB":
                self.refuse("Subscription", args[0], writer)
        writer.close()

    def refuse(self, what: str, subject: str, writer: asyncio.StreamWriter) -> None:
        if any(subject.startswith(r) for r in self.refused):
            text = f"-ERR 'Permissions Violation for {what} to \"{subject}\"'\r\n"
            writer.write(text.encode())


@contextlib.asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[pqbridge.Queue]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1")
    host, port = listener.sockets[0].getsockname()
    nc = await pqbridge.connect(f"nats://{host}:{port}", **options)
    try:
        yield pqbridge.Client(nc, timeout=60).priority_queue("Jobs")
    finally:
        await nc.close()
        listener.close()


async def test_a_refused_push_was_not_sent() -> None:
    async with connected(Server("pq.Jobs.push")) as queue:
        for _ in range(3):
            with pytest.raises(pqbridge.DeniedError):
                await queue.push(b"job")


async def test_of_several_nobody_knows_which_was_refused() -> None:
    async with connected(Server("pq.Jobs.push")) as queue:
        pushes = (queue.push(b"job", msg_id="") for _ in range(3))
        errors = await asyncio.gather(*pushes, return_exceptions=True)

    assert all(isinstance(e, (pqbridge.UnknownOutcomeError, pqbridge.DeniedError)) for e in errors)
    assert isinstance(errors[0], pqbridge.UnknownOutcomeError)


async def test_without_an_inbox_nothing_is_sent() -> None:
    server = Server("_INBOX.")
    async with connected(server) as queue:
        for _ in range(2):
            with pytest.raises(pqbridge.DeniedError):
                await queue.push(b"job")
            with pytest.raises(pqbridge.DeniedError):
                await queue.lease(expires=60)

    assert server.published == []


async def test_a_connection_of_nats_py_is_polled() -> None:
    import nats

    server = Server("pq.Jobs.push")
    listener = await asyncio.start_server(server.serve, "127.0.0.1")
    host, port = listener.sockets[0].getsockname()
    nc = await nats.connect(f"nats://{host}:{port}")

    with pytest.raises(pqbridge.DeniedError):
        await pqbridge.Client(nc, timeout=60).priority_queue("Jobs").push(b"job")

    await nc.close()
    listener.close()


async def test_a_worker_that_may_not_lease_ends() -> None:
    async with connected(Server("pq.Jobs.pop")) as queue:
        with pytest.raises(pqbridge.DeniedError):
            await pqbridge.Worker(queue, print).run()


async def test_the_token_of_a_lease_is_in_no_error() -> None:
    assert PQError("x").code == 0
    async with connected(Server("pq.Jobs.ack")) as queue:
        with pytest.raises(pqbridge.DeniedError) as denied:
            await queue.link.request("pq.Jobs.ack.SECRET", timeout=60)

    assert "secret" not in str(denied.value).lower()
