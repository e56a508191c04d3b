package fdbpq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// withTTL is a push of an item that expires.
func withTTL(push fdbpq.Op, ttl time.Duration) fdbpq.Op {
	push.TTL = ttl
	return push
}

// Items that expire neither make pushes conflict with each other, nor are both popped and expired.
func TestExpiryConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	now := time.Now()
	begin := func() kv.Transaction { return must(f.db.Begin(f.ctx, kv.BeginOptions{})) }
	at := func(tx kv.Transaction, now time.Time, ops ...fdbpq.Op) []fdbpq.Result {
		return must(fdbpq.Apply(tx, ops, now))
	}
	first, second := begin(), begin()
	for _, tx := range []kv.Transaction{first, second} {
		at(tx, now, withTTL(opPush(q, 1, "x"), time.Second))
	}
	for _, tx := range []kv.Transaction{first, second} {
		if _, err := tx.Commit().Get(); err != nil {
			t.Errorf("pushes: %v", err)
		}
	}
	// The clock of the second is ahead.
	first, second = begin(), begin()
	if r := at(first, now, op(opPopMin, q))[0]; string(r.Item.Value) != "x" {
		t.Errorf("popped %q, %v", r.Item.Value, r.Err)
	}
	wantError(t, at(second, now.Add(time.Second), op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
	must(first.Commit().Get())
	if _, err := second.Commit().Get(); !kv.Retryable(err) {
		t.Errorf("the item was popped and expired: %v", err)
	}
}

// An entry of the time index whose item another program has taken is removed when it is due.
func TestExpiryOfATakenItem(t *testing.T) {
	f := onMem(t)
	f.corrupt = true // that program leaves the rest behind
	clock := newClock(time.Now())
	f.batcher.SetNow(clock.now)
	q := f.queue("jobs")
	f.apply(withTTL(opPush(q, 1, "x"), time.Second))
	write(f, func(tx kv.Transaction) { tx.ClearRange(everythingIn(f, "jobs", "i")) })
	clock.advance(time.Second)
	wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
	for _, pair := range f.stored(f.priority) {
		if strings.Contains(string(pair.Key), "\x02t\x00") {
			t.Errorf("left in the time index: %x", pair.Key)
		}
	}
}
