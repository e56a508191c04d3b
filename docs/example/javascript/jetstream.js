// A producer and a worker as programs for JetStream have them, with @nats-io/jetstream alone:
//
//	node jetstream.js push    pushes three jobs, each of them once, however often it is run
//	node jetstream.js work    does one job at a time, the most urgent first, and waits for more, until Ctrl-C
//
// Only the domain, and the names of the stream and of its consumer, are those of a queue.
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const nc = await connect({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  maxReconnectAttempts: -1,
  ignoreAuthErrorAbort: true, // also while the server refuses the login
});
const js = jetstream(nc, { domain: "pq" });

// push pushes jobs. The last token of the subject is the priority.
async function push() {
  let before = 0;
  for (const [subject, msgID, text] of [
    ["pq.jobs.push.5", "report", "write the report"],
    ["pq.jobs.push.3", "call", "call back"],
    ["pq.jobs.push.1", "fire", "put out the fire"],
  ]) {
    const ack = await js.publish(subject, text, { msgID });
    if (ack.duplicate) before++;
  }
  console.log(`${3 - before} pushed, ${before} were there before`);
}

// handle is the work itself.
async function handle(job) {
  console.log(`${job.string()} (delivery ${job.info.deliveryCount})`);
  if (job.string() === "call back" && job.info.deliveryCount === 1) throw new Error("the line is busy");
}

// work does jobs until a signal. One that takes longer than ack_wait has to call job.working() now and then.
async function work() {
  let stopping = false, working = false;
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, () => {
      stopping = true;
      if (!working) nc.close(); // ends the next() that waits
    });
  }

  const jobs = await js.consumers.get("jobs", "min");
  while (!stopping) {
    try {
      const job = await jobs.next(); // asks for one job, when there is time for it
      if (!job) continue; // nothing came for 30 s
      working = true;
      await handle(job).then(() => job.ackAck(), () => job.nak()); // after nak() it comes back, at its old place
    } catch (err) {
      if (stopping) break;
      console.error(`trying again: ${err.message}`);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    } finally {
      working = false;
    }
  }
}

await { push, work }[process.argv[2]]();
await nc.close();
