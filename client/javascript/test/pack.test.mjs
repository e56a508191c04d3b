// The package, as npm packs it, works in an empty project.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Bridge } from "./bridge.mjs";

const root = new URL("..", import.meta.url).pathname;
const exec = promisify(execFile);
const { devDependencies, version } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
const [, docs] = /```ts\n(.*?)```/s.exec(await readFile(join(root, "../../docs/javascript.md"), "utf8"));

let dir;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), "pqbridge-pack-"));
  await exec("npm", ["pack", "--ignore-scripts", "--pack-destination", dir], { cwd: root });
  await writeFile(join(dir, "package.json"), JSON.stringify({ name: "empty", private: true, type: "module" }));
  const names = ["@nats-io/nats-core", "@nats-io/transport-node"].map((name) => `${name}@${devDependencies[name]}`);
  await exec("npm", ["install", "--prefer-offline", `./pqbridge-client-${version}.tgz`, ...names], { cwd: dir });
});
after(() => rm(dir, { recursive: true }));

test("only what is needed is packed", async () => {
  const { stdout } = await exec("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root });
  const files = JSON.parse(stdout)[0].files.map((f) => f.path);
  const others = files.filter((path) => !/^(dist\/[a-z]+(\.d\.ts|\.js)(\.map)?|src\/[a-z]+\.ts)$/.test(path));
  assert.deepEqual(others.sort(), ["LICENSE", "README.md", "package.json"]);
});

test("maps name sources that are packed", async () => {
  const installed = join(dir, "node_modules/@pqbridge/client/dist");
  const maps = (await readdir(installed)).filter((name) => name.endsWith(".map"));
  assert.ok(maps.includes("queue.js.map") && maps.includes("queue.d.ts.map"));
  for (const name of maps) {
    const { sources } = JSON.parse(await readFile(join(installed, name), "utf8"));
    for (const source of sources) await access(join(installed, source));
  }
});

test("a CommonJS program requires it", async () => {
  await writeFile(join(dir, "main.cjs"), 'const { Client, json } = require("@pqbridge/client"); console.log(typeof Client, json.contentType);');
  const { stdout } = await exec(process.execPath, ["main.cjs"], { cwd: dir });
  assert.equal(stdout, "function application/json\n");
});

test("a program runs with it", async (t) => {
  const bridge = await Bridge.start();
  t.after(() => bridge.stop());
  await writeFile(
    join(dir, "main.js"),
    `import { connect } from "@nats-io/transport-node";
    import { Client } from "@pqbridge/client";
    const nc = await connect({ servers: process.env.NATS_URL });
    const jobs = new Client(nc).priorityQueue("jobs");
    await jobs.push("hello");
    console.log((await jobs.pop()).json());
    await nc.close();`,
  );
  const { stdout } = await exec(process.execPath, ["main.js"], { cwd: dir, env: { ...process.env, NATS_URL: bridge.url } });
  assert.equal(stdout, "hello\n");
});

for (const [moduleResolution, module] of [["node16", "node16"], ["bundler", "es2022"]]) {
  test(`types resolve under moduleResolution ${moduleResolution}`, async () => {
    const folder = join(dir, moduleResolution);
    await mkdir(folder);
    await writeFile(
      join(folder, "main.ts"),
      `import { Client, connectOptions, type Job, Snooze, Worker } from "@pqbridge/client";
      import type { ConnectionOptions, NatsConnection } from "@nats-io/nats-core";
      export const options: ConnectionOptions = { ...connectOptions, servers: "127.0.0.1" };
      export async function main(nc: NatsConnection): Promise<void> {
        const jobs = new Client(nc, { timeout: "5s" }).priorityQueue("jobs");
        const answer: { text: string } = await jobs.call<{ text: string }>({ to: "eve" }, { priority: 5n, keep: 1000 });
        console.log(answer.text, await jobs.redrive({ max: 5 }));
        const worker = new Worker(jobs, { email: async (job: Job, { signal }) => { signal.throwIfAborted(); throw new Snooze("1m"); } });
        const typed = new Client(nc).priorityQueue<{ to: string }, number>("typed");
        new Worker(typed, (job) => job.json().to.length).on("completed", (_, result) => result.toFixed());
        // @ts-expect-error the result is no text
        new Worker(typed, (job) => job.json().to);
        // @ts-expect-error a priority is no text
        await jobs.push("x", { priority: "5" });
        await worker.run();

        const letters = new Client(nc).priorityQueue<{ to: string }, { sentAt: number }>("letters");
        const { sentAt } = await letters.call({ to: "eve" });
        const to: string | undefined = (await letters.lease())?.json().to;
        const later: number = (await letters.result("id")).decode().sentAt + sentAt;
        for await (const name of new Client(nc).fifoQueues()) console.log(name.length, to, later);
        const [report] = await letters.all({ value: { to: "eve" }, join: "1h" }, [{ value: { to: "bob" }, joiner: 0 }]);
        await letters.push({ to: "joe" }, { joiner: report });
        // @ts-expect-error a member is a letter
        await letters.all({ value: { to: "eve" } }, [{ value: 5 }]);
        // @ts-expect-error a letter has a receiver
        await letters.push({ too: "eve" });
        // @ts-expect-error the queue says what its calls return
        const wrong: { text: string } = await letters.call({ to: "eve" });
        // @ts-expect-error settings have names
        (await letters.configure({})).maxDelivery;
      }`,
    );
    const options = { strict: true, noEmit: true, target: "es2022", lib: ["ES2022", "DOM"], types: [], module, moduleResolution };
    await writeFile(join(folder, "docs.ts"), docs);
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["main.ts", "docs.ts"] }));
    const { stdout } = await exec(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", folder]).catch((err) => err);
    assert.equal(stdout, "");
  });
}
