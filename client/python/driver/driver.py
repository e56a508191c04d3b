"""The driver over this package, for the table of behaviour that all clients share.

testenv/clients of the project defines the lines that it reads and prints.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import pqbridge
from pqbridge.times import parse_time, seconds

Object = dict[str, Any]

PUSH = "value priority msgId unique delay at ttl group weight keep headers type join joiner"
MEMBERS = {
    "push": PUSH,
    "pushMany": "items",
    "all": "items",
    "open": PUSH + " open",
    "close": "id",
    "pop": "max expires count peek",
    "lease": "ackWait expires holder max count",
    "settle": "lease how result delay retryDelay reason progress next",
    "ackAll": "leases",
    "look": "what state match id max",
    "manage": "what id ids place places state priority max settings group name schedule",
    "result": "id msgId wait follow",
    "call": PUSH + " wait",
    "work": "worker queues concurrency ackWait holder jobTimeout retryDelay max types",
    "stop": "worker timeout",
    "exit": "",
}

CLASSES: dict[type, str] = {
    getattr(pqbridge, name + "Error"): name
    for name in (
        "BadArgument BadRequest NotFound LeaseLost Leased Joined Chain TooLarge Overloaded Internal Unavailable "
        "NoBridge BadReply NotSent UnknownOutcome NoHeartbeat JobFailed NotDone"
    ).split()
}


class UnsupportedError(Exception):
    """An operation or member that the driver does not know."""


def data_of(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def numbers_as_text(value: Any) -> Any:
    """Return JSON as answers have it."""
    if isinstance(value, dict):
        return {name: numbers_as_text(member) for name, member in value.items()}
    if isinstance(value, list):
        return [numbers_as_text(member) for member in value]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if number else value


def read_header(pair: list[Any]) -> tuple[str, str]:
    name, value = pair
    if isinstance(value, dict):
        value = base64.b64decode(value["base64"]).decode("utf-8", "surrogateescape")
    return name, value


def header_pair(name: str, value: str) -> list[Any]:
    data = value.encode("utf-8", "surrogateescape")
    try:
        return [name, data.decode()]
    except UnicodeDecodeError:
        return [name, {"base64": text_of(data)}]


def push_item(c: Mapping[str, Any]) -> Any:
    """Return the value and the options of a push."""
    item: Object = {"value": data_of(c.get("value")), "msg_id": c.get("msgId", "")}
    for name in ("unique", "delay", "ttl", "group", "keep", "type", "join"):
        if name in c:
            item[name] = c[name]
    for name in ("priority", "weight"):
        if c.get(name):
            item[name] = int(c[name])
    if c.get("at"):
        item["at"] = parse_time(c["at"])
    if c.get("joiner"):
        item["joiner"] = f"{c['queue']} {c['joiner']}"
    if c.get("headers"):
        item["headers"] = [read_header(pair) for pair in c["headers"]]
    return item


def item_object(item: pqbridge.Item) -> Object:
    return {
        "id": item.id,
        "priority": str(item.priority),
        "value": text_of(item.value),
        "headers": [header_pair(name, value) for name, value in item.headers.pairs],
        "group": item.group,
    }


def class_of(error: BaseException) -> str:
    if isinstance(error, UnsupportedError):
        return "Unsupported"
    if isinstance(error, pqbridge.UnavailableError) and not error.code:
        return "Timeout"  # a request that only reads has no reply
    return next((CLASSES[c] for c in type(error).__mro__ if c in CLASSES), "BadArgument")


def error_object(error: BaseException) -> Object:
    failed = isinstance(error, pqbridge.JobFailedError)
    pushed = {"job": error.id} if isinstance(error, pqbridge.NotDoneError) else {}
    return pushed | {
        "class": class_of(error),
        "code": str(getattr(error, "code", 0)),
        "reason": "" if failed else getattr(error, "reason", ""),
        "text": f"{type(error).__name__}: {error}",
        "unknown": bool(getattr(error, "unknown", False)),
    }


def results_of(results: Iterable[Any], member: str = "") -> list[Object]:
    """Return what became of each of several items: its error, or what the member has."""
    return [
        {"error": error_object(r)} if isinstance(r, pqbridge.PQError) else {member: r} if member else {}
        for r in results
    ]


class Driver:
    """Obeys commands."""

    def __init__(self, client: pqbridge.Client) -> None:
        self.client = client
        self.leases: dict[str, pqbridge.Delivery] = {}
        self.joins: dict[str, pqbridge.OpenJoin] = {}
        self.workers: dict[str, list[tuple[pqbridge.Worker, asyncio.Task[None]]]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.printing = threading.Lock()

    def say(self, line: Object) -> None:
        with self.printing:
            print(json.dumps(line), flush=True)

    async def obey(self, reader: asyncio.StreamReader) -> None:
        """Carry out the commands that it reads, side by side."""
        while line := await reader.readline():
            command = json.loads(line)
            if command["op"] == "exit":
                self.say({"n": command["n"], "value": None})
                return
            task = asyncio.create_task(self.answer(command))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def answer(self, command: Object) -> None:
        try:
            value = await self.run(command)
            self.say({"n": command["n"], "value": value})
        except Exception as error:
            logging.info("command %s", command, exc_info=True)
            self.say({"n": command["n"], "error": error_object(error)})

    async def run(self, c: Object) -> Any:
        if c["op"] not in MEMBERS:
            raise UnsupportedError(f"op {c['op']}")
        if unknown := set(c) - set(f"n op queue fifo {' '.join(MEMBERS.values())}".split()):
            raise UnsupportedError(f"members {unknown} of {c['op']}")
        return await getattr(self, "do_" + c["op"])(c)

    def queue(self, c: Object, name: str | None = None) -> pqbridge.Queue:
        make = self.client.fifo_queue if c.get("fifo") else self.client.priority_queue
        return make(name or c["queue"])

    async def do_push(self, c: Object) -> Object:
        ack = await self.queue(c).push(**push_item(c))
        return {"id": ack.id, "priority": str(ack.priority), "duplicate": ack.duplicate}

    async def do_pushMany(self, c: Object) -> list[Object]:  # noqa: N802
        outcomes = await self.queue(c).push_many([push_item(item) for item in c["items"]])
        return [
            {"id": o.id, "duplicate": o.duplicate} if isinstance(o, pqbridge.PushAck) else {"error": error_object(o)}
            for o in outcomes
        ]

    async def do_all(self, c: Object) -> list[Object]:
        joiner, *members = [push_item(item) for item in c["items"]]
        acks = await self.queue(c).all(joiner, members)
        return [{"id": ack.id, "duplicate": ack.duplicate} for ack in acks]

    async def do_open(self, c: Object) -> Object:
        join = await self.queue(c).open_join(**push_item(c), open=c["open"])
        id = join.ref.partition(" ")[2]
        self.joins[id] = join
        return {"id": id}

    async def do_close(self, c: Object) -> None:
        await self.joins[c["id"]].close()

    async def do_pop(self, c: Object) -> Object | list[Object] | None:
        q, max, expires = self.queue(c), c.get("max", False), c.get("expires", 0)
        if c.get("count"):
            items = await q.pop_batch(int(c["count"]), max=max, expires=expires)
            return [item_object(item) for item in items]
        peek = c.get("peek")
        item = await (q.peek(max=max) if peek else q.pop(max=max, expires=expires))
        return None if item is None else item_object(item)

    async def do_lease(self, c: Object) -> Object | list[Object] | None:
        options: Object = {
            "ack_wait": c.get("ackWait"),
            "expires": c.get("expires"),
            "holder": c.get("holder", ""),
            "max": c.get("max", False),
        }
        if c.get("count"):
            return [self.held(d) for d in await self.queue(c).lease_batch(int(c["count"]), **options)]
        delivery = await self.queue(c).lease(**options)
        return None if delivery is None else self.held(delivery)

    def held(self, delivery: pqbridge.Delivery) -> Object:
        """Keep a delivery under a name."""
        name = str(len(self.leases) + 1)
        self.leases[name] = delivery
        leased = {"lease": name, "deliveries": str(delivery.deliveries)}
        return item_object(delivery) | leased

    async def do_ackAll(self, c: Object) -> list[Object | None]:  # noqa: N802
        errors = await self.client.ack_all([self.leases[name] for name in c["leases"]])
        return [{"error": error_object(e)} if e else None for e in errors]

    async def do_settle(self, c: Object) -> None:
        delivery, how, delay = self.leases[c["lease"]], c["how"], c.get("delay")
        if how == "ack":
            result = data_of(c["result"]) if "result" in c else None
            following: list[Any] = [
                {"queue": n["queue"], "value": data_of(n.get("value")), "priority": int(n.get("priority", 0))}
                for n in c.get("next", [])
            ]
            await delivery.ack(result, next=following)
        elif how == "nak":
            await delivery.nak(delay=delay, retry_delay=c.get("retryDelay"), reason=c.get("reason", ""))
        elif how == "snooze":
            await delivery.snooze(delay or 0)
        elif how == "term":
            await delivery.term(c.get("reason", ""))
        elif how == "extend":
            await delivery.extend(c["progress"].encode() if "progress" in c else None)
        else:
            raise UnsupportedError(f"how {how}")

    async def do_look(self, c: Object) -> Any:
        q, what = self.queue(c), c["what"]
        if what == "len":
            return str(await q.len())
        if what == "info":
            return numbers_as_text(await q.info())
        if what == "items":
            items = q.items(state=c.get("state", ""), match=c.get("match", ""))
            return [numbers_as_text(item.raw) async for item in items]
        if what == "rank":
            rank = await q.rank(c["id"], max=c.get("max", False))
            return {"rank": str(rank.rank), "atLeast": rank.at_least}
        if what == "queues":
            return [name async for name in (self.client.fifo_queues() if q.fifo else self.client.priority_queues())]
        if what == "schedules":
            return [numbers_as_text(record) async for record in q.schedules()]
        if what == "get":
            item = await q.get(c["id"])
            past: Object = {"attempts": numbers_as_text(item.attempts)} if item.attempts else {}
            past |= {"successors": [job._asdict() for job in item.successors]} if item.successors else {}
            past |= {"parent": item.parent._asdict()} if item.parent else {}
            return item_object(item) | {"state": item.state} | past
        raise UnsupportedError(f"what {what}")

    async def do_manage(self, c: Object) -> Any:
        q, what = self.queue(c), c["what"]
        if what == "move":
            if "ids" in c or "places" in c:
                moved = await q.move_ids(c.get("ids"), int(c["priority"]), places=c.get("places"))
                return results_of(moved, "place")
            return {"place": await q.move(c.get("id"), int(c["priority"]), place=c.get("place"))}
        if what == "remove":
            return results_of(await q.remove_ids(c["ids"])) if "ids" in c else await q.remove(c["id"])
        if what == "release":
            return results_of(await q.release_ids(c["ids"])) if "ids" in c else await q.release(c["id"])
        if what == "purge":
            return {"purged": str(await q.purge(c.get("state")))}
        if what == "redrive":
            if "ids" in c or "places" in c:
                return results_of(await q.redrive_ids(c.get("ids"), places=c.get("places")), "home")
            if "id" not in c:
                return {"redriven": str(await q.redrive(max=int(c.get("max", 1000))))}
            [home] = await q.redrive_ids([c["id"]])
            if isinstance(home, pqbridge.PQError):
                raise home
            return {"home": home}
        if what == "configure":
            return numbers_as_text(await q.configure(**c["settings"]))
        if what in ("pause", "resume"):
            change = q.pause if what == "pause" else q.resume
            return await change(c.get("group") or None)
        if what == "schedule":
            members = {name: m for name, m in c["schedule"].items() if name != "id"}
            if "value" in members:
                members["value"] = data_of(members["value"])
            return numbers_as_text(await q.schedule(c["name"], **members))
        if what == "unschedule":
            return await q.unschedule(c["name"])
        raise UnsupportedError(f"what {what}")

    async def do_result(self, c: Object) -> Object:
        r = await self.queue(c).result(
            c.get("id") or None, msg_id=c.get("msgId") or None, wait=c.get("wait", 0), follow=c.get("follow", False)
        )
        return {
            "state": r.state,
            "value": text_of(r.value) if r.has_result else None,
            "error": r.error,
            "reason": r.reason,
            "progress": None if r.progress is None else text_of(r.progress),
        }

    async def do_call(self, c: Object) -> str:
        return text_of(await self.queue(c).call(wait=c.get("wait"), **push_item(c)) or b"")

    async def do_work(self, c: Object) -> None:
        name = c["worker"]
        self.workers[name] = []
        for queue in c.get("queues") or [c["queue"]]:
            worker = pqbridge.Worker(
                self.queue(c, queue),
                self.handler(name, "") if c.get("types") is None else None,
                concurrency=int(c.get("concurrency", 1)),
                ack_wait=c.get("ackWait"),
                holder=c.get("holder") or None,
                job_timeout=c.get("jobTimeout"),
                retry_delay=c.get("retryDelay"),
                max=c.get("max", False),
            )
            for key in c.get("types") or ():
                worker.handle(key)(self.handler(name, key))
            run = asyncio.create_task(self.run_worker(name, worker))
            self.workers[name].append((worker, run))

    async def run_worker(self, name: str, worker: pqbridge.Worker) -> None:
        try:
            await worker.run()
        except Exception as error:
            logging.info("worker %s", name, exc_info=True)
            self.say({"event": "error", "worker": name, "class": class_of(error)})

    async def do_stop(self, c: Object) -> None:
        for worker, run in self.workers[c["worker"]]:
            await worker.stop(c.get("timeout", 25))
            await run

    async def stop_all(self) -> None:
        await asyncio.gather(*(self.do_stop({"worker": name}) for name in self.workers))

    def handler(self, worker: str, key: str) -> pqbridge.Handler:
        """Return a handler that does what the values of its jobs say."""

        def handler(job: pqbridge.Job) -> Any:
            steps = steps_of(job)
            if steps[:1] == [["thread"]]:
                with Reported(self, worker, key, job):
                    return run_in_thread(job, steps[1:])
            return in_loop(job, steps)

        async def in_loop(job: pqbridge.Job, steps: list[list[str]]) -> bytes | None:
            with Reported(self, worker, key, job):
                return await run_in_loop(job, steps)

        return handler


class Reported:
    """Says when a handler begins and how it ends."""

    def __init__(self, driver: Driver, worker: str, key: str, job: pqbridge.Job) -> None:
        self.driver, self.job = driver, job
        self.about = {"worker": worker, "job": job.id}
        self.more = {"handler": key} if key else {}

    def say(self, event: str, more: Object) -> None:
        at = str(time.time_ns() // 1_000_000)
        self.driver.say({"event": event, **self.about, **more, "at": at})

    def __enter__(self) -> None:
        about = {"deliveries": str(self.job.deliveries), "type": self.job.type}
        if self.job.joined:
            about["joined"] = " ".join(f"{name}={n}" for name, n in self.job.joined._asdict().items())
        if self.job.parent:
            about["parent"] = self.job.parent.id
        self.say("start", about | self.more)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = kind is not None and issubclass(kind, (asyncio.CancelledError, EndedError))
        self.say("end", {"how": self.job.why if ended else "failed" if kind else "done"})


class EndedError(Exception):
    """A job in a thread should end."""


def steps_of(job: pqbridge.Job) -> list[list[str]]:
    if not job.value.startswith(b'{"do":'):
        return []
    steps: list[list[str]] = job.json()["do"] or []
    return steps


async def run_in_loop(job: pqbridge.Job, steps: list[list[str]]) -> bytes | None:
    script = run_script(job, steps)
    try:
        while True:
            blocks, duration = next(script)
            if blocks:
                time.sleep(duration)
            await asyncio.sleep(0 if blocks else duration)
    except StopIteration as end:
        result: bytes | None = end.value
        return result


def run_in_thread(job: pqbridge.Job, steps: list[list[str]]) -> bytes | None:
    script = run_script(job, steps)
    try:
        while True:
            blocks, duration = next(script)
            if blocks:
                time.sleep(duration)
            if job.lost.wait(0 if blocks else duration):
                raise EndedError
    except StopIteration as end:
        result: bytes | None = end.value
        return result


def run_script(job: pqbridge.Job, steps: list[list[str]]) -> Generator[tuple[bool, float], None, bytes | None]:
    """Do the steps, and yield each pause: whether it blocks, and for how many seconds."""
    for name, *args in steps:
        if name in ("wait", "block"):
            yield name == "block", seconds(args[0])
        elif name == "progress":
            job.progress(args[0].encode())
        elif name == "next":
            job.next(args[0], data_of(args[1]))
        elif name == "member":
            job.next(args[0], data_of(args[1]), joiner=job.joiner)
        elif name == "all":
            joiner = job.next(args[0], data_of(args[1]), join="24h")
            for member in args[2:]:
                job.next(args[0], data_of(member), joiner=joiner)
        elif name == "fail":
            raise Exception(args[0]) from (Exception(args[1]) if args[1:] else None)
        elif name == "retry":
            raise pqbridge.RetryAfter(args[0], args[1])
        elif name == "snooze":
            raise pqbridge.Snooze(args[0])
        elif name == "drop":
            raise pqbridge.Drop(args[0])
        elif name == "return":
            return data_of(args[0]) if args else None
        elif name != "thread":
            raise Exception(f"no step {name!r}")
    return None


async def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    options: Object = {}
    if user := os.environ.get("NATS_USER"):
        options |= {"user": user, "password": os.environ.get("NATS_PASSWORD", "")}
    if prefix := os.environ.get("PQ_INBOX_PREFIX"):
        options["inbox_prefix"] = prefix
    nc = await pqbridge.connect(os.environ["NATS_URL"], **options)
    client = pqbridge.Client(
        nc,
        prefix=os.environ.get("PQ_PREFIX") or "pq",
        fifo_prefix=os.environ.get("PQ_FIFO_PREFIX") or "q",
        timeout=os.environ.get("PQ_TIMEOUT") or 10,
    )
    driver = Driver(client)

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    obeying = asyncio.create_task(driver.obey(reader))
    terminated = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    driver.say({"event": "ready"})

    waiting = asyncio.create_task(terminated.wait())
    await asyncio.wait({obeying, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if obeying.done():
        obeying.result()
    else:
        await driver.stop_all()
    os._exit(0)  # without waiting for handlers in threads


asyncio.run(main())
