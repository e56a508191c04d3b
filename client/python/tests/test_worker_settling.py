"""What a worker sends, logs and outlasts, in virtual time and against a bridge in this process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from fake import FakeNATS, Reply, Request
from virtual import VirtualLoop, run_virtually

import pqbridge
from pqbridge import Job, Outcome, Worker
from pqbridge.headers import frame
from pqbridge.threads import Threads

Test = Callable[[VirtualLoop, FakeNATS], Awaitable[None]]
CODE = "Nats-Service-Error-Code"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    return lambda test: run_virtually(lambda loop: test(loop, FakeNATS()), monkeypatch)


async def nothing(job: Job) -> None:
    await asyncio.sleep(0.01)


class Ends:
    """How jobs have ended, by their values."""

    def __init__(self, worker: Worker) -> None:
        self.kinds: dict[str, str] = {}
        for event in ("completed", "failed", "lost"):
            worker.on(event)(self.note)

    def note(self, job: Job, outcome: Outcome) -> None:
        self.kinds[job.string()] = outcome.kind

    async def wait(self, count: int) -> dict[str, str]:
        while len(self.kinds) < count:
            await asyncio.sleep(0.01)
        return self.kinds


def values(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def test_jobs_that_end_together_share_an_acknowledgement(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(500))
        began: list[bytes] = []

        async def handler(job: Job) -> bytes:
            began.append(job.value)
            await asyncio.sleep(0.01)
            return job.value

        worker = Worker(nats.queue, handler, concurrency=50)
        ends = Ends(worker)
        async with worker:
            assert set((await ends.wait(500)).values()) == {"done"}

        assert sorted(began) == sorted(values(500)) and not nats.leased
        acks = [r for r in nats.requests if r.ack in ("+NXT", "+ACK")]
        assert len(acks) < 100
        assert sorted(result for r in acks for result in r.results) == sorted(values(500))

    run(test)


def test_a_worker_with_one_slot_sends_one_request_for_each_job(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(20))
        worker = Worker(nats.queue, nothing)
        ends = Ends(worker)
        async with worker:
            await ends.wait(20)
        assert [r.ack for r in nats.requests].count("+NXT") == 20

    run(test)


@pytest.mark.parametrize(
    ("broken", "kinds"),
    [
        ("no reply", {"done"}),
        ("500", {"done"}),
        ("429", {"done"}),
        ("one lost", {"done", "lost"}),
        ("one too large", {"done", "failed"}),
        ("the next one cannot be read", {"done"}),
    ],
)
def test_a_shared_acknowledgement_that_breaks_settles_each_job_once(
    run: Callable[[Test], None], broken: str, kinds: set[str]
) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        broke = False

        def answer(request: Request) -> Reply | str | None:
            nonlocal broke
            if broken == "one too large" and b"3" in request.results:
                return {CODE: "400", "Nats-Service-Error": "too large"}, b""
            if broke or request.ack != "+NXT" or "also" not in request.options:
                return ""
            broke = True
            if broken in ("no reply", "500", "the next one cannot be read"):
                before = set(nats.leased)
                nats.carry_out(request)
                nats.ready += [nats.leased.pop(token) for token in set(nats.leased) - before]  # as nobody has them
                no_token = {"Pq-Frames": "1", "Pq-Batch-Count": "1"}, frame(0, [("Pq-Id", "x")], b"no token")
                return {
                    "no reply": None,
                    "500": ({CODE: "500", "Nats-Service-Error": "broken"}, b""),
                    "the next one cannot be read": no_token,
                }[broken]
            if broken == "429":
                return {CODE: "429", "Nats-Service-Error": "full"}, b""
            if broken == "one lost":
                del nats.leased[request.options["also"][0]]
            return ""

        nats.answer = answer
        nats.push(*values(20))

        async def handler(job: Job) -> bytes:
            await asyncio.sleep(0.01)
            return job.value

        worker = Worker(nats.queue, handler, concurrency=10)
        ends = Ends(worker)
        async with worker:
            ended = await ends.wait(10)
            await asyncio.sleep(60)
            assert len(nats.ready) == 0
        assert set(ended.values()) == kinds and sum(kind == "done" for kind in ended.values()) >= 9
        assert broke or broken == "one too large"

    run(test)


@pytest.mark.parametrize(
    ("raised", "sent"),
    [
        (None, ["+NXT", "+ACK"]),
        (OSError("no paper"), ["-NAK"]),
        (pqbridge.Snooze(1), ["-NAK"]),
        (pqbridge.Drop("no paper"), ["+TERM"]),
    ],
)
@pytest.mark.parametrize("in_thread", [False, True])
def test_an_acknowledgement_that_gets_500_is_not_repeated(
    run: Callable[[Test], None],
    caplog: pytest.LogCaptureFixture,
    raised: Exception | None,
    sent: list[str],
    in_thread: bool,
) -> None:
    """It is logged and frees the slot, while one that gets 503 is sent until there is an answer."""

    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        codes: Iterator[str] = itertools.repeat("500")  # of acknowledgements

        def answer(request: Request) -> Reply | str:
            code = next(codes, "") if request.ack else ""
            return ({CODE: code, "Nats-Service-Error": "damaged"}, b"") if code else ""

        def work(job: Job) -> None:
            if raised:
                raise raised

        async def work_in_loop(job: Job) -> None:
            work(job)

        nats.answer = answer
        worker = Worker(nats.queue, work if in_thread else work_in_loop)
        ends = Ends(worker)
        async with worker:
            for n in (1, 2):
                nats.push(b"%d" % n)
                await asyncio.wait_for(ends.wait(n), 100)
            await asyncio.sleep(100)
            assert [r.ack for r in nats.requests if r.ack] == sent * 2 and len(nats.leased) == 2

            codes = iter(["503"] * 5)
            del nats.requests[:]
            nats.ready.append(b"3")  # for the next request that asks
            await ends.wait(3)
            assert [r.ack for r in nats.requests if r.ack] == (sent + sent[-1:] * 5)[:6]

    run(test)

    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        f"cannot settle job {n}, which comes back: damaged (500)" for n in (1, 2)
    ]


def test_a_worker_that_stops_repeats_no_acknowledgement_that_gets_500(run: Callable[[Test], None]) -> None:
    """Jobs that end together have one each, after the shared one, as one of them may be at fault."""

    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        damaged = {CODE: "500", "Nats-Service-Error": "damaged"}, b""
        nats.answer = lambda request: damaged if request.ack else ""
        nats.push(*values(4))

        async def work(job: Job) -> None:
            await asyncio.sleep(1e6 if job.value == b"3" else 1)

        worker = Worker(nats.queue, work, concurrency=4)
        ends = Ends(worker)
        async with worker:
            await asyncio.sleep(0.5)
            start = loop.time()

        assert loop.time() - start < 27.5
        assert [r.ack for r in nats.requests if r.ack not in ("", "+WPI")] == ["+ACK"] * 4 + ["-NAK"]
        assert ends.kinds == {"0": "lost", "1": "lost", "2": "lost", "3": "stopped"}

    run(test)


@pytest.mark.parametrize("timeout", [0, 2, 25])
def test_stop_takes_no_longer_than_the_grace_and_five_seconds(run: Callable[[Test], None], timeout: float) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(3))
        began = asyncio.Event()

        async def handler(job: Job) -> None:
            began.set()
            await asyncio.sleep(1 if job.value == b"0" else 1e4)

        worker = Worker(nats.queue, handler, concurrency=3)
        running = asyncio.create_task(worker.run())
        await began.wait()
        nats.is_connected = False
        await asyncio.sleep(2)

        start = loop.time()
        await worker.stop(timeout)
        await running

        assert loop.time() - start <= timeout + 5.1

    run(test)


def test_stop_ends_in_time_although_jobs_wait_for_their_acknowledgement(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(8))
        nats.answer = lambda request: None if request.ack else ""  # the bridge is frozen

        async def handler(job: Job) -> None:
            await asyncio.sleep(1 + int(job.string()) / 10)

        worker = Worker(nats.queue, handler, concurrency=8)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(1)

        start = loop.time()
        await worker.stop(2)
        await running

        assert loop.time() - start <= 7.1

    run(test)


def test_a_hook_of_a_job_that_ends_late_cannot_hold_up_stop(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(b"late")
        began, called = asyncio.Event(), list[Job]()

        async def handler(job: Job) -> None:
            began.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1e4)
            await asyncio.sleep(20)

        async def hook(job: Job, outcome: Outcome) -> None:
            called.append(job)
            await loop.create_future()

        worker = Worker(nats.queue, handler)
        worker.on("completed")(hook)
        running = asyncio.create_task(worker.run())
        await began.wait()
        await worker.stop(1)
        await running

        assert not called and not nats.leased

    run(test)


def test_a_worker_ends_with_a_block_that_is_cancelled_as_it_begins(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(b"job")

        async def block() -> None:
            async with Worker(nats.queue, nothing):
                await asyncio.sleep(1e4)

        blocked = asyncio.create_task(block())
        await asyncio.sleep(0)
        blocked.cancel()
        await asyncio.wait({blocked})
        await asyncio.sleep(10)

        assert nats.ready == [b"job"]

    run(test)


async def test_stop_after_a_run_that_was_refused() -> None:
    worker = Worker(FakeNATS().queue, nothing)

    def elsewhere() -> None:  # signals are for the main thread
        with pytest.raises(ValueError):
            asyncio.run(worker.run(signals=True))

    await asyncio.to_thread(elsewhere)
    await asyncio.wait_for(worker.stop(), 60)


async def test_stop_belongs_into_the_loop_of_run() -> None:
    worker = Worker(FakeNATS().queue, nothing)
    async with worker:
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, worker.stop())


def test_hooks_end_nothing(run: Callable[[Test], None], caplog: pytest.LogCaptureFixture) -> None:
    class Rude(BaseException):
        pass

    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(6))
        worker = Worker(nats.queue, nothing, concurrency=2)
        ends = Ends(worker)

        @worker.on("completed")
        def hook(job: Job, outcome: Outcome) -> None:
            raise asyncio.CancelledError if job.value == b"0" else Rude

        @worker.on("completed")
        async def deadlock(job: Job, outcome: Outcome) -> None:
            await worker.stop()

        async with worker:
            await ends.wait(6)
        assert not nats.leased

    run(test)

    assert caplog.text.count("a hook of the worker failed") == 12
    assert caplog.text.count("RuntimeError: stop in a handler or a hook") == 6


def test_a_hook_needs_a_known_event() -> None:
    with pytest.raises(pqbridge.BadArgumentError, match="want one of completed, failed, lost, error"):
        Worker(FakeNATS().queue, nothing).on("done")  # type: ignore[arg-type]


@pytest.fixture
def no_signal_handlers_of_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""

    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse, raising=False)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "remove_signal_handler", refuse, raising=False)


@contextlib.contextmanager
def handling(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    yield
    assert signal.signal(number, before) is handler


@pytest.mark.usefixtures("no_signal_handlers_of_loops")
def test_workers_of_a_process_share_its_signals(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(b"slow")
        began, ended = asyncio.Event(), list[str]()

        async def handler(job: Job) -> None:
            began.set()
            try:
                await asyncio.sleep(1e5)
            finally:
                ended.append(job.why)

        busy, idle = Worker(nats.queue, handler), Worker(FakeNATS().queue, nothing)
        running = [asyncio.create_task(worker.run(signals=True)) for worker in (busy, idle)]
        await began.wait()

        signal.raise_signal(signal.SIGTERM)
        await running[1]
        assert not running[0].done() and not ended

        signal.raise_signal(signal.SIGTERM)
        await running[0]
        assert ended == ["stopped"] and not nats.leased

    noted: list[int] = []
    with handling(signal.SIGTERM, lambda number, frame: noted.append(number)):
        run(test)
        signal.raise_signal(signal.SIGTERM)

    assert noted == [signal.SIGTERM]


def test_what_fails_is_logged_by_default(run: Callable[[Test], None], caplog: pytest.LogCaptureFixture) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.headers = [("Type", "fax")]
        nats.push(b"job-1")
        worker = Worker(nats.queue)
        worker.handle("email")(nothing)
        ends = Ends(worker)
        async with worker:
            await ends.wait(1)
            nats.headers = [("Type", "email")]
            nats.push(b"job-2")
            await asyncio.sleep(0.001)
            nats.is_connected = False
            await asyncio.sleep(1000)

    run(test)

    assert not logging.getLogger("pqbridge").handlers
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "job job-1 failed at delivery 1: nobody handles jobs of type 'fax'" in warnings
    assert sum("cannot settle a job, trying again" in w for w in warnings) < 20
    assert "cannot settle job job-2, which comes back: the time that stop allows has passed" in warnings


def test_errors_of_run_come_out_of_the_block(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        async with Worker(nats.queue, nothing):
            await asyncio.sleep(1)
            nats.is_closed, nats.is_connected = True, False

        with pytest.raises(pqbridge.BadArgumentError, match="no handler"):
            async with Worker(nats.queue):
                pytest.fail("nothing runs")
        without_call: Any = nothing
        with pytest.raises(pqbridge.BadArgumentError, match="as in @worker"):
            Worker(nats.queue).handle(without_call)
        with pytest.raises(pqbridge.NotSentError):
            async with Worker(nats.queue, nothing):
                await asyncio.sleep(1)
        with pytest.raises(KeyError):
            async with Worker(FakeNATS().queue, nothing):
                raise KeyError

    run(test)


def test_options_that_are_none_are_as_if_absent(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(b"job")
        names = "concurrency ack_wait holder job_timeout retry_delay max middleware logger"
        options: dict[str, Any] = dict.fromkeys(names.split())
        worker = Worker(nats.queue, nothing, **options)
        ends = Ends(worker)
        async with worker:
            assert await ends.wait(1) == {"job": "done"}

    run(test)


def test_a_generator_is_no_handler() -> None:
    def generator(job: Job) -> Iterator[int]:
        yield 1

    async def async_generator(job: Job) -> Any:
        yield 1

    class Called:
        def __call__(self, job: Job) -> Iterator[int]:
            yield 1

    worker = Worker(FakeNATS().queue)
    for handler in (generator, async_generator, functools.partial(generator), Called(), "text"):
        with pytest.raises(pqbridge.BadArgumentError, match="want an async def, or a def, and neither with a yield"):
            worker.handle("email")(handler)  # type: ignore[type-var]
        with pytest.raises(pqbridge.BadArgumentError):
            Worker(FakeNATS().queue, handler)  # type: ignore[arg-type]


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised_from(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("the mailbox is full"), "OSError: the mailbox is full"),
        (raised_from(OSError("full"), TimeoutError("no answer")), "OSError: full: TimeoutError: no answer"),
        (raised_from(Exception("text"), Exception("cause")), "text: cause"),
        (raised_from(OSError("full"), TimeoutError()), "OSError: full: TimeoutError"),
        (raised_from(OSError("bad: no answer"), TimeoutError("no answer")), "OSError: bad: no answer"),
        (raised_from(pqbridge.RetryAfter(1), KeyError("x")), "KeyError: 'x'"),
        (raised_from(pqbridge.RetryAfter(1, "again"), KeyError("x")), "again: KeyError: 'x'"),
        (raised_from(pqbridge.Drop("no address"), KeyError("x")), "no address"),
        (SilentError(), "SilentError"),
        (Exception(), "Exception"),
        (pqbridge.Drop(""), "Drop"),
    ],
)
async def test_a_reason_says_the_error_and_its_cause(error: Exception, text: str) -> None:
    def handler(job: Job) -> None:
        raise error

    assert (await pqbridge.run_handler(handler)).text == text


async def test_errors_that_cause_each_other_have_a_reason() -> None:
    def handler(job: Job) -> None:
        first, second = KeyError("first"), KeyError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    assert (await pqbridge.run_handler(handler)).text.startswith("KeyError: 'first': KeyError: 'second'")


async def test_a_thread_that_cannot_be_started_fails_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(1)
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", lambda self: (_ for _ in ()).throw(RuntimeError("can't start")))
        with pytest.raises(RuntimeError, match="can't start"):
            threads.run(lambda: 1)

    assert await asyncio.wait_for(threads.run(lambda: 2), 60) == (2, None)
    threads.close()


async def test_progress_is_written_as_a_result_is() -> None:
    said: list[bytes] = []

    def handler(job: Job) -> None:
        job.say = said.append
        for progress in (b"half", "half", {"done": 1}):
            job.progress(progress)
        for wrong in (b"", "x" * 1100, object()):
            with pytest.raises(pqbridge.BadArgumentError):
                job.progress(wrong)

    assert (await pqbridge.run_handler(handler)).kind == "done"
    assert said == [b"half", b'"half"', b'{"done":1}']


def test_a_reply_that_arrived_while_the_loop_was_blocked_counts(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(b"job")
        delivery = await nats.queue.lease()
        assert delivery
        nats.turns = 4

        def answer(request: Request) -> str:
            loop.block(60)
            return ""

        nats.answer = answer
        await delivery.ack()

    run(test)


def test_ack_all_needs_few_requests_and_tells_what_is_lost(run: Callable[[Test], None]) -> None:
    async def test(loop: VirtualLoop, nats: FakeNATS) -> None:
        nats.push(*values(5))
        client = pqbridge.Client(nats)  # type: ignore[arg-type]
        deliveries = [d for _ in range(5) if (d := await nats.queue.lease())]
        del nats.leased[deliveries[1].token]

        outcomes = await client.ack_all(deliveries)

        assert [type(o) for o in outcomes] == [type(None), pqbridge.LeaseLostError, *[type(None)] * 3]
        nats.push(*values(2000))
        many = [d for _ in range(2000) if (d := await nats.queue.lease())]
        del nats.requests[:]
        assert set(await client.ack_all(many)) == {None}
        assert len(nats.requests) == 2 and await client.ack_all([]) == []

    run(test)
