package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// Batches of only pushes never conflict, even from different Batchers: in any interleaving, each
// takes one attempt.
func TestBatchesOfPushesDoNotConflict(t *testing.T) {
	f := onMem(t)
	q, fifo := f.queue("a"), f.fifoQueue("a")
	inner := f.db
	other := fdbpq.NewBatcher(inner, f.Keyspace)
	commits := 0

	between := &hooked{Database: inner, beforeCommit: func() {
		commits++
		must(other.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "other"), opPush(fifo, 0, "other")}))
	}}

	b := fdbpq.NewBatcher(between, f.Keyspace)
	for range 10 {
		ops := []fdbpq.Op{opPush(q, 1, "v"), opPush(fifo, 0, "v"), op(opLen, q)}
		must(b.Apply(f.ctx, ops))
	}
	wantEqual(t, "commits of ten batches", commits, 10)
	wantEqual(t, "items", f.length(q)+f.length(fifo), 40)
}

// A batch of a push and a peek conflicts with another client's more urgent push only if the peek
// returned the item that was pushed.
func TestPushBesidePeek(t *testing.T) {
	f := onMem(t)
	q := f.queue("a")
	f.push(q, 10, "first")

	urgent := func(priority int64) func() {
		return func() {
			must(fdbpq.NewBatcher(f.db, f.Keyspace).Apply(f.ctx,
				[]fdbpq.Op{opPush(q, priority, "urgent")}))
		}
	}
	f.wantConflict(false, urgent(9), opPush(q, 20, "v"), op(opPeekMin, q))
	f.wantConflict(true, urgent(7), opPush(q, 8, "v"), op(opPeekMin, q))
}

// wantConflict applies operations in a transaction that others get ahead of before its commit,
// which then conflicts or does not.
func (f *fixture) wantConflict(want bool, meanwhile func(), ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))

	results := must(fdbpq.Apply(tx, ops, time.Now()))
	for _, r := range results {
		wantError(f.T, r.Err, nil)
	}

	meanwhile()
	if _, err := tx.Commit().Get(); errors.Is(err, kv.ErrConflict) != want || err != nil && !want {
		f.Errorf("commit: %v, want a conflict: %t", err, want)
	}

	return results
}

// An operation conflicts with a change that another client commits first only if its result
// depends on that change.
func TestConflicts(t *testing.T) {
	all := onMem(t)
	q, fifo, other := all.queue("jobs"), all.fifoQueue("jobs"), all.queue("other")
	dead := q.DeadLetters()
	push := func(priority int64) fdbpq.Op { return opPush(nil, priority, "pushed") }
	expires := withTTL(push(10), time.Hour)
	delayed := withDelay(expires, time.Minute)
	enqueue, dequeue := opPush(fifo, 0, "pushed"), op(opPopMin, fifo)
	first := opPush(all.queue("new"), 1, "")
	remove, purge := fdbpq.Op{Kind: fdbpq.OpRemove}, fdbpq.Op{Kind: fdbpq.OpPurge}
	move := func(to int64) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpMove, Priority: to} }

	configure := fdbpq.Op{
		Kind:      fdbpq.OpConfigure,
		Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 },
	}

	consumer := func(name string) fdbpq.Op { return opSetConsumer(nil, name, "1") }
	once := func(msgID, unique string) fdbpq.Op { return opPushOnce(nil, msgID, unique) }
	lease := fdbpq.Op{Kind: fdbpq.OpLease}
	ack, term := fdbpq.Op{Kind: fdbpq.OpAck}, fdbpq.Op{Kind: fdbpq.OpTerm}
	redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead}

	for _, test := range []struct {
		name          string
		first, second fdbpq.Op
		want          bool
	}{
		{"push, push at the same priority", push(10), push(10), false},
		{"push, push at a new priority", push(11), push(11), false},
		{"push of what expires, twice", expires, expires, false},
		{"delayed push, twice", delayed, delayed, false},
		{"delayed push, push", delayed, push(10), false},
		{"push, delayed push", push(10), delayed, false},
		{"first push of a queue, twice", first, first, false},
		{"enqueue, enqueue", enqueue, enqueue, false},
		{"pop, push", opPopMin, push(1), false},
		{"dequeue, enqueue", dequeue, enqueue, false},

		{"pop, pop of the same end", opPopMin, opPopMin, true},
		{"pop, pop of the other end", opPopMin, opPopMax, false},
		{"dequeue, dequeue", dequeue, dequeue, true},
		{"push in front, pop", push(9), opPopMin, true},
		{"push behind the first, pop", push(10), opPopMin, false},
		{"push at the other end, pop", push(50), opPopMin, false},
		{"push at the end, pop of the end", push(40), opPopMax, true},
		{"push in front, pop of the end", push(1), opPopMax, false},
		{"enqueue, dequeue", enqueue, dequeue, false},
		{"push to another queue, pop", opPush(other, 1, ""), opPopMin, false},

		{"pop, remove of the same item", opPopMin, remove, true},
		{"remove, pop of the same item", remove, opPopMin, true},
		{"pop of the other end, remove", opPopMax, remove, false},
		{"push in front, remove", push(1), remove, false},
		{"push at the priority, move there", push(30), move(30), false},
		{"move, push at the priority", move(30), push(30), false},
		{"move in front, pop", move(1), opPopMin, true},
		{"pop, move of the same item", opPopMin, move(30), true},
		{"purge, pop", purge, opPopMin, true},
		{"pop, purge", opPopMin, purge, true},
		{"push, purge", push(15), purge, true}, // else it would go uncounted
		{"purge, push", purge, push(15), false},

		{"peek, pop", opPeekMin, opPopMin, false},

		{"settings, push", configure, push(5), true},
		{"settings, pop", configure, opPopMin, true},
		{"settings, len", configure, opLen, false},
		{
			"settings, lease with a length",
			configure, fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}, true,
		},
		{"settings, lease without", configure, lease, true},
		{"settings, ack", configure, ack, true},
		{"settings, extend", configure, fdbpq.Op{Kind: fdbpq.OpExtend}, false},
		{"settings, snooze", configure, fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}, false},
		{"settings, nak", configure, fdbpq.Op{Kind: fdbpq.OpNak, Delay: fdbpq.Backoff}, true},
		{"settings, term", configure, term, true},

		{"consumer, the same", consumer("a"), consumer("a"), true},
		{"consumer, another", consumer("a"), consumer("b"), true}, // there might be too many
		{"consumer, push", consumer("a"), push(5), false},
		{"consumer, pop", consumer("a"), opPopMin, false},
		{"consumer, lease that counts", consumer("a"), counting(lease), false},
		{"consumer, settings", consumer("a"), configure, false},

		{"ack, burial", ack, term, true},
		{"burial, burial", term, term, true},
		{"push, burial", push(0), term, false},
		{"push to the dead-letter queue, burial", opPush(dead, 0, "x"), term, false},
		{"pop from the dead-letter queue, burial", op(opPopMin, dead), term, false},
		{"redrive of an item, twice", redrive, redrive, true},

		{"push, same message id", once("a", "x"), once("a", ""), true},
		{"push, same unique key", once("x", "a"), once("", "a"), true},
		{"push, other message id", once("b", ""), once("a", ""), false},
		{"push, other unique key", once("", "b"), once("", "a"), false},
		{"push, message id", once("", ""), once("a", ""), false},
		{"push, id and key", once("", "a"), once("a", ""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: all.ctx, db: all.db, batcher: all.batcher}
			write(f, func(tx kv.Transaction) { q.Clear(tx); fifo.Clear(tx); dead.Clear(tx) })
			old := time.Now().Add(-time.Hour)
			f.applyAt(old, many(10, func(i int) fdbpq.Op { // that both remove
				return opPushOnce(q, fmt.Sprint("old", i), "")
			})...)
			f.values(q.PopMin)

			f.bury(time.Now(), q, "letter")
			letter := f.apply(op(opPeekMin, dead))[0].Item.ID
			f.setConsumer(q, "c", "1")
			f.push(q, 1, "a")
			token := f.leaseSome(q, 1, time.Hour)[0]

			// 10, 20, 30 and 40, each at its priority.
			items := many(4, func(i int) fdbpq.Op { return opPush(q, int64(10+10*i), "v") })
			items = append(items, opPush(fifo, 0, "v"), opPush(fifo, 0, "w"))
			first := f.apply(items...)[0].Item.ID

			for _, o := range []*fdbpq.Op{&test.first, &test.second} {
				if o.Token, o.ID = token, first; o.Queue == dead {
					o.ID = letter
				} else if o.Queue == nil {
					o.Queue = q
				}
			}

			meanwhile := func() { wantError(t, f.apply(test.first)[0].Err, nil) }
			write := opPush(other, 0, "") // because what only reads never conflicts
			f.wantConflict(test.want, meanwhile, test.second, write)
		})
	}

	// A caller's transaction may write because of what it has peeked at.
	for _, test := range []struct {
		first fdbpq.Op
		peek  func(kv.Reader) (fdbpq.Item, error)
		want  error
	}{
		{opPopMin, q.PeekMin, kv.ErrConflict}, {opPopMin, q.PeekMax, nil},
		{push(1), q.PeekMin, kv.ErrConflict},
	} {
		write(all, q.Clear)
		all.apply(opPush(q, 10, "v"), opPush(q, 20, "v"))
		tx := must(all.db.Begin(all.ctx, kv.BeginOptions{}))
		must(test.peek(tx))
		must(other.Push(tx, 1, message("v")))

		wantError(t, all.apply(op(test.first, q))[0].Err, nil)
		wantError(t, errOf(tx.Commit().Get()), test.want)
	}

	for _, second := range []fdbpq.Op{push(1), opPopMin} {
		all.push(q, 1, "v")
		all.wantConflict(true, func() { write(all, q.Clear) }, op(second, q))
	}
}

// leaseSteps are what one of two transactions does.
type leaseSteps struct {
	ops   []fdbpq.Op
	after time.Duration // since the item "a" was leased, for a second
}

// Of two concurrent transactions on a queue with leases, the second conflicts if it has to, and
// both have the results that they would have one after the other.
func TestLeaseConflicts(t *testing.T) {
	const late = 2 * time.Second
	lost, empty := fdbpq.ErrLeaseLost.Error(), fdbpq.ErrEmpty.Error()
	gone, notLeased := fdbpq.ErrNotFound.Error(), fdbpq.ErrNotLeased.Error()
	pop, back, peek, length := opPopMin, opPopMax, opPeekMin, opLen
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
	ack := fdbpq.Op{Kind: fdbpq.OpAck}
	nak := fdbpq.Op{Kind: fdbpq.OpNak}
	extend := fdbpq.Op{Kind: fdbpq.OpExtend}
	release := fdbpq.Op{Kind: fdbpq.OpRelease}
	snooze := fdbpq.Op{Kind: fdbpq.OpNak, Delay: time.Second, Uncounted: true}
	next := lease
	next.Follows = true
	push := fdbpq.Op{Kind: fdbpq.OpPush, Priority: 1, Message: message("c")}
	pushFront := fdbpq.Op{Kind: fdbpq.OpPush, Priority: 0, Message: message("c")}
	at := func(after time.Duration, ops ...fdbpq.Op) leaseSteps { return leaseSteps{ops, after} }

	tests := []struct {
		name          string
		ready         bool // "a" has come back, and nobody has it
		first, second leaseSteps
		want          string // all results, then what is left
	}{
		{"ack, pop when it is over", false, at(late, ack), at(late, pop), " |b|"},
		{"pop when it is over, ack", false, at(late, pop), at(late, ack), "a|" + lost + "|b"},
		{"ack, lease when it is over", false, at(late, ack), at(late, lease), " |b|b"},
		{"lease when it is over, ack", false, at(late, lease), at(late, ack), "a|" + lost + "|a b"},
		{"extend, pop when it was over", false, at(late, extend), at(late, pop), " |b|a"},
		{"pop when it is over, extend", false, at(late, pop), at(late, extend), "a|" + lost + "|b"},
		{"extend, extend", false, at(0, extend), at(late, extend), " | |a b"},
		{"ack, extend", false, at(0, ack), at(late, extend), " |" + lost + "|b"},
		{"ack, ack", false, at(0, ack), at(0, ack), " |" + lost + "|b"},
		{"nak, ack", false, at(0, nak), at(0, ack), " |" + lost + "|a b"},
		{"nak with delay, ack", false, at(0, snooze), at(0, ack), " |" + lost + "|a b"},
		{
			"nak with delay, pop when the lease is over", false,
			at(late, snooze), at(late, pop), " |b|a",
		},
		{"nak, pop of what was first", false, at(0, nak), at(0, pop), " |a|b"},
		{"nak, pop from the back", false, at(0, nak), at(0, back), " |b|a"},
		{"nak, pop of both", false, at(0, nak), at(0, pop, back), " |a b|"},
		{
			"ack and next, twice", false, at(0, ack, next), at(0, ack, next),
			" b|" + lost + " " + lost + "|b",
		},
		{"ack and next, pop", false, at(0, ack, next), at(0, pop), " b|" + empty + "|b"},
		{"pop, ack and next", false, at(0, pop), at(0, ack, next), "b| " + empty + "|"},

		{"release, ack", false, at(0, release), at(0, ack), " |" + lost + "|a b"},
		{"ack, release", false, at(0, ack), at(0, release), " |" + gone + "|b"},
		{"release, release", false, at(0, release), at(0, release), " |" + notLeased + "|a b"},
		{"extend, release", false, at(0, extend), at(0, release), " | |a b"},
		{"release, pop", false, at(0, release), at(0, pop), " |a|b"},
		{"release, push", false, at(0, release), at(0, push), " | |a c b"},
		{"lease when it is over, release", false, at(late, lease), at(late, release), "a| |a b"},
		{
			"release of what is over, pop", false, at(late, release), at(late, pop),
			notLeased + "|a|b",
		},
		{
			"push in front, release and peek", false,
			at(0, pushFront), at(0, release, peek), " | c|c a b",
		},

		{"peek when it is over, ack", false, at(late, peek), at(late, ack), "a| |b"},
		{"ack, peek when it is over", false, at(late, ack), at(late, peek), " |b|b"},
		{"peek when it is over, nak", false, at(late, peek), at(late, nak), "a| |a b"},
		{
			"peek when it is over, extend and pop", false,
			at(late, peek), at(late, extend, pop), "a| b|a",
		},
		{"extend, len when it is over", false, at(late, extend), at(late, length), " |1|a b"},
		{
			"peek and len when it is over, twice", false,
			at(late, peek, length), at(late, peek, length), "a 2|a 2|a b",
		},
		{"pop when it is over, twice", false, at(late, pop), at(late, pop), "a|b|"},
		{"pop when it is over, pop by a slow clock", false, at(late, pop), at(0, pop), "a|b|"},
		{"pop by a slow clock, pop when it is over", false, at(0, pop), at(late, pop), "b|a|"},
		{"lease when it is over, twice", false, at(late, lease), at(late, lease), "a|b|a b"},

		{"back: ack, pop", true, at(late, ack), at(late, pop), " |b|"},
		{"back: pop, ack", true, at(late, pop), at(late, ack), "a|" + lost + "|b"},
		{"back: lease, ack", true, at(late, lease), at(late, ack), "a|" + lost + "|a b"},
		{"back: ack, lease", true, at(late, ack), at(late, lease), " |b|b"},
		{"back: ack, ack", true, at(late, ack), at(late, ack), " |" + lost + "|b"},
		{"back: extend, pop", true, at(late, extend), at(late, pop), " |b|a"},
		{"back: extend, ack", true, at(late, extend), at(late, ack), " | |b"},
		{"back: nak, lease", true, at(late, nak), at(late, lease), " |a|a b"},
		{
			"back: pop from the back, pop of both", true,
			at(late, back), at(late, pop, back), "b|a " + empty + "|",
		},

		{"push in front, nak and peek", false, at(0, pushFront), at(0, nak, peek), " | c|c a b"},
		{
			"back: push in front, ack and peek", true,
			at(late, pushFront), at(late, ack, peek), " | c|c b",
		},
		{
			"back: push in front, extend and peek", true,
			at(late, pushFront), at(late, extend, peek), " | c|c a b",
		},
		{"push, nak", false, at(0, push), at(0, nak), " | |a c b"},
		{"nak, push", false, at(0, nak), at(0, push), " | |a c b"},
		{"ack, push", false, at(0, ack), at(0, push), " | |c b"},
		{"pop when it is over, push", false, at(late, pop), at(late, push), "a| |c b"},
		{"push, pop when it is over", false, at(late, push), at(late, pop), " |a|c b"},
		{"back: lease, push", true, at(late, lease), at(late, push), "a| |a c b"},
		{"back: push, extend", true, at(late, push), at(late, extend), " | |a c b"},
	}

	for _, fifo := range []bool{false, true} {
		for _, headers := range []bool{false, true} {
			for _, test := range tests {
				ops := append(test.first.ops, test.second.ops...)
				onlyPriority := func(op fdbpq.Op) bool {
					return op.End == fdbpq.Back || op.Kind == fdbpq.OpPush && op.Priority == 0
				}
				if fifo && slices.ContainsFunc(ops, onlyPriority) {
					continue // there is no such thing
				}

				want := test.want
				if fifo { // "c" is behind "b" there
					want = strings.Replace(want, "c b", "b c", 1)
				}

				t.Run(fmt.Sprintf("fifo=%t/headers=%t/%s", fifo, headers, test.name),
					func(t *testing.T) {
						c := newLeaseConflict(t, fifo, headers, test.ready)
						defer c.close()
						wantEqual(t, "results", c.run(test.first, test.second), want)
					})
			}
		}
	}
}

// leaseConflict is one case.
type leaseConflict struct {
	*fixture
	q     fdbpq.Target
	start time.Time
	token fdbpq.Token
}

func newLeaseConflict(t *testing.T, fifo, headers, ready bool) *leaseConflict {
	f := &fixture{T: t, ctx: t.Context(), db: memkv.New(memkv.Options{}), priority: "pq", fifo: "q"}
	f.Keyspace = must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	c := &leaseConflict{fixture: f, q: f.queue("jobs"), start: time.Now()}

	if fifo {
		c.q = f.fifoQueue("jobs")
	}

	var fill []fdbpq.Op
	for i, value := range []string{"a", "b"} {
		m := message(value)
		if headers {
			m.Headers = map[string][]string{"A": {"b"}}
		}

		fill = append(fill, fdbpq.Op{Kind: fdbpq.OpPush, Priority: int64(1 + i), Message: m})
	}

	c.apply(leaseSteps{fill, 0})
	c.token = c.apply(
		leaseSteps{[]fdbpq.Op{{Kind: fdbpq.OpLease, Lease: time.Second}}, 0})[0].Lease.Token

	if ready {
		c.apply(leaseSteps{[]fdbpq.Op{opPeekMin}, time.Second})
	}

	return c
}

func (c *leaseConflict) close() {
	c.check()
	wantError(c.T, c.db.Close(), nil)
}

// in runs steps in tx.
func (c *leaseConflict) in(tx kv.Transaction, s leaseSteps) ([]fdbpq.Result, error) {
	var ops []fdbpq.Op
	for _, op := range s.ops {
		op.Queue, op.Token, op.ID = c.q, c.token, c.token.ID
		ops = append(ops, op)
	}

	return fdbpq.Apply(tx, ops, c.start.Add(s.after))
}

// apply runs steps in a transaction of their own.
func (c *leaseConflict) apply(s leaseSteps) []fdbpq.Result {
	c.Helper()
	return must(do(c.fixture, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return c.in(tx, s)
	}))
}

// run runs both and drains the queue.
func (c *leaseConflict) run(first, second leaseSteps) string {
	before := must(c.db.Begin(c.ctx, kv.BeginOptions{}))
	after := must(c.db.Begin(c.ctx, kv.BeginOptions{}))
	defer before.Cancel()
	defer after.Cancel()
	secondResults := must(c.in(after, second))
	firstResults := must(c.in(before, first))
	must(before.Commit().Get())

	_, err := after.Commit().Get()
	if errors.Is(err, kv.ErrConflict) && second.ops[0].Kind == fdbpq.OpPush {
		c.Error("the push conflicts")
	}

	if errors.Is(err, kv.ErrConflict) {
		secondResults, err = c.apply(second), nil
	}
	if err != nil {
		c.Fatal(err)
	}
	c.check()

	got := []string{
		strings.Join(summary(first.ops, firstResults), " "),
		strings.Join(summary(second.ops, secondResults), " "),
	}

	var left []string
	for {
		r := c.apply(leaseSteps{[]fdbpq.Op{opPopMin}, time.Hour})[0]
		if r.Err != nil {
			wantError(c.T, r.Err, fdbpq.ErrEmpty)
			break
		}

		left = append(left, string(r.Item.Value))
	}

	for _, root := range []string{"pq", "q"} {
		for _, pair := range c.stored(root) {
			c.Errorf("left in the store: %q", pair.Key)
		}
	}

	for i := range got {
		if got[i] = strings.ReplaceAll(got[i], ": "+c.token.ID.String(), ""); got[i] == "" {
			got[i] = " "
		}
	}

	return strings.Join(append(got, strings.Join(left, " ")), "|")
}
