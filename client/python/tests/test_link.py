"""What nats-py and the NATS server do to requests, tried against a server that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import PATIENCE, Bridge
from nats.aio.client import Client as NATS

import pqbridge
import pqbridge.sync
from pqbridge.link import Inbox, link_of


class Server:
    """The server's side of one connection, which refuses what it is told to."""

    def __init__(self, *refused: str, deaf: bool = False) -> None:
        self.refused = refused
        self.deaf = deaf  # to the messages of the next connection that has some
        self.published: list[str] = []
        self.ended, self.closed = asyncio.Event(), asyncio.Event()
        self.reached = asyncio.Event()  # by one of these

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"headers":true,"version":"2.10.0"}\r\n')
        while line := (await reader.readline()).decode():
            verb, *args = line.split()
            if verb == "PING":
                writer.write(b"PONG\r\n")
            elif verb in ("PUB", "HPUB"):
                if self.deaf:
                    self.deaf = False
                    self.reached.set()
                    await self.ended.wait()
                    writer.transport.abort()
                    break
                await reader.readexactly(int(args[-1]) + 2)
                self.published.append(args[0])
                self.refuse("Publish", args[0], writer)
            elif verb == "SUB":
                self.refuse("Subscription", args[0], writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.closed.set()

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
        server.ended.set()
        with contextlib.suppress(ConnectionError):
            await nc.close()
        await server.closed.wait()
        listener.close()


class Door:
    """The server's side of connections, the first of which it closes when it is told to.

    Of the others, it refuses the login of the first few.
    """

    def __init__(self, refusals: int, *, begins: bool = True) -> None:
        self.refusals, self.opens = refusals, begins
        self.close = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"headers":true,"auth_required":true}\r\n')
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line == b"PING\r\n" and not self.opens and self.refusals:
                    self.refusals -= 1
                    writer.write(b"-ERR 'Authorization Violation'\r\n")
                    break
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                    if self.opens:
                        self.opens = False
                        writer.write(await self.close)
                        break
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def listening(door: Door) -> AsyncIterator[str]:
    listener = await asyncio.start_server(door.serve, "127.0.0.1")
    host, port = listener.sockets[0].getsockname()
    yield f"{host}:{port}"
    listener.close()


async def test_a_login_that_is_refused_at_the_start_ends_connect() -> None:
    """The error names the server and the reason, and not the password."""
    async with listening(Door(99, begins=False)) as at:
        refused = rf"NATS at {at} refuses this login: nats: 'Authorization Violation'$"
        with pytest.raises(pqbridge.DeniedError, match=refused):
            await asyncio.wait_for(pqbridge.connect(f"nats://eve:secret@{at}")._connecting, PATIENCE)

        jobs = pqbridge.sync.Client(f"nats://eve:secret@{at}", timeout=PATIENCE).priority_queue("jobs")
        for _ in range(2):  # the next call tries again
            with pytest.raises(pqbridge.DeniedError, match=refused):
                await asyncio.to_thread(jobs.push, b"job")


async def test_a_server_that_refuses_the_login_is_not_the_last_one(unused_tcp_port: int) -> None:
    async with listening(Door(99, begins=False)) as closed, listening(Door(0, begins=False)) as open:
        for _ in range(5):  # whichever is asked first
            async with pqbridge.connect([f"nats://{closed}", f"nats://{open}"]) as nc:
                assert nc.connected_url and nc.connected_url.netloc == open

        away = f"nats://127.0.0.1:{unused_tcp_port}"
        with pytest.raises(pqbridge.DeniedError, match=closed):
            await asyncio.wait_for(pqbridge.connect([away, f"nats://{closed}"])._connecting, PATIENCE)


@pytest.mark.parametrize(
    "end", [b"", b"-ERR 'Authorization Violation'\r\n", b"-ERR 'Maximum Payload Violation'\r\n"], ids=repr
)
async def test_a_connection_outlasts_logins_that_are_refused_later(end: bytes) -> None:
    """The first connection ends as in a restart, or as after a reload."""
    door, back = Door(40), asyncio.Event()
    async with (
        listening(door) as at,
        pqbridge.connect(f"nats://{at}", reconnect_time_wait=0.001, reconnected_cb=back.set) as nc,
    ):
        door.close.set_result(end)
        await asyncio.wait_for(back.wait(), PATIENCE)

        assert door.refusals == 0 and nc.is_connected


async def test_a_wait_for_nats_that_is_over_says_where_and_why(unused_tcp_port: int) -> None:
    urls = [f"nats://eve:secret@127.0.0.1:{unused_tcp_port}", f"nats://localhost:{unused_tcp_port}"]
    jobs = pqbridge.sync.Client(urls, timeout=0.3).priority_queue("jobs")

    with pytest.raises(pqbridge.NotSentError) as error:
        await asyncio.to_thread(jobs.push, b"job")

    assert f"127.0.0.1:{unused_tcp_port}" in error.value.text and f"localhost:{unused_tcp_port}" in error.value.text
    assert " within 0.3 s: [Errno " in error.value.text and "secret" not in error.value.text


async def test_connect_says_why_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    connecting = asyncio.ensure_future(pqbridge.connect(f"nats://127.0.0.1:{port}")._connecting)
    while not caplog.records and not connecting.done():
        await asyncio.sleep(0.01)
    connecting.cancel()

    assert caplog.records[0].levelname == "WARNING"
    assert "the connection to NATS: " in caplog.text
    await asyncio.wait({connecting})


@pytest.mark.parametrize("options", [{}, {"tls": ssl.create_default_context()}])
async def test_a_server_without_tls_is_told_nothing_where_tls_is_wanted(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"headers":true,"auth_required":true}\r\n')
        heard = await reader.read()
        if not told.done():
            told.set_result(heard)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    scheme = "nats" if options else "tls"
    connecting = asyncio.ensure_future(
        pqbridge.connect(f"{scheme}://{host}:{port}", user="u", password="secret", **options)._connecting
    )

    assert await asyncio.wait_for(told, PATIENCE) == b""

    connecting.cancel()
    await asyncio.wait({connecting})
    server.close()
    assert "secure connection not available" in caplog.text


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
    await server.closed.wait()
    listener.close()


async def test_clients_of_a_connection_share_what_it_has_and_leave_nothing(nc: NATS) -> None:
    link = weakref.ref(link_of(nc))
    one, two = pqbridge.Client(nc).priority_queue("one"), pqbridge.Client(nc).priority_queue("two")
    assert one.link is two.link is link_of(nc)
    await one.len()
    await two.len()
    assert len(nc._subs) == 1
    for i in range(1000):
        pqbridge.Client(nc).priority_queue(f"q{i}")
    assert len(nc._subs) == 1

    own = NATS()
    other = weakref.ref(own)
    link_of(own)
    del own
    gc.collect()
    assert other() is None and link() is one.link


@pytest.mark.parametrize("private", [True, False])
async def test_a_subscription_ends_with_and_without_private_parts_of_nats_py(
    queue: pqbridge.Queue, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    sent, nc = list[int](), queue.link.nc
    send = nc._send_unsubscribe

    async def note(sid: int, *args: Any, **kwargs: Any) -> None:
        sent.append(sid)
        await send(sid, *args, **kwargs)

    monkeypatch.setattr(nc, "_send_unsubscribe", note)
    inbox = Inbox(queue.link)
    await inbox.open()
    if not private:
        monkeypatch.setattr("pqbridge.link._PRIVATE", "_a_name_that_is_gone")
    before = len(nc._subs)

    assert await inbox.close() == []

    assert len(nc._subs) == before - 1
    assert len(sent) == (2 if private else 1)  # once ahead of what is on its way


async def test_callbacks_cannot_keep_a_connection_from_coming_back(
    own_bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    lost, back = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        lost.set()
        raise RuntimeError

    async with pqbridge.connect(own_bridge.url, disconnected_cb=fail, reconnected_cb=back.set):
        own_bridge.kill()
        await asyncio.wait_for(lost.wait(), PATIENCE)
        await own_bridge.start()
        await asyncio.wait_for(back.wait(), PATIENCE)

    assert "a callback of the connection failed" in caplog.text


async def test_a_worker_that_may_not_lease_ends() -> None:
    async with connected(Server("pq.Jobs.pop")) as queue:
        with pytest.raises(pqbridge.DeniedError):
            await pqbridge.Worker(queue, print).run()


async def test_the_token_of_a_lease_is_in_no_error() -> None:
    async with connected(Server("pq.Jobs.ack")) as queue:
        with pytest.raises(pqbridge.DeniedError) as denied:
            await queue.link.request("pq.Jobs.ack.SECRET", timeout=60)

    assert "secret" not in str(denied.value).lower()


async def test_a_push_can_be_cancelled_while_nats_py_flushes() -> None:
    async with connected(Server(deaf=True), pending_size=1024) as queue:
        pushes = [asyncio.create_task(queue.push(b"x" * 1_000_000)) for _ in range(20)]
        await asyncio.sleep(0.2)
        for push in pushes:
            push.cancel()
        ends = await asyncio.wait_for(asyncio.gather(*pushes, return_exceptions=True), PATIENCE)

    assert all(isinstance(end, asyncio.CancelledError) for end in ends)


async def freeze(server: Server, nc: NATS) -> None:
    """Have a server read no more, and send it more than the system takes, and than nats-py queues."""
    server.deaf = True
    for _ in range(32):
        await nc.publish("early", b"x" * 1_000_000)
    await asyncio.wait_for(server.reached.wait(), PATIENCE)
    await nc._send_ping()  # from now on, flushes of nats-py wait
    await asyncio.sleep(0)
    await nc.publish("late", b"x")
    for n in range(1100):
        await asyncio.wait_for(nc.subscribe(f"s{n}"), PATIENCE)


async def test_a_connection_leaves_a_server_that_has_frozen_and_tells_another_nothing_of_what_has_waited() -> None:
    """Requests that waited may have been given up, and nobody knows their outcome."""
    server, back = Server(), asyncio.Event()
    options: dict[str, Any] = {"ping_interval": 0.05, "max_outstanding_pings": 1e9, "reconnected_cb": back.set}
    async with connected(server, **options) as queue:
        nc = queue.link.nc
        await freeze(server, nc)
        nc.options["max_outstanding_pings"] = 2

        await asyncio.wait_for(back.wait(), PATIENCE)
        await nc.publish("after", b"x")
        await nc.flush(int(PATIENCE))
        assert server.published == ["after"]


async def test_a_connection_to_a_server_that_has_frozen_closes() -> None:
    server = Server()
    async with connected(server) as queue:
        await freeze(server, queue.link.nc)

        await asyncio.wait_for(queue.link.nc.close(), PATIENCE)


async def test_a_request_that_was_given_up_leaves_nothing(queue: pqbridge.Queue) -> None:
    nc = queue.link.nc
    await queue.len()
    before = len(nc._subs)
    waiting = [asyncio.create_task(queue.lease(expires=60)) for _ in range(5)]
    await asyncio.sleep(0.2)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    end = asyncio.get_running_loop().time() + PATIENCE
    while len(nc._subs) > before + 1:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.05)
    assert await queue.len() == 0
