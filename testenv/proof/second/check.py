#!/usr/bin/env python3
"""check.py FILE... says of each history that it is accepted, or what is wrong, and exits with 1 if
anything is. It goes by docs/histories.md. It needs Python 3.9, and nothing else."""

import base64
import gzip
import json
import math
import sys

NEVER = math.inf
INEXACT = 10_000_000  # nanoseconds
HEADERS = 1000  # bytes of headers that max_bytes may count too
TRIES = 100_000  # of a queue, before it counts as undecided
AWAY, READY, LEASED, DELAYED = range(4)


class Fault(Exception):
    """Something is wrong with a history."""


def place(text):
    """Returns the bytes of an id, which sort as items do, and the priority in it."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    size = data[0] - 0x14
    number = int.from_bytes(data[1 : 1 + abs(size)], "big")
    return data, number if size >= 0 else number + 1 - (1 << -8 * size)


def with_item(items, n, status, fence, hold=None):
    return items[:n] + ((status, fence, hold),) + items[n + 1 :]


class Step:
    """What happens between call and end or, if that is not certain, later or never."""
    def __init__(self, op, act, certain=True, **more):
        self.op, self.act, self.certain = op, act, certain
        self.call, self.end = op["call"], op["return"] if certain else NEVER
        self.back, self.looks = op["kind"].endswith(".max"), op.kind in ("peek", "len")
        self.before = 0
        self.__dict__.update(more)


class Queue:
    """The model of one queue. Its state is, for each item in order, the status, the fence and when
    it may and must be back, and then what pops of unknown outcome have taken."""
    def __init__(self, history, name, ops):
        self.one_by_one = history.get("one_by_one", False)
        self.limit = history.get("max_leased_per_group", {}).get(name, NEVER)
        self.tolerance = history.get("skew", 0) + INEXACT
        self.pushes = {op["value"]: op for op in ops if op.kind == "push"}
        values, self.places = {}, {value: [] for value in self.pushes}
        for op, item in ((op, item) for op in ops for item in op.told):
            push = self.pushes.get(item["value"], {"priority": "of no push"})
            for what, has in ("priority", place(item["id"])[1]), ("size", item.get("size", 0)):
                if has != push.get(what, 0):
                    raise Fault(f"{op.kind} of {item['value']!r} with {what} {has}")
            if values.setdefault(item["id"], item["value"]) != item["value"]:
                raise Fault(f"{values[item['id']]!r} and {item['value']!r} have one id")
        for id, value in values.items():
            self.places[value].append(id)
        order = sorted((place(id)[0], id, value) for id, value in values.items())
        self.number = {id: n for n, (_, id, _) in enumerate(order)}
        self.push = [self.pushes[value] for _, _, value in order]
        self.group = [push.get("group") for push in self.push]
        self.fences = [set() for _ in order]
        for item in (item for op in ops for item in op.told if item.get("fence")):
            self.fences[self.number[item["id"]]].add(item["fence"])
        self.acked = [self.pushes[v]["return"] if self.pushes[v].get("id") == id else NEVER
                      for _, id, v in order]
        self.open = sum(op.untold for op in ops if op.kind == "pop")
        self.open_from = min((op["call"] for op in ops if op.untold), default=NEVER)
        unclear = [op for op in ops if op.open and op.settles]
        self.sure = self.open_from == NEVER and not unclear
        traced = name.startswith(("o-", "fifo-o-"))  # there, a lease may be the last of an item
        ended = {item["value"] for op in ops for item in op.ends}
        missing = [v for v, push in self.pushes.items() if "ttl" not in push and v not in ended
                   and not (traced if self.places[v] else push.open)]
        if len(missing) > sum(op.untold for op in ops):
            raise Fault(f"nobody got {missing}")
        self.extended = [(op["id"], op["fence"]) for op in unclear if op.kind == "extend"]
        self.expiry = [self.expires(push) for push in self.push]
        self.steps = [step for op in ops for step in self.translate(op)]

    def expires(self, push):
        """Returns when an item may be gone, and must be. Holds say so of when it is back."""
        if push.get("ttl"):
            first, last = push["call"] + push["ttl"], push.answered + push["ttl"]
            return min(first - 2 * self.tolerance, self.open_from), last + 2 * self.tolerance
        return self.open_from if self.limit != NEVER and push.get("group") else NEVER, NEVER

    def hold(self, first, last, tolerance):
        return first - tolerance, last + tolerance if last + tolerance < self.open_from else NEVER

    def lease_hold(self, op, item):
        begun = item["until"] - op.get("wait", 0)
        if not op["call"] - self.tolerance <= begun <= op["return"] + self.tolerance:
            raise Fault(f"{op.kind} of {item['value']!r} for another time than was asked for")
        last = NEVER if (item["id"], item["fence"]) in self.extended else item["until"]
        return self.hold(item["until"], last, self.tolerance)

    def hold_after(self, op, length):
        return self.hold(op["call"] + length, op.answered + length, 2 * self.tolerance)

    def translate(self, op):
        """Returns the steps of an operation."""
        if op.kind == "push":
            # The answer names the first place. Otherwise it is the one with the earliest time.
            earliest = sorted(self.places[op["value"]], key=lambda id: place(id)[0][-20:])
            for n, id in enumerate(sorted(earliest, key=lambda id: id != op.get("id"))):
                hold = self.hold_after(op, op["delay"]) if "delay" in op else None
                act, certain = (self.put_again, False) if n else (self.put, not op.open)
                yield Step(op, act, certain, item=self.number[id], hold=hold)
        elif op.kind == "len" and not op.open:
            unseen = [push for value, push in self.pushes.items() if not self.places[value]]
            expired = sum("ttl" in push and push["call"] < op["return"] for push in unseen)
            yield Step(op, self.count, unseen=self.open + expired)
        elif op.settles and op["outcome"] == "stale":
            yield Step(op, self.stale)
        elif op.settles:
            hold = None
            if op.kind == "extend":
                hold = self.lease_hold(op, op) if "until" in op else self.hold_after(op, op["wait"])
            elif op.kind == "nak" and (op.open or "delay" in op):
                hold = self.hold_after(op, op.get("delay", 0))
            yield Step(op, self.settle, not op.open or bool(op.got), hold=hold)
        if op.get("spread"):
            few = not (op.open or op.cut or "expires" in op) and len(op.got) < op.asked
            for items in [[item] for item in op.got] + [[]] * few:
                yield Step(op, self.serve, items=items, asked=1)
        elif op.got or op.serves and op["outcome"] in ("done", "empty", "too large"):
            yield Step(op, self.serve, items=op.got, asked=len(op.got) if op.open else op.asked)
        for n in range(op.untold):
            acts = (self.may_take, self.give_back) if op.kind == "pop" else [self.may_take]
            for act in acts:
                slot = (op["call"], op["client"], n)
                yield Step(op, act, False, slot=slot, before=len(acts) * (n > 0))

    # What steps do to a state: they return the next one, or nothing if they cannot have happened.
    def put(self, state, step):
        (items, taken), item = state, step.item
        for n in range(item + 1, len(items) if self.one_by_one or not self.open else 0):
            there = items[n][0] == READY or self.sure and items[n][0] != AWAY
            known = self.one_by_one or self.acked[n] < step.call
            same = self.push[n].get("priority") == self.push[item].get("priority")
            same = same and self.group[item] in (None, self.group[n])
            if there and known and same and step.end < self.expiry[n][0]:
                return None
        to = (DELAYED if step.hold else READY, 0, step.hold)
        return items[item][0] == AWAY and (with_item(items, item, *to), taken)

    def put_again(self, state, step):
        items, taken = state
        after = with_item(items, step.item, READY, 0)
        others = [n for n, push in enumerate(self.push) if n != step.item and push is step.op]
        others = others if items[step.item][0] == AWAY else []
        for entry in (entry for entry in taken if entry[1] in others):
            return after, taken - {entry}
        for n in others:  # the pop may have taken it when it was back, or had expired
            if items[n][0] in (LEASED, DELAYED, READY if self.expiry[n][0] < NEVER else None):
                return with_item(after, n, AWAY, items[n][1]), taken

    def give_back(self, state, step):
        items, taken = state
        for n in (n for slot, n in taken if slot == step.slot):
            return with_item(items, n, READY, items[n][1]), taken - {(step.slot, n)}

    def chances(self, items, step, n, end):
        """Says whether a request may get an item, and if it must, unless one before that."""
        status, _, hold = items[n]
        first, last = hold or (-NEVER, -NEVER)
        may = status != AWAY and first <= end and step.call <= self.expiry[n][1]
        must = status != AWAY and last < step.call and end < self.expiry[n][0]
        if may and self.limit < NEVER and self.group[n] and not step.looks:
            same = [i for i, group in zip(items, self.group) if group == self.group[n]]
            leases = [hold for status, _, hold in same if status == LEASED]
            may = sum(end < hold[0] for hold in leases) < self.limit
            must = must and sum(step.call <= hold[1] for hold in leases) < self.limit
        return may, must

    def next_ones(self, items, step):
        """Returns the items one of which is next; None is none."""
        found = []
        for n in range(len(items))[:: -1 if step.back else 1]:
            may, must = self.chances(items, step, n, step.end)
            found += [n] * may
            if must:
                return found
        return found + [None]

    def serve(self, state, step):
        items, taken = state
        if step.op.kind == "next" and items[self.number[step.op["id"]]][0] != AWAY:
            return None
        for got in step.items:
            n = self.number[got["id"]]
            fence, new = items[n][1], got.get("fence", NEVER)
            if n not in self.next_ones(items, step) or new <= fence:
                return None
            to = (AWAY, fence) if new == NEVER else (LEASED, new, self.lease_hold(step.op, got))
            items = with_item(items, n, *((READY, fence) if step.looks else to))
        right = len(step.items) == step.asked or None in self.next_ones(items, step)
        if step.op.cut and "spread" not in step.op:
            left = step.op.get("max_bytes", NEVER) - sum(got.get("size", 0) for got in step.items)
            left_over = [self.push[n] for n in self.next_ones(items, step) if n is not None]
            right = any(step.items or push.get("size", 0) + HEADERS > left for push in left_over)
        return (items, taken) if right else None

    def may_take(self, state, step):
        items, taken = state
        for n in range(len(items))[:: -1 if step.back else 1]:
            if self.chances(items, step, n, step.call)[1]:
                if step.op.kind == "pop":
                    return with_item(items, n, AWAY, items[n][1]), taken | {(step.slot, n)}
                if items[n][1] + 1 in self.fences[n]:
                    return None  # somebody else has that lease
                to = (LEASED, items[n][1] + 1, self.hold_after(step.op, 0))
                return with_item(items, n, *to), taken

    def is_good(self, items, token):
        status, fence, _ = items[self.number[token["id"]]]
        return status != AWAY and fence == token["fence"]

    def settle(self, state, step):
        items, taken = state
        if not all(self.is_good(items, token) for token in step.op.tokens):
            return None
        for token in step.op.tokens:
            n, fence = self.number[token["id"]], token["fence"]
            if step.op.kind == "nak":
                items = with_item(items, n, DELAYED if step.hold else READY, fence + 1, step.hold)
            else:
                items = with_item(items, n, LEASED if step.hold else AWAY, fence, step.hold)
        return items, taken

    def stale(self, state, step):
        lost = step.op.get("lost", []) if "also" in step.op else [0]
        for i, token in enumerate(step.op.tokens):
            n = self.number[token["id"]]
            status, _, hold = state[0][n]
            gone = min(self.open_from, self.expiry[n][0]) <= step.end
            gone = gone and (status != LEASED or hold[0] <= step.end)
            if (i in lost) == self.is_good(state[0], token) and not (i in lost and gone):
                return None
        return state

    def count(self, state, step):
        chances = [self.chances(state[0], step, n, step.end) for n in range(len(self.push))]
        least, most = sum(must for _, must in chances), sum(may for may, _ in chances)
        return state if least <= step.op.get("len", 0) <= most + step.unseen else None

    def check(self):
        """Looks for an order in which each step happens as late as it can: when it was answered, or
        just before the answer of another one that could not be without it."""
        steps = sorted(self.steps, key=lambda step: step.end)
        certain = sum(step.certain for step in steps)
        stack, seen = [(0, 0, (((AWAY, 0, None),) * len(self.push), frozenset()))], set()
        while stack and len(seen) < TRIES:
            n, done, state = stack.pop()
            n = next((i for i in range(n, certain) if not done >> i & 1), None)
            if n is None:
                return
            if (done, state) in seen:
                continue
            seen.add((done, state))
            for i in [*range(len(steps) - 1, n, -1), n]:  # the last one is tried first
                waits = done >> i & 1 or steps[i].before and not done >> i - steps[i].before & 1
                if steps[i].call <= steps[n].end and not waits:
                    after = steps[i].act(state, steps[i])
                    if after:
                        stack.append((n, done | 1 << i, after))
        raise Fault("undecided" if stack else "no order of its operations is right")


class Operation(dict):
    """An operation as in the file, and what follows from its fields."""
    def __init__(self, fields):
        super().__init__(fields)
        self.kind = self["kind"].partition(".")[0]
        self.open = self["outcome"] in ("lost", "unknown")
        self.answered = NEVER if self.open else self["return"]
        self.settles = self.kind in ("ack", "nak", "extend", "next")
        self.serves = self.kind in ("pop", "peek", "lease", "next")
        self.asked = self.get("batch", 1)
        self.got = self.get("items", []) if self.serves else []
        if self["outcome"] == "done" and self.kind in ("pop", "peek") and not self.got:
            self.got = [self]
        self.cut = self["outcome"] == "too large" or "cut" in self
        pushed = self.kind == "push" and self["outcome"] == "done" and self.get("id")
        self.told = [self] if pushed else self.got
        takes = self.kind in ("pop", "lease", "next")
        self.untold = self.asked - len(self.got) if self.open and takes else 0
        self.tokens = [{"fence": 0, **token} for token in [self, *self.get("also", [])]]
        acks = self.kind in ("ack", "next") and self["outcome"] != "stale"
        self.ends = self.tokens if acks else self.got if self.kind == "pop" else []
        done = self["outcome"] in ("done", "empty", "too large") or self.got
        push = {**self, "kind": "push", "outcome": "done" if done else "lost", "next": []}
        next = self.get("next", []) if self["outcome"] not in ("stale", "refused") else []
        self.successors = [Operation({**push, "id": None, "size": 0, **one}) for one in next]


def judge(history):
    """Returns what is wrong with a history, or "accepted"."""
    queues = {}
    for op in map(Operation, history["operations"]):
        for one in [op] * (op["outcome"] != "refused") + op.successors:
            queues.setdefault(one["queue"], []).append(one)
    for name in sorted(queues):
        try:
            Queue(history, name, queues[name]).check()
        except Fault as fault:
            return f"queue {name}: {fault}"
    return "accepted"


def main(paths):
    verdicts = set()
    for path in paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
            for history in map(json.loads, lines):
                verdict = judge(history)
                verdicts.add(verdict)
                print(f"{history['name']}: {verdict}", flush=True)
    return verdicts != {"accepted"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
