// Does the jobs of queue "jobs" one at a time, and waits for more. Ctrl-C lets it finish the one under way.
import { randomUUID } from "node:crypto";
import { cancel, lease, nc, pause, request, temporary } from "./wire.js";

let stopping = false;
let waiting; // id of the request that waits for a job
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => {
    stopping = true;
    if (waiting) cancel("jobs", waiting);
  });
}

// handle is the work itself. It should end soon after the signal.
async function handle(job, signal) {
  const delivery = job.headers.get("Pq-Deliveries");
  console.log(`${job.string()} (delivery ${delivery})`);
  if (job.string() === "call back" && delivery === "1") throw new Error("the line is busy");
}

// work does a job, and extends its lease meanwhile.
async function work(job) {
  const lost = new AbortController();
  const extend = setInterval(() => {
    request(job.reply, "+WPI").catch((err) => lost.abort(err)); // 409: somebody else may have it
  }, 10_000); // a third of ack_wait
  let answer = "+ACK";
  try {
    await handle(job, lost.signal);
  } catch (err) {
    // It comes back, at its old place, as often as max_deliver of the queue allows.
    answer = `-NAK ${JSON.stringify({ reason: err.message })}`;
  } finally {
    clearInterval(extend);
  }
  try {
    await request(job.reply, answer);
  } catch (err) {
    console.error(`${job.string()}: ${answer}: ${err.message}`);
  }
}

while (!stopping) {
  try {
    waiting = randomUUID();
    const job = await lease("jobs", waiting);
    waiting = undefined;
    await work(job);
  } catch (err) {
    if (stopping || err.code === 404) continue; // nothing came for 30 s
    if (!temporary(err)) throw err;
    await pause(err);
  }
}
await nc.close();
