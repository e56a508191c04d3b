"""Requests to pqbridge, for producer.py and worker.py."""

import asyncio
import json
import os
import secrets
import sys

import nats
from nats.errors import NoRespondersError, OutboundBufferLimitError, TimeoutError


async def connect():
    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    # pending_size=0: a request that was given up while NATS was away must not be sent later.
    # nats-py closes a connection that the server ends because of its login. Then the program ends, and whatever
    # supervises it has to start it again.
    return await nats.connect(url, max_reconnect_attempts=-1, pending_size=0)


class Refusal(Exception):
    """An error that the bridge replied with. 404: the queue is empty; 409: the lease is lost; 429, 503: try again."""

    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code = code


def checked(reply):
    """Return a reply, unless it is an error."""
    headers = reply.headers or {}
    if "Nats-Service-Error-Code" in headers:
        raise Refusal(int(headers["Nats-Service-Error-Code"]), headers["Nats-Service-Error"])
    if headers.get("Status") == "503":
        raise NoRespondersError
    return reply


def temporary(err):
    """Report whether it is worth trying again later."""
    if isinstance(err, Refusal):
        return err.code in (429, 503)
    return isinstance(err, (TimeoutError, NoRespondersError, OutboundBufferLimitError))


async def pause(err):
    print(f"trying again: {err!r}", file=sys.stderr)
    await asyncio.sleep(1)


async def request(nc, subject, payload, headers=None):
    """Send a request until it is answered.

    Use it for what may be done twice: a push with a message id, and acknowledgements.
    """
    while True:
        try:
            return checked(await nc.request(subject, payload, timeout=10, headers=headers))
        except Exception as err:
            if not temporary(err):
                raise
            await pause(err)


async def lease(nc, queue):
    """Wait up to 30 s for a job. Its reply subject is where acknowledgements go."""
    # The bridge notices by heartbeats that a worker is gone, and the worker that the bridge is.
    request_id = secrets.token_urlsafe()
    options = {"ack_wait": "30s", "expires": "30s", "idle_heartbeat": "5s", "id": request_id}
    inbox = nc.new_inbox()  # for the replies to this request only
    sub = await nc.subscribe(inbox)
    try:
        await nc.publish(f"pq.{queue}.pop.min", json.dumps(options).encode(), reply=inbox)
        while True:
            m = await sub.next_msg(timeout=11)
            if "Pq-Heartbeat" not in (m.headers or {}):
                return checked(m)
    except asyncio.CancelledError:  # the worker stops: the bridge is to wait for nothing more
        if nc.is_connected:
            await nc.publish(f"pq.{queue}.pop.min", json.dumps({"cancel": request_id}).encode(), reply=nc.new_inbox())
        raise
    finally:
        await sub.unsubscribe()
