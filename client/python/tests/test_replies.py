"""Replies that are not those of a bridge, come late or not at all, from a server that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import struct
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from conftest import PATIENCE, Bridge

import pqbridge
import pqbridge.sync
from pqbridge.times import Pause

NOBODY = b"NATS/1.0 503\r\n\r\n"
OF_A_STREAM = b'{"stream":"jobs","seq":5}'


class Server:
    """A NATS server that answers requests, and can lose its connections."""

    def __init__(self) -> None:
        self.answer: Callable[[str], tuple[bytes, bytes]] = lambda subject: (b"", b"")
        self.late = b"", b""  # what comes as the subscription for the latest request ends
        self.delay = 0.0
        self.refuses = self.refuses_inboxes = self.is_deaf = False
        self.requests: list[str] = []
        self.asked = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        while self._writers:
            self._writers.pop().transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        writer.write(b'INFO {"max_payload":1048576,"headers":true,"version":"2.10.0"}\r\n')
        self._writers.append(writer)
        numbers: dict[str, str] = {}
        inbox = ""

        def send(reply: str, header: bytes, value: bytes) -> None:
            number = numbers.get(reply.rpartition(".")[0] + ".*")
            if number and (header or value):
                start = f"HMSG {reply} {number} {len(header)} {len(header) + len(value)}\r\n"
                writer.write((start if header else f"MSG {reply} {number} {len(value)}\r\n").encode())
                writer.write(header + value + b"\r\n")

        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode():
                verb, *args = line.split()
                if verb == "PING" and not self.is_deaf:
                    writer.write(b"PONG\r\n")
                elif verb == "SUB" and self.refuses_inboxes:
                    writer.write(f"-ERR 'Permissions Violation for Subscription to \"{args[0]}\"'\r\n".encode())
                elif verb == "SUB":
                    numbers[args[0]] = args[-1]
                elif verb == "UNSUB":
                    send(inbox, *self.late)
                    self.late = b"", b""
                elif verb in ("PUB", "HPUB"):
                    await reader.readexactly(int(args[-1]) + 2)
                    self.requests.append(args[0])
                    self.asked.set()
                    if args[1].rpartition(".")[0] + ".*" in numbers:  # else nobody reads the reply
                        inbox = args[1]
                    answer = self.answer(args[0])
                    asyncio.get_running_loop().call_later(self.delay, send, args[1], *answer)
        writer.close()


@contextlib.asynccontextmanager
async def connected(server: Server, timeout: float = 60, **options: Any) -> AsyncIterator[pqbridge.Queue]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1")
    host, port = listener.sockets[0].getsockname()
    nc = await pqbridge.connect(f"nats://{host}:{port}", reconnect_time_wait=0.01, **options)
    try:
        yield pqbridge.Client(nc, timeout=timeout).priority_queue("jobs")
    finally:
        await nc.close()
        listener.close()


def leased(*pairs: bytes) -> tuple[bytes, bytes]:
    """Return the reply with one leased item in a frame."""
    headers = b"NATS/1.0\r\n" + b"".join(pair + b"\r\n" for pair in pairs) + b"\r\n"
    return b"NATS/1.0\r\nPq-Frames: 1\r\n\r\n", struct.pack(">qII", 0, len(headers), 0) + headers


async def test_no_bridge_that_is_heard_of_late_is_no_item() -> None:
    server = Server()
    server.late = NOBODY, b""
    async with connected(server) as queue:
        pop = queue.pop_request(False, 60, {})
        running = asyncio.create_task(pop.run())
        await server.asked.wait()
        pop.interrupt()  # which the server does not answer
        with pytest.raises(pqbridge.UnknownOutcomeError):
            await asyncio.wait_for(running, PATIENCE)


async def test_a_push_is_not_tried_once_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def refuse(*_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise pqbridge.NoBridgeError("no bridge listens")

    async with connected(Server(), timeout=0.04) as queue:
        monkeypatch.setattr(queue, "_push", refuse)
        with pytest.raises(pqbridge.NoBridgeError):
            await queue.push(b"x")
    assert tries == 1


@pytest.mark.parametrize("many", [False, True])
async def test_once_an_attempt_may_have_counted_the_outcome_is_unknown(
    monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    errors = [pqbridge.UnknownOutcomeError("no reply"), pqbridge.NotSentError("the connection is away")]

    async def fail(*_: Any) -> Any:
        raise errors.pop(0) if len(errors) > 1 else errors[0]

    async with connected(Server(), timeout=0.2) as queue:
        monkeypatch.setattr(queue, "_push", fail)
        if many:
            outcome = (await queue.push_many([{"value": b"x"}]))[0]
        else:
            with pytest.raises(pqbridge.PQError) as raised:
                await queue.push(b"x")
            outcome = raised.value

    assert isinstance(outcome, pqbridge.UnknownOutcomeError) and outcome.unknown
    assert "the connection is away" in str(outcome)


async def test_without_a_message_id_only_what_was_not_done_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[pqbridge.PQError] = [pqbridge.NoBridgeError("none"), pqbridge.UnknownOutcomeError("no reply")]

    async def fail(*_: Any) -> Any:
        raise errors.pop(0)

    async with connected(Server()) as queue:
        monkeypatch.setattr(queue, "_push", fail)
        with pytest.raises(pqbridge.UnknownOutcomeError):
            await queue.push(b"x", msg_id="")
    assert not errors


async def test_many_pushes_are_repeated_with_their_message_ids(queue: pqbridge.Queue, monkeypatch: Any) -> None:
    push, tries = queue._push, 0

    async def push_and_lose_the_reply(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        acks = await push(*args)
        if tries == 1:
            raise pqbridge.UnknownOutcomeError("no reply")
        return acks

    monkeypatch.setattr(queue, "_push", push_and_lose_the_reply)
    outcomes = await queue.push_many({"value": b"%d" % n} for n in range(3))

    assert [isinstance(o, pqbridge.PushAck) and not o.duplicate for o in outcomes] == [True] * 3
    assert tries == 2 and await queue.len() == 3


PUSHED = b"", b'{"queue":"jobs","id":"ID"}'


async def test_a_call_whose_job_is_pushed_has_its_id_when_the_wait_is_over() -> None:
    server = Server()
    server.answer = lambda subject: PUSHED if "push" in subject else (NOBODY, b"")
    async with connected(server) as queue:
        with pytest.raises(pqbridge.NotDoneError) as raised:
            await asyncio.wait_for(queue.call(b"job", wait="100ms"), PATIENCE)

    assert raised.value.id == "ID" and isinstance(raised.value.__cause__, pqbridge.NoBridgeError)


async def test_a_call_ends_although_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.queue._LATEST", 0.1)
    server = Server()
    server.answer = lambda subject: PUSHED if "push" in subject else (b"", b"")
    async with connected(server, timeout=3600) as queue:
        with pytest.raises(pqbridge.NotDoneError) as raised:
            await asyncio.wait_for(queue.call(b"job", wait="100ms"), PATIENCE)

    assert raised.value.id == "ID" and isinstance(raised.value.__cause__, pqbridge.UnavailableError)


async def test_a_call_ends_although_nats_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.queue._LATEST", 0.1)
    server = Server()
    async with connected(server, timeout=3600) as queue:

        async def push(*_: Any) -> list[pqbridge.PushAck]:
            server.refuses = True
            server.cut()
            while queue.link.nc.is_connected:
                await asyncio.sleep(0)
            return [pqbridge.PushAck("ID", 0, False)]

        monkeypatch.setattr(queue, "_push", push)
        with pytest.raises(pqbridge.NotDoneError) as raised:
            await asyncio.wait_for(queue.call(b"job", wait="100ms"), PATIENCE)

    assert raised.value.id == "ID" and isinstance(raised.value.__cause__, pqbridge.PQError)


async def test_a_connection_that_is_closed_ends_everything() -> None:
    server = Server()
    server.answer = lambda subject: PUSHED if "push" in subject else (b"", b"")
    async with connected(server, timeout=3600) as queue:
        waiting = [
            asyncio.create_task(w)
            for w in (queue.call(b"job"), queue.result("ID", wait="1h"), queue.lease(expires=3600), queue.len())
        ]
        while len(server.requests) < 5:
            await server.asked.wait()
            await asyncio.sleep(0.01)
        await queue.link.nc.close()
        ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
        kinds = [type(e) for e in ends]
        assert kinds == [
            pqbridge.NotDoneError,
            pqbridge.UnavailableError,
            pqbridge.UnknownOutcomeError,
            pqbridge.UnavailableError,
        ]
        for request in (queue.push(b"job"), queue.result("ID", wait="1h"), queue.pop(expires=3600), queue.len()):
            with pytest.raises(pqbridge.NotSentError, match="is closed"):
                await asyncio.wait_for(request, PATIENCE)


async def test_a_connection_that_is_closed_ends_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    class LongPause(Pause):
        async def wait(self, most: float = 2.0, sleep: Any = asyncio.sleep) -> None:
            await sleep(3600)

    monkeypatch.setattr("pqbridge.queue.Pause", LongPause)
    server = Server()
    server.answer = lambda subject: (NOBODY, b"")
    async with connected(server, timeout=3600) as queue:
        trying = [asyncio.create_task(queue.push(b"job")), asyncio.create_task(queue.result("ID", wait="1h"))]
        while len(server.requests) < 2 or queue.link._under_way:
            await asyncio.sleep(0.01)
        await queue.link.nc.close()
        ends = await asyncio.wait_for(asyncio.gather(*trying, return_exceptions=True), PATIENCE)

    assert [type(e) for e in ends] == [pqbridge.NotSentError] * 2


async def test_a_connection_of_the_package_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.client._POLL", 3600)
    server, told = Server(), list[str]()

    async def tell(what: str) -> None:
        told.append(what)

    server.answer = lambda subject: (b"", b'{"len":0}') if len(server.requests) > 1 else (b"", b"")
    options = {f"{what}_cb": functools.partial(tell, what) for what in ("disconnected", "reconnected", "closed")}
    async with connected(server, timeout=3600, **options) as queue:
        asking = asyncio.create_task(queue.result("ID", wait=60))
        await server.asked.wait()
        server.cut()
        with pytest.raises(pqbridge.BadReplyError):  # asked again, and got that of a len
            await asyncio.wait_for(asking, PATIENCE)
        assert told == ["disconnected", "reconnected"]
        server.answer = lambda subject: (b"", b"")
        asking = asyncio.create_task(queue.result("ID", wait=60))
        while len(server.requests) < 3:
            await asyncio.sleep(0.01)
        await queue.link.nc.close()
        with pytest.raises(pqbridge.UnavailableError, match="is closed"):
            await asyncio.wait_for(asking, PATIENCE)
    assert told[-1] == "closed"


async def test_a_job_that_comes_as_its_request_ends_is_kept() -> None:
    server = Server()
    server.late = leased(b"Pq-Token: T")
    async with connected(server) as queue:
        pop = queue.pop_request(False, 60, {"ack_wait": "30s"})
        running = asyncio.create_task(pop.run())
        await server.asked.wait()
        pop.interrupt()  # which the server does not answer
        received = await asyncio.wait_for(running, PATIENCE)

    assert [r.ack_subject for r in received] == ["pq.jobs.ack.T"]


async def test_a_job_that_comes_after_its_request_was_cancelled_goes_back() -> None:
    server = Server()
    server.late = leased(b"Pq-Token: T")
    async with connected(server) as queue:
        leasing = asyncio.create_task(queue.lease(expires=60))
        await server.asked.wait()
        leasing.cancel()
        await asyncio.wait({leasing})
        await queue.link.wait(PATIENCE)

    assert server.requests[-1] == "pq.jobs.ack.T"


@pytest.mark.parametrize(
    "answer",
    [
        (b"", OF_A_STREAM),
        (b"NATS/1.0\r\nPq-Frames: x\r\n\r\n", b""),
        (b"NATS/1.0\r\nPq-Batch-Count: x\r\n\r\n", b""),
        ("NATS/1.0\r\nNats-Service-Error-Code: \u00b2\r\n\r\n".encode(), b""),
        leased(b"Pq-Token: T", b"Pq-Ack-Wait: soon"),
    ],
)
async def test_a_worker_outlasts_what_is_no_reply_of_a_bridge(answer: tuple[bytes, bytes]) -> None:
    server = Server()
    server.answer = lambda subject: answer if len(server.requests) == 1 else (b"", b"")
    ran: list[pqbridge.Job] = []
    errors = asyncio.Queue[pqbridge.PQError]()
    async with connected(server) as queue:
        worker = pqbridge.Worker(queue, ran.append)
        worker.on("error")(errors.put_nowait)
        running = asyncio.create_task(worker.run())
        error = await asyncio.wait_for(errors.get(), PATIENCE)
        await worker.stop()
        await running

    assert isinstance(error, pqbridge.BadReplyError)
    assert not ran


@pytest.mark.parametrize("code", [500, 503])
async def test_a_job_counts_if_the_next_one_cannot_be_read(code: int) -> None:
    def error(code: int) -> tuple[bytes, bytes]:
        return f"NATS/1.0\r\nNats-Service-Error-Code: {code}\r\n\r\n".encode(), b""

    answers = [leased(b"Pq-Token: T", b"Pq-Ack-Wait: 30s"), error(code), error(409)]
    server = Server()
    server.answer = lambda subject: answers.pop(0) if answers else (b"", b"")
    ended = asyncio.Queue[str]()

    async def handle(job: pqbridge.Job) -> None: ...

    async def note(job: pqbridge.Job, outcome: pqbridge.Outcome) -> None:
        ended.put_nowait(outcome.kind)

    async with connected(server) as queue:
        worker = pqbridge.Worker(queue, handle)
        worker.on("completed")(note)
        worker.on("lost")(note)
        running = asyncio.create_task(worker.run())
        assert await asyncio.wait_for(ended.get(), PATIENCE) == "done"
        await worker.stop()
        await running


async def test_numbers_and_times_that_are_none() -> None:
    server = Server()
    server.answer = lambda subject: leased(b"Pq-Token: T", b"Pq-Priority: high", b"Pq-Pushed-At: soon")
    async with connected(server) as queue:
        delivery = await queue.lease(ack_wait=30)
        assert delivery
        for name in ("priority", "pushed_at"):
            with pytest.raises(pqbridge.BadReplyError):
                getattr(delivery, name)
        for header in ("Pq-Ack-Wait", "Pq-Lease-Until"):
            answer = f"NATS/1.0\r\n{header}: x\r\n\r\n".encode(), b""
            server.answer = lambda subject, answer=answer: answer  # type: ignore[misc]
            with pytest.raises(pqbridge.BadReplyError):
                await delivery.extend()


NO_NUMBER = "NATS/1.0\r\nNats-Service-Error-Code: \u00b2\r\n\r\n".encode()


@pytest.mark.parametrize("answer", [(b"", OF_A_STREAM), (NO_NUMBER, b"")])
async def test_only_a_bridge_confirms_a_pause(answer: tuple[bytes, bytes]) -> None:
    server = Server()
    server.answer = lambda subject: answer
    async with connected(server) as queue:
        with pytest.raises(pqbridge.BadReplyError):
            await queue.pause()


async def test_nothing_is_sent_if_another_server_refuses_the_inbox() -> None:
    server = Server()
    server.answer = lambda subject: (b"", b'{"len":0}')
    async with connected(server) as queue:
        await queue.len()
        server.refuses_inboxes = True
        server.cut()
        while queue.link.number == 0:
            await asyncio.sleep(0.01)
        with pytest.raises(pqbridge.DeniedError):
            await queue.remove("id")

    assert server.requests == ["pq.jobs.len"]


async def test_a_request_sent_after_an_outage_was_not_lost_in_it() -> None:
    server = Server()
    async with connected(server) as queue:
        waiting = asyncio.create_task(queue.lease(expires=60))
        await server.asked.wait()
        server.answer = lambda subject: (b"", b'{"queue":"jobs","id":"id"}') if "push" in subject else (b"", b"")
        server.delay = 0.2
        outcomes: list[pqbridge.PushAck | pqbridge.PQError] = []
        for _ in range(4):
            server.cut()
            while queue.link.nc.is_connected:
                await asyncio.sleep(0)
            outcomes += await queue.push_many([{"value": b"job"}])
        waiting.cancel()

    assert [type(o) for o in outcomes] == [pqbridge.PushAck] * 4


async def test_a_connection_lost_while_it_is_tried_delays_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.link.LATE_REPLY", 3600)  # seconds to wait for a PONG
    server = Server()
    server.answer = lambda subject: (b"", b'{"len":0}')
    async with connected(server, timeout=3600) as queue:
        server.is_deaf = True
        asking = asyncio.create_task(queue.len())
        await asyncio.sleep(0.1)
        server.is_deaf = False
        server.cut()
        assert await asyncio.wait_for(asking, PATIENCE) == 0


async def test_a_request_to_a_server_that_hangs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.link.LATE_REPLY", 3600)  # seconds to wait for a PONG
    server = Server()
    async with connected(server, timeout=0.2) as queue:
        server.is_deaf = True
        with pytest.raises(pqbridge.PQError):
            await asyncio.wait_for(queue.len(), PATIENCE)
        server.is_deaf = False


async def test_a_batch_without_items(queue: pqbridge.Queue) -> None:
    for n in (0, -1, 1001):
        with pytest.raises(pqbridge.BadArgumentError):
            await queue.pop_batch(n)


def test_errors_can_be_sent_to_another_process() -> None:
    error = pqbridge.JobFailedError("id", "full", "max_deliver", "OSError: full", 3)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and vars(copy) == vars(error)


@pytest.mark.parametrize("progress", [object(), b"", "x" * 1025, "half \ud800"])
async def test_progress_that_cannot_be_sent_raises(progress: Any) -> None:
    outcome = await pqbridge.run_handler(lambda job: job.progress(progress))
    assert isinstance(outcome.error, pqbridge.BadArgumentError)


async def test_a_blocking_call_that_close_ends(shared_bridge: Bridge, name: str) -> None:
    client = pqbridge.sync.Client(shared_bridge.url)
    jobs = client.priority_queue(name)
    pushed = await asyncio.to_thread(jobs.push, b"job", keep="1h")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            jobs.result(pushed.id, wait="1h")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    await asyncio.sleep(0.3)
    await asyncio.to_thread(client.close)
    await asyncio.to_thread(thread.join, PATIENCE)
    assert isinstance(raised[0], pqbridge.UnknownOutcomeError)
