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
	r := newRecorder()
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q.Target, Lease: time.Minute}
	for n, op := range []fdbpq.Op{push(q, "item"), lease} {
		if err := d.Submit(&Request{Queue: q, Replier: r, Number: uint64(n), Received: time.Now()}, []fdbpq.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, d)
	<-r.told
	<-r.told
	if got := r.answers[1][0].Lease.Until; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("a lease of a minute, given at %v, ends at %v", now, got)
	}
}
