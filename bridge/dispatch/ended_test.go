package dispatch

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// endings is a list of what Options.Ended was called with, each with the number of dead letters
// that were stored by then.
type endings struct {
	mu   sync.Mutex
	told []string
}

// String returns the list.
func (e *endings) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprint(e.told)
}

func (e *endings) watch(t *testing.T, o *Options) {
	o.Ended = func(jobs []fdbpq.QueueJob) {
		dead, err := o.Keyspace.PriorityQueue("jobs-dead")
		must(t, err)
		read := func(r kv.Reader) ([]fdbpq.Result, error) {
			return fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: dead}})
		}
		results, err := kv.ReadTransact(t.Context(), o.DB, read)
		must(t, err)

		e.mu.Lock()
		defer e.mu.Unlock()
		e.told = append(e.told, fmt.Sprint(len(jobs), " of ", jobs[0].Queue.Name, ", stored: ",
			results[0].Len))
	}
}

// Jobs that end are told once their batch is durable: buried ones, by a request or because they are
// due. Others are not told.
func TestEnded(t *testing.T) {
	var told endings
	inBubble(t, func(o *Options) { told.watch(t, o) }, func(w *waiting) {
		w.configure(func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		w.push("a")
		w.push("b")
		w.submit(nil, w.lease())
		w.want("a lease", "4: a")
		w.submit(nil, w.lease())
		w.want("another", "5: b")
		same(t, "told at first", told.String(), "[]")

		w.submit(nil, w.settle(fdbpq.OpTerm, 0))
		w.want("terminated")
		same(t, "told", told.String(), "[1 of jobs, stored: 1]")

		time.Sleep(time.Hour)
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target})
		w.want("the other lease has run out")
		same(t, "told", told.String(), "[1 of jobs, stored: 1 1 of jobs, stored: 2]")
	})
}

// Jobs of a batch of unknown outcome are told once that is settled.
func TestEndedOfUnknownOutcome(t *testing.T) {
	var told endings
	var faults *faultkv.DB
	configure := func(o *Options) {
		faults = faultkv.New(o.DB, faultkv.Options{})
		o.DB = faults
		told.watch(t, o)
	}

	inBubble(t, configure, func(w *waiting) {
		w.push("a")
		w.submit(nil, w.lease())
		w.want("a lease", "2: a")

		faults.Next(faultkv.UnknownMade)
		w.submit(nil, w.settle(fdbpq.OpTerm, 0))
		for faults.Counts()[faultkv.UnknownMade] == 0 {
			time.Sleep(time.Nanosecond)
		}
		faults.SetOutage(true)
		time.Sleep(10 * time.Second)
		w.want("an outage before it is known", "3: failed 1, unknown")
		same(t, "told", told.String(), "[]")

		faults.SetOutage(false)
		time.Sleep(10 * time.Second)
		same(t, "told once it is settled", told.String(), "[1 of jobs, stored: 1]")
	})
}

// Requests that wait for items, and others that wait, share one limit.
func TestOthersThatWait(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxWaiters = 2 }, func(w *waiting) {
		must(t, w.d.AdmitWaiter())
		w.park(pop(w.q)) // 1

		err := w.d.Submit(&Request{Queue: w.q, Wait: w.minute()}, []fdbpq.Op{pop(w.q)})
		for what, err := range map[string]error{"a pop": err, "another": w.d.AdmitWaiter()} {
			if !errors.Is(err, ErrTooManyWaiters) {
				t.Errorf("%s beyond the limit: %v", what, err)
			}
		}

		same(t, "pops that wait", w.d.Waiters(), 1)
		w.d.ReleaseWaiter()
		w.park(pop(w.q)) // 2
		w.push("a")      // 3
		w.push("b")
		w.want("room for another pop", "1: a", "2: b")
	})
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
