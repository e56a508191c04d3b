"""Does the jobs of queue "jobs" one at a time, and waits for more. Ctrl-C lets it finish the one under way."""

import asyncio
import json
import signal
import sys

from wire import Refusal, connect, lease, pause, request, temporary


async def handle(job):
    """Do the work itself. It is cancelled if the lease is lost."""
    value, delivery = job.data.decode(), job.headers["Pq-Deliveries"]
    print(f"{value} (delivery {delivery})", flush=True)
    if value == "call back" and delivery == "1":
        raise RuntimeError("the line is busy")


async def extend(nc, job, handling):
    while True:
        await asyncio.sleep(10)  # a third of ack_wait
        try:
            await request(nc, job.reply, b"+WPI")
        except Refusal as err:  # 409: somebody else may have the job
            handling.cancel(str(err))
            return


async def work(nc, job):
    """Do a job, and extend its lease meanwhile."""
    handling = asyncio.create_task(handle(job))
    extending = asyncio.create_task(extend(nc, job, handling))
    answer = "+ACK"
    try:
        await handling
    except asyncio.CancelledError:
        print(f"{job.data.decode()}: the lease is lost", file=sys.stderr)
        return
    except Exception as err:
        # It comes back, at its old place, as often as max_deliver of the queue allows.
        answer = "-NAK " + json.dumps({"reason": str(err)})
    finally:
        extending.cancel()
    try:
        await request(nc, job.reply, answer.encode())
    except Refusal as err:
        print(f"{job.data.decode()}: {answer}: {err}", file=sys.stderr)


async def main():
    nc = await connect()
    stopping = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    stop = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        leasing = asyncio.create_task(lease(nc, "jobs"))
        await asyncio.wait([leasing, stop], return_when=asyncio.FIRST_COMPLETED)
        if not leasing.done():  # a job that arrives just now comes back when its lease is over
            leasing.cancel()
            await asyncio.wait([leasing])
            break
        try:
            await work(nc, leasing.result())
        except Exception as err:
            if isinstance(err, Refusal) and err.code == 404:
                continue  # nothing came for 30 s
            if not temporary(err):
                raise
            await pause(err)
    await nc.close()


asyncio.run(main())
