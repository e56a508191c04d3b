// What BenchmarkWorkers in testenv/clients measures: a worker whose jobs do nothing or, with OP=push or OP=call, 64 loops
// of that. It prints a line when the first begins and when the last does, or has ended, and then ends.
import { connect } from "@nats-io/transport-node";
import { Client, connectOptions, Worker } from "../dist/index.js";

const nc = await connect({ ...connectOptions, servers: process.env.NATS_URL });
const jobs = Number(process.env.JOBS);
const queue = new Client(nc).priorityQueue("bench");
const op = process.env.OP;
let begun = 0;

if (op === "work") {
  const worker = new Worker(queue, () => {
    begun += 1;
    if (begun === 1 || begun === jobs) console.log(begun);
    if (begun === jobs) worker.close();
  }, { concurrency: 64 });
  await worker.run();
} else {
  console.log(1);
  await Promise.all(Array.from({ length: 64 }, async () => {
    while (begun++ < jobs) await queue[op](new Uint8Array(128));
  }));
  console.log(jobs);
}
await nc.close();
