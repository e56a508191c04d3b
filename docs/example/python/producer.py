"""Pushes three jobs, each of them once, however often it is run."""

import asyncio
import json

from wire import connect, request

JOBS = [(5, "report", "write the report"), (1, "fire", "put out the fire"), (3, "call", "call back")]


async def main():
    nc = await connect()
    pushed = 0
    for priority, msg_id, value in JOBS:
        # Whoever pushes a message id again gets the reply of the first push.
        headers = {"Pq-Priority": str(priority), "Nats-Msg-Id": msg_id}
        reply = json.loads((await request(nc, "pq.jobs.push", value.encode(), headers)).data)
        if not reply.get("duplicate"):
            pushed += 1
    print(f"{pushed} pushed, {len(JOBS) - pushed} were there before")
    await nc.close()


asyncio.run(main())
