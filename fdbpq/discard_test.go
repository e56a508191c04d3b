package fdbpq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func discardOld(items, bytes int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxItems, s.MaxBytes, s.Discard = items, bytes, fdbpq.DiscardOld }
}

// removed runs a batch, and returns what it removed.
func (f *fixture) removed(ops ...fdbpq.Op) fdbpq.Removed {
	f.Helper()
	before := f.batcher.Removed()
	for _, r := range f.apply(ops...) {
		wantError(f.T, r.Err, nil)
	}
	n := f.batcher.Removed()
	n.Add(fdbpq.Removed{Expired: -before.Expired, Discarded: -before.Discarded, Dead: -before.Dead})
	return n
}

// A queue that has more items than one transaction counts is counted by the pushes after max_bytes is set, and is
// right while that goes on. In a caller's transaction, pushes have to be tried again.
func TestMaxBytesOfLargeQueue(t *testing.T) {
	const many = 5000
	for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
		f := onMem(t)
		q := fdbpq.Target(f.fifoQueue("jobs"))
		if end == fdbpq.Back {
			q = f.queue("jobs")
		}
		var ops []fdbpq.Op
		for i := range many {
			op := opPush(q, int64(i%7), "12345")
			if i%50 == 0 {
				op.Message.Headers = map[string][]string{"A": {"b"}}
			}
			ops = append(ops, op)
		}
		f.apply(ops...)
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: end, Lease: time.Hour}
		early := f.apply(lease, lease, lease)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 20 })
		f.check()
		leased := f.apply(lease, lease)
		f.apply(op(opPopMin, q), fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: early[0].Lease.Token},
			fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: leased[0].Lease.Token})
		f.check()
		wantError(t, f.applyAt(time.Now(), opPush(q, 1, "x"))[0].Err, fdbpq.ErrNoRoom)
		f.check()
		last, _ := f.until(opPush(q, 1, "x"))
		wantError(t, last.Err, nil)
		f.check()
		// Set together with a push, it has to be counted first.
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		set := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxBytes = 1 << 20 }}
		r := f.apply(set, opPush(q, 1, "x"))
		wantError(t, r[0].Err, nil)
		wantError(t, r[1].Err, fdbpq.ErrNoRoom)
		f.check()
		// Lowered, with more than one transaction discards.
		f.configure(q, discardOld(10, 0))
		before := f.batcher.Removed().Discarded
		f.batcher.LimitRoom(1_000_000)
		var tries int
		r[0], tries = f.until(opPush(q, -1, "x"))
		wantError(t, r[0].Err, nil)
		wantEqual(t, "discarded", f.batcher.Removed().Discarded-before > many-20, true)
		wantEqual(t, "several transactions discard", tries > 1, true)
		info := f.infoOf(q, 0)
		wantEqual(t, "left", info.Ready+info.Leased+info.Delayed, int64(10))
		f.check()
	}
}

// An item that cannot be read is not discarded.
func TestDiscardCorrupt(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	f.configure(q, discardOld(1, 0))
	late := opPush(q, 9, "a")
	late.Delay = time.Hour
	f.apply(late)
	for _, pair := range f.stored(f.priority) {
		if strings.Contains(string(pair.Key), "\x02h\x00") && len(pair.Value) > 0 {
			write(f, func(tx kv.Transaction) { tx.Set(pair.Key, []byte("x")) })
		}
	}
	if err := f.apply(opPush(q, 1, "b"))[0].Err; !errors.Is(err, fdbpq.ErrCorrupt) {
		t.Error(err)
	}
}
