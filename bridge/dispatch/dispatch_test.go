package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// run runs d until the test ends.
func run(t *testing.T, d *Dispatcher) (stop func()) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() { d.Run(context.WithoutCancel(t.Context())) })

	stop = sync.OnceFunc(func() {
		d.Close()
		running.Wait()
	})

	t.Cleanup(stop)
	return stop
}

func push(q *Queue, value string) fdbpq.Op {
	return fdbpq.Op{
		Kind:    fdbpq.OpPush,
		Queue:   q.Target,
		Message: fdbpq.Message{Value: []byte(value)},
	}
}

func pop(q *Queue) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpPop, Queue: q.Target} }

// A request owns its operations: each operation gets its own result, whatever else is
// in the batch, and a request is never split.
func TestRequestsOwnTheirSpans(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	d := newTest(t)
	d.options.MaxBatch = 7

	d.options.BatchDone = func(n int) {
		if n > 7+10 {
			const text = "seed %d: a batch of %d operations, want at most a request beyond MaxBatch"
			t.Errorf(text, seed, n)
		}
	}

	q := getQueue(t, d.queues, subjects.FIFO, "jobs")
	calls, want := make([]*call, 300), make([][]string, 300)

	for n := range calls {
		var ops []fdbpq.Op
		for i := range 1 + random.IntN(10) {
			want[n] = append(want[n], fmt.Sprint(n, ".", i))
			ops = append(ops, push(q, want[n][i]))
		}

		calls[n] = newCall()
		r := &Request{Queue: q, Replier: calls[n], Silent: true, Received: time.Now()}
		must(t, d.Submit(r, ops))
	}

	run(t, d)()

	batcher := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
	for n, c := range calls {
		pushed, err := c.wait(t.Context())
		if err != nil || len(pushed) != len(want[n]) {
			t.Fatalf("seed %d: request %d has %d results, want %d; %v",
				seed, n, len(pushed), len(want[n]), err)
		}

		for i, value := range want[n] {
			results, err := batcher.Apply(t.Context(), []fdbpq.Op{pop(q)})
			must(t, err)
			item, err := results[0].Item, results[0].Err
			if err != nil || string(item.Value) != value || item.ID != pushed[i].Item.ID {
				t.Fatalf("seed %d: item %q with id %s, %v: want %q with %s",
					seed, item.Value, item.ID, err, value, pushed[i].Item.ID)
			}
		}
	}
	if n, bytes := d.Pending(); n != 0 || bytes != 0 {
		t.Errorf("%d requests of %d bytes are still counted", n, bytes)
	}
}

// ended runs a Dispatcher whose context is over.
func (d *Dispatcher) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.Close()
	d.Run(ctx)
}

// Every accepted request is answered once, even if Run is cancelled, and a request that
// is not accepted gets an error.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	d := newTest(t)
	d.options.MaxPending, d.load.maxRequests = 100, 100
	q := getQueue(t, d.queues, subjects.Priority, "jobs")
	log := &eventLog{}

	for n := range uint64(200) {
		r := &Request{Queue: q, Replier: number(log, n), Silent: true, Received: time.Now()}
		err := d.Submit(r, []fdbpq.Op{push(q, "x")})

		if n < 100 {
			must(t, err)
			log.submitted(n)
		} else if !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}

	d.ended(t)
	log.checkEnds(t)

	for n, event := range log.take() {
		if want := fmt.Sprint(n, ": failed 1, unavailable"); event != want {
			t.Errorf("got %q, want %q", event, want)
		}
	}

	request := &Request{Queue: q, Replier: log}
	if err := d.Submit(request, []fdbpq.Op{push(q, "x")}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Submit after Close: %v", err)
	}

	if err := d.Requeue(request, []fdbpq.Op{push(q, "x")}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Requeue after Run: %v", err)
	}
	if n, _ := d.Pending(); n != 0 {
		t.Errorf("%d requests are still counted", n)
	}
}

// insistent is a Replier that requeues what fails.
type insistent struct {
	d *Dispatcher
	*eventLog
}

func (i insistent) Fail(q *Request, ops []fdbpq.Op, err error) {
	again := *q
	if i.d.Requeue(&again, ops) != nil {
		i.eventLog.Fail(q, ops, err)
	}
}

// A request that comes back each time it fails does not keep Run from ending.
func TestRequeueEnds(t *testing.T) {
	d, log := newTest(t), &eventLog{}
	q := getQueue(t, d.queues, subjects.Priority, "jobs")

	for n := range uint64(10) {
		log.submitted(n)
		r := &Request{Queue: q, Replier: number(insistent{d, log}, n)}
		must(t, d.Requeue(r, []fdbpq.Op{push(q, "x")}))
	}

	d.ended(t)
	log.checkEnds(t)
}

// A closed lane continues until its last batch is answered, because that may have an
// unknown outcome, which only run settles.
func TestLaneOutlivesItsLastBatch(t *testing.T) {
	l := newTest(t).lanes[0]
	synctest.Test(t, func(t *testing.T) {
		l.mu.newest = &batch{}
		l.close()
		goesOn := make(chan bool, 1)
		go func() { goesOn <- l.awaitWork(t.Context()) }()
		synctest.Wait()

		if len(goesOn) > 0 {
			t.Fatal("the lane ended with a batch in flight")
		}

		l.setUnsettled(nil)
		if !<-goesOn {
			t.Error("the lane ended with a batch of unknown outcome")
		}

		l.takeUnsettled()
		go func() { goesOn <- l.awaitWork(t.Context()) }()
		synctest.Wait()
		l.finishBatch(l.mu.newest)

		if <-goesOn {
			t.Error("the lane still runs with nothing to do")
		}
	})
}

// A lane that is never empty does not keep memory for every request that ever waited.
func TestLaneDropsTakenRequests(t *testing.T) {
	d := newTest(t)
	l, q := d.lanes[0], getQueue(t, d.queues, subjects.Priority, "jobs")

	add := func(n int) {
		for range n {
			r := &Request{Queue: q, Silent: true, Received: time.Now()}
			must(t, d.Submit(r, []fdbpq.Op{{Kind: fdbpq.OpPush}}))
		}
	}

	const waiting = 2000
	add(waiting)

	for range 50 {
		add(l.d.options.MaxBatch)
		l.finishBatch(l.takeBatch(t.Context()))
	}

	w := &l.mu.backlog
	if w.len() != waiting || w.operations != waiting {
		t.Errorf("%d requests wait with %d operations, want %d", w.len(), w.operations, waiting)
	}
	if requests, ops := cap(w.requests.items), cap(w.ops.items); max(requests, ops) > 10*waiting {
		t.Errorf("there is room for %d requests and %d operations", requests, ops)
	}
}

// Do returns the results of its operations, or why none was done.
func TestDo(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		ops := []fdbpq.Op{push(w.q, "a"), {Kind: fdbpq.OpPop}, {Kind: fdbpq.OpPop}}
		results, err := w.d.Do(w.t.Context(), w.q, ops)

		if err != nil || outcome(results[1:]) != "a empty" {
			t.Errorf("a push and two pops: %v, %v", results, err)
		}
	})

	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		faults.SetOutage(true)
		results, err := w.d.Do(w.t.Context(), w.q, []fdbpq.Op{push(w.q, "a")})

		if short(err) != "unavailable" || results != nil {
			t.Errorf("during an outage: %v, %v", results, err)
		}

		faults.SetOutage(false)
		w.stop()
		_, err = w.d.Do(w.t.Context(), w.q, []fdbpq.Op{push(w.q, "a")})

		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A caller of Do that leaves loses no item: it goes back.
func TestDoWithoutItsCaller(t *testing.T) {
	var d *Dispatcher
	withLater(t, func(o *Options) { o.RequeueLate = givesBack(&d) },
		func(w *waiting, durable chan struct{}) {
			d = w.d
			w.submit(nil, push(w.q, "a"))
			synctest.Wait()
			durable <- struct{}{}
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Millisecond)
			defer cancel()
			time.AfterFunc(time.Second, func() { close(durable) })

			began := time.Now()
			_, err := w.d.Do(ctx, w.q, []fdbpq.Op{pop(w.q)})

			took := time.Since(began)
			late := !errors.Is(err, context.DeadlineExceeded) || took > time.Millisecond
			if !errors.Is(err, ErrUnknownOutcome) || late {
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
		results, err := c.wait(w.t.Context())

		if err != nil || outcome(results) != "a empty" {
			t.Errorf("%v, %v", results, err)
		}
	})
}
