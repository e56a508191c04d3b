// What needs no bridge.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { ClosedConnectionError } from "@nats-io/nats-core";
import { build } from "esbuild";
import { encodeValue, json, randomId } from "../dist/codec.js";
import { durationText, milliseconds, sleep } from "../dist/duration.js";
import { encodeFrames, HeaderBlock, parseFrames } from "../dist/headers.js";
import { camelCase, parseReply, priorityText, snakeCase, stringify } from "../dist/json.js";
import {
  BadReplyError, BadRequestError, Drop, NotSentError, RetryAfter, runHandler, Snooze, TooLargeError, UnknownOutcomeError,
} from "../dist/index.js";
import { checkOptions } from "../dist/errors.js";
import { prepare } from "../dist/push.js";
import { mayRepeat, repeat } from "../dist/retry.js";

const utf8 = (text) => new TextEncoder().encode(text);

test("durations are milliseconds or texts", () => {
  for (const [value, want] of [[250, 250], ["1m30s", 90_000], ["1.5h", 5_400_000], ["0", 0], ["20us", 0.02], ["1s500ms", 1500], ["1d12h", 129_600_000]]) {
    assert.equal(milliseconds(value, "x"), want);
  }
  for (const wrong of ["", "5", "1w", "-1s", "1 s", "s", "1m ", NaN, Infinity, -1, null, {}, "1s".repeat(40), "90000h"]) {
    assert.throws(() => milliseconds(wrong, "delay"), (err) => err instanceof BadRequestError && err.message.startsWith("delay: "), String(wrong));
  }
  for (const [ms, want] of [[0, "0ms"], [1500, "1500ms"], [1e-7, "0.000000ms"], [1.25, "1.250000ms"]]) assert.equal(durationText(ms, "x"), want);
});

test("JSON keeps integers beyond 2^53", () => {
  const text = '{"a":9007199254740993,"b":-9223372036854775808,"c":1795229597397076,"d":"9007199254740993","e":12345678901234567.5,"f":["\\"9007199254740993"]}';
  assert.deepEqual(parseReply(utf8(text), false), {
    a: 9007199254740993n,
    b: -9223372036854775808n,
    c: 1795229597397076,
    d: "9007199254740993",
    e: 12345678901234567.5,
    f: ['"9007199254740993'],
  });
  assert.equal(stringify({ priority: 9007199254740993n, id: "9007199254740993" }), '{"priority":9007199254740993,"id":"9007199254740993"}');
  assert.throws(() => parseReply(utf8("+OK"), true), (err) => err instanceof BadReplyError && err.unknown);
});

test("names of the protocol are renamed, data are not", () => {
  const wire = { max_deliver: 3, groups: { new_york: { oldest_age_s: 1 } }, headers: { x_y: ["1"] } };
  const camel = { maxDeliver: 3, groups: { new_york: { oldestAgeS: 1 } }, headers: { x_y: ["1"] } };
  assert.deepEqual(camelCase(wire), camel);
  assert.deepEqual(snakeCase(camel), wire);
});

test("priorities are safe integers or bigint of 64 bits", () => {
  assert.equal(priorityText(-5), "-5");
  assert.equal(priorityText(2n ** 63n - 1n), "9223372036854775807");
  for (const wrong of [1.5, NaN, 2 ** 53, 2n ** 63n, "5", null]) assert.throws(() => priorityText(wrong), BadRequestError);
});

test("frames carry what headers of nats.js cannot", () => {
  const headers = new HeaderBlock();
  headers.addAll([["X-Tag", "b"], ["X-Odd", new Uint8Array([0xff, 0, 0xfe])], ["X-Tag", "a"], ["X-Text", "grün"]]);
  const payload = encodeFrames([{ priority: 5n, headers, value: utf8("one") }, { priority: -1n, headers: new HeaderBlock(), value: new Uint8Array(0) }]);

  assert.deepEqual(parseFrames(payload), [
    [[["X-Tag", "b"], ["X-Odd", new Uint8Array([0xff, 0, 0xfe])], ["X-Tag", "a"], ["X-Text", "grün"]], utf8("one")],
    [[], new Uint8Array(0)],
  ]);
  assert.equal(headers.size, headers.bytes().length);
  for (const length of [3, 17, payload.length - 1]) assert.throws(() => parseFrames(payload.subarray(0, length)), RangeError);
});

test("headers that would break the message are refused", () => {
  for (const [name, value] of [["X", "a\r\nNats-Msg-Id: b"], ["X", "a\n"], ["X Y", "a"], ["X:", "a"], ["", "a"], ["X", " a"], ["X", "\ud800"], ["X", 5]]) {
    assert.throws(() => new HeaderBlock().add(name, value), BadRequestError, `${name}: ${value}`);
  }
});

test("a timer that ends too early leaves no time for one more attempt", async (t) => {
  const times = [0, 0, 0]; // up to the pause
  t.mock.method(performance, "now", () => times.shift() ?? 39.5);
  let attempts = 0;
  const attempt = async () => {
    throw new Error(`attempt ${++attempts}`);
  };
  await assert.rejects(repeat(40, attempt, () => true), /attempt 1/);
});

test("a handler that would never run is refused", async () => {
  for (const wrong of [function* () {}, async function* () {}, undefined, "text"]) {
    await assert.rejects(runHandler({ email: wrong }, 1), /BadRequestError: handler email/);
    await assert.rejects(runHandler(() => 1, 1, { middleware: [wrong] }), /BadRequestError: middleware 0/);
  }
});

test("an option of runHandler that is undefined is as if absent", async () => {
  const members = ["id", "queue", "type", "group", "priority", "headers", "deliveries", "maxDeliver", "middleware", "codec", "signal"];
  const nothing = Object.fromEntries(members.map((name) => [name, undefined]));

  const run = await runHandler((job) => [job.id, job.queue, job.priority, job.deliveries, job.json()], "x", nothing);

  assert.deepEqual(run.result, ["test", "test", 0, 1, "x"]);
});

test("runHandler refuses what a worker refuses", async () => {
  for (const [wrong, text] of [
    [() => new Map(), /^BadRequestError: result cannot be encoded/],
    [(job) => job.progress("x".repeat(2000)), /^BadRequestError: progress of 2002 bytes: want 1 to 1024/],
    [(job) => job.next("a b", 1), /^BadRequestError: queue "a b": want/],
  ]) {
    const run = await runHandler(wrong, 1);
    assert.equal(run.outcome, "failed");
    assert.match(run.reason, text);
    assert.deepEqual([run.progress, run.next], [[], []]);
  }
});

test("a handler may return a function that is a promise too", async () => {
  const run = await runHandler(() => Object.assign(() => 0, { then: (resolve) => resolve("done") }), 1);
  assert.equal(run.result, "done");
});

test("runHandler says what becomes of a job", async () => {
  const ring = new Error("ring");
  ring.cause = new AggregateError([ring, ring]);
  const cases = [
    [() => 5, { outcome: "done", result: 5 }],
    [() => { throw new Error("disk full"); }, { outcome: "failed", reason: "disk full", delay: undefined }],
    [() => { throw new TypeError("no"); }, { outcome: "failed", reason: "TypeError: no" }],
    [() => { throw "text"; }, { outcome: "failed", reason: "text" }],
    [() => { throw { status: 500 }; }, { reason: '{"status":500}' }],
    [() => { throw [1, "a"]; }, { reason: '[1,"a"]' }],
    [() => { throw { message: "no error, but like one" }; }, { reason: "no error, but like one" }],
    [() => { throw Symbol("odd"); }, { reason: "Symbol(odd)" }],
    [() => { throw 5n; }, { reason: "5" }],
    [() => { throw undefined; }, { reason: "undefined" }],
    [() => { throw new Error(); }, { reason: "failed" }],
    [() => { throw new Error("cannot send", { cause: new TypeError("no host") }); }, { reason: "cannot send: TypeError: no host" }],
    [() => { throw new Error("", { cause: "disk full" }); }, { reason: "disk full" }],
    [() => { throw new Error("cannot send: no host", { cause: new TypeError("no host") }); }, { reason: "cannot send: no host" }],
    [() => { throw new Error("a", { cause: new Error("b", { cause: { code: 5 } }) }); }, { reason: 'a: b: {"code":5}' }],
    [() => { throw new RetryAfter(5, new Error("a", { cause: new Error("b") })); }, { reason: "a: b", delay: 5 }],
    [() => { throw new Drop("no address", { cause: new Error("blank") }); }, { reason: "no address: blank" }],
    [() => { throw new AggregateError([new Error("a"), new Error("b")], "all failed"); }, { reason: "AggregateError: all failed: a; b" }],
    [() => { throw ring; }, { reason: "ring: AggregateError" }],
    [() => (function* () {})(), { outcome: "failed", reason: /generator/ }],
    [() => { throw new RetryAfter("30s", new Error("busy")); }, { outcome: "failed", reason: "busy", delay: 30_000 }],
    [async () => { throw new Error("wrapped", { cause: new Snooze("10m") }); }, { outcome: "snoozed", delay: 600_000 }],
    [() => { throw new Drop("no address"); }, { outcome: "dropped", reason: "no address" }],
    [(job) => job.json(), { outcome: "dropped" }],
    [{ other: () => 1 }, { outcome: "failed", reason: 'nobody handles jobs of type "email"' }],
    [{ other: () => 1, "*": (job) => [job.type, job.group, job.lastTry] }, { outcome: "done", result: ["email", "acme", true] }],
  ];
  for (const [handler, want] of cases) {
    const got = await runHandler(handler, utf8("{"), { type: "email", group: "acme", deliveries: 3, maxDeliver: 3 });
    for (const [name, value] of Object.entries(want)) {
      if (value instanceof RegExp) assert.match(got[name], value);
      else assert.deepEqual(got[name], value);
    }
  }

  const order = [];
  const wrap = (name) => async (job, context, next) => {
    order.push(name);
    return [name, await next()];
  };
  const run = await runHandler((job) => { job.progress("half"); job.next("mail", 1, { priority: 2 }); return "in"; }, 1, { middleware: [wrap("a"), wrap("b")] });
  assert.deepEqual([run.result, order, run.progress, run.next], [["a", ["b", "in"]], ["a", "b"], ["half"], [{ queue: "mail", value: 1, priority: 2 }]]);
});

test("JSON of any numbers is read as JSON.parse does, with integers beyond 2^53 as bigint", () => {
  const seed = Date.now() % 2 ** 31;
  let state = seed;
  const below = (n) => (state = (state * 48271 + 1) % 2147483647) % n; // so that a failure can be repeated
  const digits = (n) => Array.from({ length: n }, () => below(10)).join("");
  const whole = () => (below(4) === 0 ? "0" : `${1 + below(9)}${digits(below(25))}`);
  const number = () => {
    const fraction = below(2) ? `.${digits(1 + below(25))}` : "";
    const exponent = below(3) === 0 ? `${"eE"[below(2)]}${["", "+", "-"][below(3)]}${digits(1 + below(3))}` : "";
    return `${below(2) ? "-" : ""}${whole()}${fraction}${exponent}`;
  };
  const want = (text) => (/^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : Number(text));

  for (let i = 0; i < 5000; i++) {
    const texts = Array.from({ length: 1 + below(5) }, number);
    const body = `{"numbers":[${texts}],"text":"${texts}","half":${texts[0]}}`;
    const got = parseReply(utf8(body), false);
    assert.deepEqual(got, { numbers: texts.map(want), text: texts.join(), half: want(texts[0]) }, `seed ${seed}: ${body}`);
  }
});

test("what is no number is not sent as null", () => {
  for (const wrong of [NaN, Infinity]) assert.throws(() => stringify({ max: wrong }), /^BadRequestError: max: .*: want a number/);
});

test("buffers and views of them go as their bytes, and what JSON would make {} of is refused", () => {
  const bytes = Uint8Array.from([9, 1, 2, 3, 4, 9]);
  const shared = new SharedArrayBuffer(4);
  new Uint8Array(shared).set([1, 2, 3, 4]);
  const values = [
    bytes.slice(1, 5), bytes.subarray(1, 5), bytes.slice(1, 5).buffer, new DataView(bytes.buffer, 1, 4), Buffer.from([1, 2, 3, 4]),
    new Int8Array(bytes.buffer, 1, 4), new Uint16Array(bytes.slice(1, 5).buffer), new Float32Array(bytes.slice(1, 5).buffer),
    shared, new Uint8Array(shared), new DataView(shared), new Uint8ClampedArray([1, 2, 3, 4]),
  ];
  for (const value of values) {
    const got = encodeValue(json, value, "value");
    assert.deepEqual([[...got.bytes], got.contentType], [[1, 2, 3, 4], ""], String(value));
  }
  assert.notEqual(encodeValue(json, shared, "value").bytes.buffer, shared, "others may change it meanwhile");

  for (const [value, name] of [[new Blob(["x"]), "Blob"], [new Map([[1, 2]]), "Map"], [new Set([1]), "Set"], [Promise.resolve(), "Promise"], [/x/, "RegExp"]]) {
    assert.throws(() => encodeValue(json, value, "result"), new RegExp(`^BadRequestError: result cannot be encoded: JSON makes {} of a ${name}`));
  }
  for (const value of [{}, new (class Ping {})(), null, [], { a: new Map() }, new Date(0)]) {
    assert.deepEqual(encodeValue(json, value, "value").bytes, utf8(JSON.stringify(value)));
  }
});

test("options that are undefined or null count as absent", () => {
  assert.deepEqual(checkOptions("x", { a: undefined, b: null, c: 0, d: false, e: "" }, ["a", "b", "c", "d", "e"]), { c: 0, d: false, e: "" });
  for (const none of [undefined, null]) assert.deepEqual(checkOptions("x", none, []), {});
  assert.throws(() => checkOptions("x", { signal: 5 }, ["signal"]), /signal 5: want an AbortSignal/);

  const options = { priority: null, msgId: null, unique: null, delay: null, at: null, ttl: null, group: null, weight: null, keep: null, join: null, joiner: null, type: null };
  const given = prepare(json, 1, { ...options, headers: { "X-A": undefined, "X-B": null, "X-C": "c" } }, false);
  const names = [...given.headers.message().keys()];
  assert.deepEqual(names.sort(), ["Content-Type", "Nats-Msg-Id", "X-C"]);
  assert.ok(given.ownId && given.repeatable);
});

test("message ids are random, without randomUUID", (t) => {
  t.mock.method(crypto, "randomUUID", () => assert.fail("pages without https have none"));
  const ids = new Set(Array.from({ length: 10_000 }, randomId));
  assert.equal(ids.size, 10_000);
  for (const id of ids) assert.match(id, /^[0-9a-z]{28}$/);
});

test("once an attempt may have counted, the outcome of all is unknown", async (t) => {
  const unknown = new UnknownOutcomeError("no reply");
  const cases = [
    [[unknown, new NotSentError("away"), new TooLargeError("large")], /an earlier attempt may have counted; the last one: large/],
    [[new NotSentError("away"), unknown, new NotSentError("closed", { cause: new ClosedConnectionError() })], /last one: closed/],
    [[unknown, unknown], /^UnknownOutcomeError: no reply/],
  ];
  for (const [errors, text] of cases) {
    let now = 0;
    t.mock.method(performance, "now", () => now);
    const attempt = async () => {
      if (errors.length === 1) now = 1e6;
      throw errors.shift();
    };
    await assert.rejects(repeat(1e6, attempt, (err) => mayRepeat(err, true)), (err) => {
      assert.match(String(err), text);
      return err instanceof UnknownOutcomeError && err.unknown;
    });
  }
  const sure = [new NotSentError("away"), new TooLargeError("large")];
  await assert.rejects(repeat(1e6, async () => { throw sure.shift(); }, (err) => mayRepeat(err, true)), TooLargeError);
});

test("one listener serves all who wait for a signal", async (t) => {
  const warned = t.mock.method(process, "emitWarning", () => undefined);
  const stop = new AbortController();
  const add = t.mock.method(stop.signal, "addEventListener");
  const waits = Array.from({ length: 50 }, () => sleep(1e9, stop.signal));
  stop.abort();
  await Promise.all(waits);
  await sleep(1e9, stop.signal);
  assert.deepEqual([warned.mock.callCount(), add.mock.callCount()], [0, 1]);
});

test("errors keep their names under a minifier", async () => {
  const entry = new URL("../dist/errors.js", import.meta.url).pathname;
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, minify: true, write: false, format: "esm" });
  const minified = await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
  const names = Object.keys(minified).filter((name) => name.endsWith("Error"));
  assert.equal(names.length, 19);
  for (const name of names) {
    const err = new minified[name]("id", "why", 1, "cause");
    assert.deepEqual([err.name, String(err).split(":")[0], Object.keys(err).includes("name")], [name, name, false]);
  }
});

const dist = new URL("../dist/", import.meta.url);
const filesOf = async (ending) => {
  const names = (await readdir(dist)).filter((name) => name.endsWith(ending));
  return Promise.all(names.map(async (name) => [name, await readFile(new URL(name, dist), "utf8")]));
};

test("no module imports itself through others", async () => {
  const imports = new Map();
  for (const [name, text] of await filesOf(".js")) {
    imports.set(name, [...text.matchAll(/ from "\.\/([a-z]+\.js)"/g)].map(([, from]) => from));
  }
  assert.ok(imports.get("queue.js").includes("batch.js"), "does the test still see imports?");
  const visit = (name, path) => {
    assert.ok(!path.includes(name), [...path, name].join(" -> "));
    for (const next of imports.get(name)) visit(next, [...path, name]);
  };
  for (const name of imports.keys()) visit(name, []);
});

test("public types have neither any nor members of any name", async () => {
  const types = await filesOf(".d.ts");
  assert.ok(types.length > 20);
  for (const [name, text] of types) {
    const code = text.replace(/\/\*.*?\*\/|\/\/.*/gs, "");
    assert.doesNotMatch(code, /\bany\b|\[\w+: (string|number|symbol)\]/, name);
  }
});
