"""What BenchmarkWorkers in testenv/clients measures.

It is a worker whose jobs do nothing or, with OP=push or OP=call, 64 loops of that. It prints a line when
the first begins and when the last does, or has ended, and then ends.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable

import pqbridge


async def main() -> None:
    nc = await pqbridge.connect(os.environ["NATS_URL"])
    queue = pqbridge.Client(nc).priority_queue("bench")
    if os.environ["OP"] == "work":
        await work_off(queue)
    else:
        await repeat(queue.push if os.environ["OP"] == "push" else queue.call)
    await nc.close()


async def repeat(operation: Callable[[bytes], Awaitable[object]]) -> None:
    jobs = int(os.environ["JOBS"])
    left = iter(range(jobs))

    async def loop() -> None:
        for _ in left:
            await operation(bytes(128))

    print(1, flush=True)
    await asyncio.gather(*(loop() for _ in range(64)))
    print(jobs, flush=True)


async def work_off(queue: pqbridge.Queue) -> None:
    begun, jobs = itertools.count(1), int(os.environ["JOBS"])
    last = asyncio.Event()

    async def work(job: pqbridge.Job) -> None:
        if (n := next(begun)) in (1, jobs):
            print(n, flush=True)
        if n == jobs:
            last.set()

    worker = pqbridge.Worker(queue, work, concurrency=64)
    running = asyncio.create_task(worker.run())
    await last.wait()
    await worker.stop()
    await running


asyncio.run(main())
