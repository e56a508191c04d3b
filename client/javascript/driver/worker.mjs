// The worker that BenchmarkWorkers in testenv/clients measures. Its jobs do nothing. It prints a line when the first
// begins and when the last does, and then ends.
import { connect } from "@nats-io/transport-node";
import { Client, Worker } from "../dist/index.js";

const nc = await connect({ servers: process.env.NATS_URL });
const jobs = Number(process.env.JOBS);
let begun = 0;

const worker = new Worker(new Client(nc).priorityQueue("bench"), () => {
  begun += 1;
  if (begun === 1 || begun === jobs) console.log(begun);
  if (begun === jobs) worker.close();
}, { concurrency: 64 });

await worker.run();
await nc.close();
