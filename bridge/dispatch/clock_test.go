package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Leases end by the clock in the options.
func TestClock(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	o := newTest(t).options
	o.Now = func() time.Time { return now }
	d := New(o)
	q := getQueue(t, d.queues, subjects.Priority, "jobs")
	run(t, d)
	results, err := d.Do(t.Context(), q, []fdbpq.Op{push(q, "item"), {Kind: fdbpq.OpLease, Lease: time.Minute}})
	if err != nil || results[1].Err != nil {
		t.Fatal(err, results)
	}
	if got := results[1].Lease.Until; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("a lease of a minute, given at %v, ends at %v", now, got)
	}
}
