package fdbpq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// While a queue is paused, pops and leases find nothing, and say until when. All else goes on. It ends
// at its time, to the microsecond, or when the setting does.
func TestPause(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.UnixMicro(time.Now().UnixMicro()).UTC()
		until := now.Add(time.Hour)
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			f.apply(opPush(q, 1, "a"), opPush(q, 1, "b"), opPush(q, 1, "c"))
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
			token := f.applyAt(now, lease)[0].Lease.Token
			f.configure(q, func(s *fdbpq.Settings) { s.PauseUntil = until.Add(999) })

			paused := func(r fdbpq.Result) {
				f.Helper()
				if !errors.Is(r.Err, fdbpq.ErrPaused) || !errors.Is(r.Err, fdbpq.ErrEmpty) ||
					!strings.Contains(r.Err.Error(), "paused until "+until.Format(time.RFC3339Nano)) {
					f.Errorf("%v: want a pause until %v", r.Err, until)
				}
			}
			last := until.Add(-time.Microsecond)
			next := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Follows: true}
			r := f.applyAt(now, op(opPopMin, q), lease, op(waiting(opPopMin), q), op(opPeekMin, q), opPush(q, 1, "d"), op(opLen, q),
				fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}, next)
			for _, i := range []int{0, 1, 2, 7} {
				paused(r[i])
			}
			if !r[2].NextDue.Equal(until) {
				f.Errorf("a pop that waits is told of %v, want %v", r[2].NextDue, until)
			}
			for _, i := range []int{3, 4, 5, 6} {
				wantError(f.T, r[i].Err, nil)
			}
			paused(f.applyAt(last, op(opPopMin, q))[0])
			wantList(f.T, "at its end", summary([]fdbpq.Op{opPopMin}, f.applyAt(until, op(opPopMin, q))), "b")
			f.configure(q, func(s *fdbpq.Settings) { s.PauseUntil = time.Time{} })
			wantList(f.T, "lifted", summary([]fdbpq.Op{opPopMin}, f.applyAt(now, op(opPopMin, q))), "c")
		}
	})
}

// Settings that cannot be read limit nothing.
func TestLimitsThatCannotBeRead(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	write(f, func(tx kv.Transaction) { tx.Set(f.configKey("jobs"), []byte("x")) })
	f.push(q, 1, "a")
	wantList(t, "popped", f.values(q.PopMin), "a")
}
