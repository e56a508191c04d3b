"""The worker that BenchmarkWorkers in testenv/clients measures.

Its jobs do nothing. It prints a line when the first begins and when the last does, and then ends.
"""

import asyncio
import itertools
import os

import pqbridge


async def main() -> None:
    nc = await pqbridge.connect(os.environ["NATS_URL"])
    begun, jobs = itertools.count(1), int(os.environ["JOBS"])
    last = asyncio.Event()

    async def work(job: pqbridge.Job) -> None:
        if (n := next(begun)) in (1, jobs):
            print(n, flush=True)
        if n == jobs:
            last.set()

    worker = pqbridge.Worker(pqbridge.Client(nc).priority_queue("bench"), work, concurrency=64)
    running = asyncio.create_task(worker.run())
    await last.wait()
    await worker.stop()
    await running
    await nc.close()


asyncio.run(main())
