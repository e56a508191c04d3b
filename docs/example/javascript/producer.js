// Pushes three jobs, each of them once, however often it is run.
import { headers, nc, request } from "./wire.js";

const jobs = [
  { priority: 5, id: "report", value: "write the report" },
  { priority: 1, id: "fire", value: "put out the fire" },
  { priority: 3, id: "call", value: "call back" },
];

let pushed = 0;
for (const job of jobs) {
  const h = headers();
  h.set("Pq-Priority", String(job.priority));
  h.set("Nats-Msg-Id", job.id); // whoever pushes it again gets the reply of the first push
  const reply = (await request("pq.jobs.push", job.value, { headers: h })).json();
  if (!reply.duplicate) pushed++;
}
console.log(`${pushed} pushed, ${jobs.length - pushed} were there before`);
await nc.close();
