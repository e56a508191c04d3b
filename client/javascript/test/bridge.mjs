// Starts pqbridge with its NATS server, for tests. PQBRIDGE names the program.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import { Client, connectOptions } from "../dist/index.js";

// A bound against hanging, in milliseconds.
export const patience = 120_000;

// The program ends when this process does, even if that is killed: then the standard input of the shell is closed.
const leashed = `"$@" & p=$!; echo "pid $p"; cat > /dev/null; kill -9 $p 2> /dev/null; wait $p`;
export const start = (program, args, env = process.env) =>
  spawn("sh", ["-c", leashed, "sh", program, ...args], { env, stdio: ["pipe", "pipe", "inherit"] });

export class Bridge {
  url = "";
  #data = "";
  #port = "0";
  #child;
  #pid = 0;
  #connections = [];

  // Starts a bridge on a port that the system chooses, and again on the same one.
  static async start() {
    const bridge = new Bridge();
    bridge.#data = await mkdtemp(join(tmpdir(), "pqbridge-"));
    await bridge.restart();
    return bridge;
  }

  async restart() {
    const env = {
      ...process.env,
      PQ_DATA_DIR: this.#data,
      PQ_DEV_NATS_PORT: this.#port,
      PQ_HTTP_ADDR: "off",
      PQ_LOG_LEVEL: "error",
    };
    const program = process.env.PQBRIDGE;
    if (!program) throw new Error("PQBRIDGE is not set: want the path of the program pqbridge, as make test-javascript has it");
    this.#child = start(program, ["-dev"], env);
    for await (const line of createInterface(this.#child.stdout)) {
      this.#pid = Number(/^pid (\d+)$/.exec(line)?.[1] ?? this.#pid);
      const found = /^Ready\. NATS is at (\S+:(\d+))/.exec(line);
      if (!found) continue;
      [, this.url, this.#port] = found;
      this.#child.stdout.resume();
      return;
    }
    throw new Error("pqbridge did not start");
  }

  // Kills the bridge and its NATS server.
  async kill() {
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    process.kill(this.#pid, "SIGKILL");
    this.#child.stdin.end();
    await ended;
  }

  async connect(options = {}) {
    const nc = await connect({ ...connectOptions, servers: this.url, reconnectTimeWait: 50, ...options });
    this.#connections.push(nc);
    return nc;
  }

  async client(options) {
    return new Client(await this.connect(), options);
  }

  async stop() {
    await Promise.all(this.#connections.map((nc) => nc.close()));
    await this.kill();
    await rm(this.#data, { recursive: true, force: true });
  }
}
