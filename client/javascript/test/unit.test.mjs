// What needs no bridge.
import assert from "node:assert/strict";
import { test } from "node:test";
import { durationText, milliseconds } from "../dist/duration.js";
import { encodeFrames, parseFrames } from "../dist/frames.js";
import { HeaderBlock } from "../dist/headers.js";
import { camelCase, parseReply, priorityText, snakeCase, stringify } from "../dist/json.js";
import { BadReplyError, BadRequestError, Drop, RetryAfter, runHandler, Snooze } from "../dist/index.js";
import { repeat } from "../dist/retry.js";

const utf8 = (text) => new TextEncoder().encode(text);

test("durations are milliseconds or texts", () => {
  for (const [value, want] of [[250, 250], ["1m30s", 90_000], ["1.5h", 5_400_000], ["0", 0], ["20us", 0.02], ["1s500ms", 1500]]) {
    assert.equal(milliseconds(value, "x"), want);
  }
  for (const wrong of ["", "5", "1d", "-1s", "1 s", "s", "1m ", NaN, Infinity, -1, null, {}, "1s".repeat(40), "90000h"]) {
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
  let now = 0;
  t.mock.method(performance, "now", () => now);
  let attempts = 0;
  const attempt = async () => {
    setImmediate(() => (now += 39.5));
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
    [() => { throw new Map(); }, { reason: "[object Map]" }],
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
