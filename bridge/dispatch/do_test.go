package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// Do returns the results of its operations, or why none was done.
func TestDo(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		results, err := w.d.Do(w.t.Context(), w.q, []fdbpq.Op{push(w.q, "a"), {Kind: fdbpq.OpPop}, {Kind: fdbpq.OpPop}})
		if err != nil || outcome(results[1:2]) != "a" || !errors.Is(results[2].Err, fdbpq.ErrEmpty) {
			t.Errorf("a push and two pops: %v, %v", results, err)
		}
	})

	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		faults.SetOutage(true)
		if results, err := w.d.Do(w.t.Context(), w.q, []fdbpq.Op{push(w.q, "a")}); short(err) != "unavailable" || results != nil {
			t.Errorf("during an outage: %v, %v", results, err)
		}
		faults.SetOutage(false)
		w.stop()
		if _, err := w.d.Do(w.t.Context(), w.q, []fdbpq.Op{push(w.q, "a")}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A caller of Do that leaves loses no item: it goes back.
func TestDoWithoutItsCaller(t *testing.T) {
	var db *laterDB
	var d *Dispatcher
	inBubble(t, func(o *Options) {
		db = &laterDB{memkv.New(memkv.Options{}), make(chan struct{})}
		o.DB, o.RequeueLate = db, givesBack(&d)
	}, func(w *waiting) {
		d = w.d
		w.submit(nil, push(w.q, "a"))
		synctest.Wait()
		db.durable <- struct{}{}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Millisecond)
		defer cancel()
		time.AfterFunc(time.Second, func() { close(db.durable) })

		began := time.Now()
		_, err := w.d.Do(ctx, w.q, []fdbpq.Op{pop(w.q)})
		took := time.Since(began)
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) || took > time.Millisecond {
			t.Errorf("%v after %v, want an unknown outcome after a millisecond", err, took)
		}
		time.Sleep(2 * time.Second)
		w.submit(nil, pop(w.q))
		w.want("afterwards", "2: a")
	})
}

// A request that waits and whose Replier takes no parts ends with what it gets first.
func TestWaitWithoutParts(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		c := newCall()
		wait := &Wait{Until: time.Now().Add(time.Minute), Heartbeat: time.Second}
		r := &Request{Queue: w.q, Replier: c, Received: time.Now(), Wait: wait}
		must(t, w.d.Submit(r, w.pops(fdbpq.Front, 2)))
		time.Sleep(10 * time.Second)
		w.push("a")
		if results, err := c.wait(w.t.Context()); err != nil || outcome(results) != "a empty" {
			t.Errorf("%v, %v", results, err)
		}
	})
}
