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

// leaseSteps are what one of two transactions does.
type leaseSteps struct {
	ops   []fdbpq.Op
	after time.Duration // since the item "a" was leased, for a second
}

// TestLeaseConflicts runs two concurrent transactions on a queue with the items "a", which is
// leased, and "b". The second reads before the first commits; if it conflicts, it is run again.
// The results must be those of first and second in that order.
func TestLeaseConflicts(t *testing.T) {
	const late = 2 * time.Second
	lost, empty := fdbpq.ErrLeaseLost.Error(), fdbpq.ErrEmpty.Error()
	gone, notLeased := fdbpq.ErrNotFound.Error(), fdbpq.ErrNotLeased.Error()
	pop, back, peek, length := opPopMin, opPopMax, opPeekMin, opLen
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
	ack, nak, extend := fdbpq.Op{Kind: fdbpq.OpAck}, fdbpq.Op{Kind: fdbpq.OpNak}, fdbpq.Op{Kind: fdbpq.OpExtend}
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
		{"lease when it is over, nak", false, at(late, lease), at(late, nak), "a|" + lost + "|a b"},
		{"extend, pop when it was over", false, at(late, extend), at(late, pop), " |b|a"},
		{"pop when it is over, extend", false, at(late, pop), at(late, extend), "a|" + lost + "|b"},
		{"extend, extend", false, at(0, extend), at(late, extend), " | |a b"},
		{"ack, extend", false, at(0, ack), at(late, extend), " |" + lost + "|b"},
		{"ack, ack", false, at(0, ack), at(0, ack), " |" + lost + "|b"},
		{"ack, nak", false, at(0, ack), at(0, nak), " |" + lost + "|b"},
		{"nak, ack", false, at(0, nak), at(0, ack), " |" + lost + "|a b"},
		{"nak with delay, ack", false, at(0, snooze), at(0, ack), " |" + lost + "|a b"},
		{"nak with delay, pop when the lease is over", false, at(late, snooze), at(late, pop), " |b|a"},
		{"nak, pop of what was first", false, at(0, nak), at(0, pop), " |a|b"},
		{"nak, pop from the back", false, at(0, nak), at(0, back), " |b|a"},
		{"nak, pop of both", false, at(0, nak), at(0, pop, back), " |a b|"},
		{"ack and next, twice", false, at(0, ack, next), at(0, ack, next), " b|" + lost + " " + lost + "|b"},
		{"ack and next, pop", false, at(0, ack, next), at(0, pop), " b|" + empty + "|b"},
		{"pop, ack and next", false, at(0, pop), at(0, ack, next), "b| " + empty + "|"},

		{"release, ack", false, at(0, release), at(0, ack), " |" + lost + "|a b"},
		{"ack, release", false, at(0, ack), at(0, release), " |" + gone + "|b"},
		{"release, release", false, at(0, release), at(0, release), " |" + notLeased + "|a b"},
		{"release, extend", false, at(0, release), at(0, extend), " |" + lost + "|a b"},
		{"extend, release", false, at(0, extend), at(0, release), " | |a b"},
		{"release, pop", false, at(0, release), at(0, pop), " |a|b"},
		{"release, push", false, at(0, release), at(0, push), " | |a c b"},
		{"lease when it is over, release", false, at(late, lease), at(late, release), "a| |a b"},
		{"release of what is over, pop", false, at(late, release), at(late, pop), notLeased + "|a|b"},
		{"push in front, release and peek", false, at(0, pushFront), at(0, release, peek), " | c|c a b"},

		{"peek when it is over, ack", false, at(late, peek), at(late, ack), "a| |b"},
		{"ack, peek when it is over", false, at(late, ack), at(late, peek), " |b|b"},
		{"peek when it is over, nak", false, at(late, peek), at(late, nak), "a| |a b"},
		{"peek when it is over, extend and pop", false, at(late, peek), at(late, extend, pop), "a| b|a"},
		{"extend, len when it is over", false, at(late, extend), at(late, length), " |1|a b"},
		{"peek and len when it is over, twice", false, at(late, peek, length), at(late, peek, length), "a 2|a 2|a b"},
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
		{"back: nak, ack", true, at(late, nak), at(late, ack), " |" + lost + "|a b"},
		{"back: pop from the back, pop of both", true, at(late, back), at(late, pop, back), "b|a " + empty + "|"},

		{"push in front, nak and peek", false, at(0, pushFront), at(0, nak, peek), " | c|c a b"},
		{"back: push in front, ack and peek", true, at(late, pushFront), at(late, ack, peek), " | c|c b"},
		{"back: push in front, extend and peek", true, at(late, pushFront), at(late, extend, peek), " | c|c a b"},
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
				if fifo && slices.ContainsFunc(append(test.first.ops, test.second.ops...), func(op fdbpq.Op) bool {
					return op.End == fdbpq.Back || op.Kind == fdbpq.OpPush && op.Priority == 0
				}) {
					continue // there is no such thing
				}
				want := test.want
				if fifo { // "c" is behind "b" there
					want = strings.Replace(want, "c b", "b c", 1)
				}
				t.Run(fmt.Sprintf("fifo=%t/headers=%t/%s", fifo, headers, test.name), func(t *testing.T) {
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
	c.token = c.apply(leaseSteps{[]fdbpq.Op{{Kind: fdbpq.OpLease, Lease: time.Second}}, 0})[0].Lease.Token
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
	return must(do(c.fixture, func(tx kv.Transaction) ([]fdbpq.Result, error) { return c.in(tx, s) }))
}

// run runs both and drains the queue.
func (c *leaseConflict) run(first, second leaseSteps) string {
	before, after := must(c.db.Begin(c.ctx, kv.BeginOptions{})), must(c.db.Begin(c.ctx, kv.BeginOptions{}))
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
	got := []string{strings.Join(summary(first.ops, firstResults), " "), strings.Join(summary(second.ops, secondResults), " ")}
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
