package fdbpq_test

import (
	"errors"
	"fmt"
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

// expiryFixture is a queue of either kind and a clock.
type expiryFixture struct {
	*fixture
	*clock
	q fdbpq.Target
}

// onExpiry runs a test on both kinds of queues of each engine. In the end, nothing may be left.
func onExpiry(t *testing.T, run func(f *expiryFixture)) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			run(&expiryFixture{f, clock, q})
		}
		for _, root := range []string{f.priority, f.fifo} {
			if left := f.stored(root); len(left) > 0 {
				f.Errorf("left behind in %q: %d keys, %.300q", root, len(left), left)
			}
		}
	})
}

// states returns the number of items that are ready, leased and delayed.
func (f *expiryFixture) states() [3]int64 {
	f.Helper()
	info := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: f.q})[0].Info
	return [3]int64{info.Ready, info.Leased, info.Delayed}
}

// expired applies operations and returns how many items had expired.
func (f *expiryFixture) expired(ops ...fdbpq.Op) int64 {
	f.Helper()
	before := f.batcher.Removed().Expired
	f.apply(ops...)
	return f.batcher.Removed().Expired - before
}

// Ready and delayed items are gone when they expire, with all that belongs to them, whoever asks;
// until then they are there.
func TestExpiry(t *testing.T) {
	for name, look := range map[string]fdbpq.Op{
		"pop": opPopMin, "lease": {Kind: fdbpq.OpLease}, "peek": opPeekMin, "len": opLen, "info": {Kind: fdbpq.OpInfo},
	} {
		t.Run(name, func(t *testing.T) {
			onExpiry(t, func(f *expiryFixture) {
				long := withTTL(opPush(f.q, 1, strings.Repeat("x", 250_000)), time.Second)
				long.Message.Headers = map[string][]string{"A": {"b"}}
				at := opPush(f.q, 1, "at a time")
				at.Message.Expires = f.now().Add(time.Second)
				f.apply(long, at, withDelay(withTTL(opPush(f.q, 1, "delayed"), time.Second), time.Hour), withTTL(opPush(f.q, 1, "later"), 2*time.Second))
				wantEqual(f.T, "at first", f.states(), [3]int64{3, 0, 1})
				f.advance(time.Second - time.Microsecond)
				wantEqual(f.T, "just before", f.expired(op(opLen, f.q)), 0)
				wantEqual(f.T, "just before", f.states(), [3]int64{3, 0, 1})
				f.advance(time.Microsecond)
				wantEqual(f.T, "expired", f.expired(op(look, f.q)), 3)
				f.check()
				f.advance(time.Second)
				wantEqual(f.T, "a plain push", f.expired(withTTL(opPush(f.q, 1, "last"), time.Second)), 0)
				f.advance(31 * time.Second)
				f.apply(op(opLen, f.q))
				wantEqual(f.T, "in the end", f.states(), [3]int64{})
			})
		})
	}
}

// The holder of an item that expires may acknowledge it, and it expires instead of coming back.
func TestExpiryOfLeasedItems(t *testing.T) {
	lease := func(f *expiryFixture) fdbpq.Token {
		f.Helper()
		f.apply(withTTL(opPush(f.q, 1, "x"), 2*time.Second))
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: f.q, Lease: 10 * time.Second})[0]
		wantError(f.T, r.Err, nil)
		f.advance(2 * time.Second)
		wantEqual(f.T, "while it is leased", f.expired(op(opPopMin, f.q)), 0)
		return r.Lease.Token
	}
	for name, test := range map[string]struct {
		op      fdbpq.Op
		expired int64
	}{
		"ack": {fdbpq.Op{Kind: fdbpq.OpAck}, 0}, "nak": {fdbpq.Op{Kind: fdbpq.OpNak}, 1}, "nak with a delay": {fdbpq.Op{Kind: fdbpq.OpNak, Delay: time.Hour}, 1},
		"snooze": {fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true, Delay: fdbpq.Backoff}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			onExpiry(t, func(f *expiryFixture) {
				test.op.Queue, test.op.Token = f.q, lease(f)
				wantEqual(f.T, "expired", f.expired(test.op), test.expired)
				wantError(f.T, f.apply(test.op)[0].Err, fdbpq.ErrLeaseLost)
			})
		})
	}
	t.Run("lease over", func(t *testing.T) {
		onExpiry(t, func(f *expiryFixture) {
			token := lease(f)
			f.apply(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: f.q, Token: token})
			f.advance(10*time.Second - time.Microsecond)
			wantEqual(f.T, "before the end", f.states(), [3]int64{0, 1, 0})
			f.advance(time.Microsecond)
			wantEqual(f.T, "at the end", f.expired(op(opPopMin, f.q)), 1)
			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: f.q, Token: token})[0].Err, fdbpq.ErrLeaseLost)
		})
	})
	t.Run("comes back in time, delayed beyond it", func(t *testing.T) {
		onExpiry(t, func(f *expiryFixture) {
			f.apply(withTTL(opPush(f.q, 1, "x"), 10*time.Second))
			token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: f.q, Lease: time.Second})[0].Lease.Token
			f.advance(time.Second)
			wantEqual(f.T, "lease over", f.states(), [3]int64{1, 0, 0})
			f.check()
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: f.q, Token: token, Delay: time.Hour})
			f.check()
			f.advance(9 * time.Second)
			wantEqual(f.T, "expired", f.expired(op(opLen, f.q)), 1)
		})
	})
}

// Expiry wins over max_deliver, but not over OpTerm. Dead letters do not expire.
func TestExpiryAndDeadLetters(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		var tokens []fdbpq.Token
		for _, wait := range []time.Duration{time.Second, time.Hour, time.Hour, 2 * time.Second} {
			f.apply(withTTL(opPush(q, 1, fmt.Sprint(len(tokens))), 2*time.Second))
			tokens = append(tokens, f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: wait})[0].Lease.Token)
		}
		clock.advance(time.Second)
		f.apply(op(opLen, q)) // buries the first
		clock.advance(time.Second)
		f.apply(op(opLen, q), fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: tokens[1]}, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: tokens[2]})
		clock.advance(time.Hour)
		dead := f.apply(op(opPopMin, q.DeadLetters()), op(opPopMin, q.DeadLetters()), op(opPopMin, q.DeadLetters()), op(opLen, q))
		wantList(f.T, "dead letters", summary(make([]fdbpq.Op, 3), dead[:3]), "0", "2", fdbpq.ErrEmpty.Error())
		if !dead[0].Item.Expires.IsZero() {
			f.Errorf("a dead letter expires at %v", dead[0].Item.Expires)
		}
	})
}

// An item that was popped, expired, and is put back because nobody received it stays away. One that
// has not expired does so at its time.
func TestExpiryAndRestore(t *testing.T) {
	onExpiry(t, func(f *expiryFixture) {
		f.apply(withTTL(opPush(f.q, 1, "a"), time.Second), withTTL(opPush(f.q, 1, "b"), 3*time.Second))
		r := f.apply(op(opPopMin, f.q), op(opPopMin, f.q))
		f.advance(time.Second)
		for i := range r {
			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: f.q, Item: &r[i].Item})[0].Err, nil)
		}
		wantEqual(f.T, "restored", f.states(), [3]int64{1, 0, 0})
		f.check()
		f.advance(2 * time.Second)
		wantError(f.T, f.apply(op(opPopMin, f.q))[0].Err, fdbpq.ErrEmpty)
	})
}

// The setting is for later pushes that say nothing else.
func TestTTLSetting(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		f.apply(opPush(q, 1, "before"))
		f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.TTL = time.Minute }}, opPush(q, 1, "with"))
		f.apply(opPush(q, 1, "after"), withTTL(opPush(q, 1, "never"), fdbpq.Never), withTTL(opPush(q, 1, "hour"), time.Hour))
		clock.advance(time.Minute)
		f.configure(q, func(s *fdbpq.Settings) { s.TTL = 0 })
		f.apply(opPush(q, 1, "reset"))
		clock.advance(time.Minute)
		got := f.apply(op(opPopMin, q), op(opPopMin, q), op(opPopMin, q), op(opPopMin, q), op(opPopMin, q))
		wantList(f.T, "left", summary(make([]fdbpq.Op, 5), got), "before", "never", "hour", "reset", fdbpq.ErrEmpty.Error())
		if !got[2].Item.Expires.Equal(got[2].Item.PushedAt.Add(time.Hour)) {
			f.Errorf("pushed at %v, expires at %v", got[2].Item.PushedAt, got[2].Item.Expires)
		}
	})
}

// Bad times of expiry are refused, with what would be right.
func TestBadExpiry(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	for name, bad := range map[string]fdbpq.Op{
		"short":    {TTL: time.Second - 1},
		"negative": {TTL: -time.Second},
		"long":     {TTL: fdbpq.MaxTTL + 1},
		"far":      {Message: fdbpq.Message{Expires: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"ancient":  {Message: fdbpq.Message{Expires: time.Unix(1, 0)}},
	} {
		bad.Kind, bad.Queue = fdbpq.OpPush, q
		if r := f.apply(bad)[0]; !errors.Is(r.Err, fdbpq.ErrOp) || !strings.Contains(r.Err.Error(), ": want ") {
			f.Errorf("%s: %v", name, r.Err)
		}
	}
	wantEqual(f.T, "stored", len(f.stored(f.priority)), 0)
}

// A batch sees to all that has expired, however much it is, before its pops. A pop in a transaction of
// the caller, which cannot, does not return expired items either.
func TestManyExpire(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now().Add(-time.Hour))
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		const many = 700 // more than one transaction with other operations handles
		fill := func() {
			f.Helper()
			var ops []fdbpq.Op
			for i := range many {
				ops = append(ops, withTTL(opPush(q, 1, fmt.Sprint(i)), time.Second))
			}
			f.apply(append(ops, opPush(q, 2, "stays"))...)
		}
		fill()
		clock.advance(time.Second)
		results := f.apply(op(opPopMin, q))
		if string(results[0].Item.Value) != "stays" || f.batcher.Removed().Expired != many {
			f.Errorf("popped %q, %v, %d expired", results[0].Item.Value, results[0].Err, f.batcher.Removed().Expired)
		}
		fill()
		item, err := f.take(q.PopMin)
		if err != nil || string(item.Value) != "stays" {
			f.Errorf("popped %q, %v", item.Value, err)
		}
	})
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
