package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A paused queue gives nothing to staged pops.
func TestPopperOfPausedQueue(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.fill(q, "a", "b")
	pause := func(until time.Time) { f.configure(q, func(s *fdbpq.Settings) { s.PauseUntil = until }) }
	pause(time.Now().Add(time.Hour))
	p := fdbpq.NewPopper(f.db, q)
	_, err := p.PopMin(f.ctx)
	wantError(t, err, fdbpq.ErrPaused)
	f.line(p, fdbpq.Front)
	f.serve(p)
	wantEqual(t, "length", f.length(q), int64(2))
	pause(time.Time{})
	item, err := p.PopMin(f.ctx)
	wantError(t, err, nil)
	wantEqual(t, "popped", string(item.Value), "a")
}

// Settings that cannot be read limit nothing, and fail only the operations that need them.
func TestCorruptSettingsAndPops(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	write(f, func(tx kv.Transaction) { tx.Set(f.configKey("jobs"), []byte("x")) })
	f.fill(q, "a", "b", "c")
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}
	long := lease
	long.Lease = time.Minute
	r := f.apply(lease, op(opPopMin, q), long, lease, op(opPopMin, q))
	for i, want := range []string{"", "a", "b", "", "c"} {
		if wantEqual(t, "value", string(r[i].Item.Value), want); want == "" {
			wantError(t, r[i].Err, fdbpq.ErrCorrupt)
		}
	}
}
