package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// waiting is a Dispatcher on a store that counts transactions. Within a synctest bubble,
// time passes only while everybody waits.
type waiting struct {
	t     *testing.T
	d     *Dispatcher
	store *countkv.DB
	q     *Queue
	log   *eventLog
	stop  func() // Close, then wait for Run
	n     uint64
}

// inBubble runs a test on an empty store, with a clock of its own. configure may change the
// options.
func inBubble(t *testing.T, configure func(*Options), test func(w *waiting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, memkv.New(memkv.Options{}))
		if configure != nil {
			configure(&o)
		}

		store := countkv.New(seeing{o.DB})
		o.DB = store
		t.Cleanup(func() { closeDB(t, store) })
		w := &waiting{t: t, d: New(o), store: store, log: &eventLog{}}
		watchMoves(t, w.d)
		w.q = getQueue(t, w.d.queues, subjects.Priority, "jobs")
		w.stop = run(t, w.d)
		test(w)
		w.stop()
		synctest.Wait()

		if n, _ := w.d.Pending(); n != 0 || w.d.Waiters() != 0 || w.q.Waiters() != 0 {
			t.Errorf("in the end %d requests are pending, %d wait, %d of them for the queue", n,
				w.d.Waiters(), w.q.Waiters())
		}

		for _, l := range w.d.lanes {
			if len(l.mu.lines) > 0 || len(l.timers.alarms) > 0 {
				t.Errorf("in the end there are %d lines and %d alarms", len(l.mu.lines),
					len(l.timers.alarms))
			}
		}
		w.log.checkEnds(t)
	})
}

// seeing is a store without blind transactions. A batch that pops what it has pushed starts over
// if it is blind, so the number of transactions would depend on the batches before.
type seeing struct{ kv.Database }

func (s seeing) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	o.Blind = false
	return s.Database.Begin(ctx, o)
}

// submit submits a request, which must be accepted, and returns its number.
func (w *waiting) submit(wait *Wait, ops ...fdbpq.Op) uint64 {
	w.t.Helper()
	w.n++

	r := &Request{
		Queue:    w.q,
		Replier:  number(w.log, w.n),
		Received: time.Now(),
		Size:     100,
		Wait:     wait,
	}
	must(w.t, w.d.Submit(r, ops))
	w.log.submitted(w.n)

	return w.n
}

// inOneBatch runs a function whose calls of add all come into the next batch.
func (w *waiting) inOneBatch(run func()) {
	l := w.d.lanes[0]
	l.mu.Lock()
	run()
	l.mu.changed.Signal()
	l.mu.Unlock()
	synctest.Wait()
}

// add is submit within inOneBatch.
func (w *waiting) add(q *Queue, wait *Wait, ops ...fdbpq.Op) {
	w.n++
	w.log.submitted(w.n)
	w.d.load.requests.Add(1)

	if wait != nil {
		w.d.waiters.Add(1)
	}

	l := w.d.lanes[0]
	l.pushLocked(&l.mu.backlog,
		&Request{Queue: q, Replier: number(w.log, w.n), Received: time.Now(), Wait: wait}, ops)
}

// park submits a pop that waits for a minute, and waits until it has found nothing.
func (w *waiting) park(ops ...fdbpq.Op) uint64 {
	w.t.Helper()
	n := w.submit(w.minute(), ops...)
	synctest.Wait()
	return n
}

// minute lets a request wait for a minute.
func (w *waiting) minute() *Wait { return &Wait{Until: time.Now().Add(time.Minute)} }

// push pushes a value, and waits until nothing happens any more.
func (w *waiting) push(value string) {
	w.t.Helper()
	w.submit(nil, push(w.q, value))
	synctest.Wait()
}

// pushElsewhere pushes as another program does.
func (w *waiting) pushElsewhere(values ...string) {
	w.t.Helper()
	var ops []fdbpq.Op

	for _, value := range values {
		ops = append(ops, push(w.q, value))
	}

	w.applyElsewhere(ops...)
}

// applyElsewhere runs operations as another program does.
func (w *waiting) applyElsewhere(ops ...fdbpq.Op) {
	w.t.Helper()
	_, err := fdbpq.NewBatcher(w.d.options.DB, w.d.options.Keyspace).Apply(w.t.Context(), ops)
	must(w.t, err)
}

// pops returns the operations of a request for n items from an end.
func (w *waiting) pops(end fdbpq.End, n int) []fdbpq.Op {
	return pops(fdbpq.Op{Kind: fdbpq.OpPop, Queue: w.q.Target, End: end}, n)
}

// pops returns the operations of a request that pops or leases n times.
func pops(op fdbpq.Op, n int) (ops []fdbpq.Op) {
	for range n {
		ops = append(ops, op)
		op.Follows = true
	}
	return ops
}

// want waits until nothing happens any more, and compares what requests have been told since the
// last call. An event is the number of the request, counted from 1, and its items, or what short
// makes of its error: "2: a", "4: empty". "part" is before items after which the request goes on.
// Pushes that succeed have no event.
func (w *waiting) want(what string, events ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.log.take(); !slices.Equal(got, events) {
		w.t.Errorf("%s: got %q, want %q", what, got, events)
	}
}

// takeTransactions returns how many transactions began since the last call.
func (w *waiting) takeTransactions() int { return len(w.store.Take()) }

func (w *waiting) wantTransactions(want int, when string) {
	w.t.Helper()
	if n := w.takeTransactions(); n != want {
		w.t.Errorf("%d transactions, want %d %s", n, want, when)
	}
}

// eventLog is a Replier that records calls in order.
type eventLog struct {
	mu struct {
		sync.Mutex
		events  []string
		open    map[uint64]bool
		ends    map[uint64]int
		tokens  []fdbpq.Token
		refuses uint64                     // whose Deliver returns false
		notify  func(n uint64, ended bool) // called with the lock held
	}
	told func(r *Request) // called by Deliver and Heartbeat; nil does nothing
}

func (e *eventLog) submitted(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.mu.open == nil {
		e.mu.open = map[uint64]bool{}
	}

	e.mu.open[n] = true
}

func (e *eventLog) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.mu.events
	e.mu.events = nil

	return events
}

func (e *eventLog) note(r *Request, ended bool, text string, results []fdbpq.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.mu.ends == nil {
		e.mu.ends = map[uint64]int{}
	}

	for i := range results {
		if results[i].Err == nil && results[i].Lease.Token.Fence > 0 {
			e.mu.tokens = append(e.mu.tokens, results[i].Lease.Token)
		}
	}

	if ended {
		e.mu.ends[numberOf(r)]++
	} else if e.mu.ends[numberOf(r)] > 0 {
		text += " after its end"
	}

	if text != "" {
		e.mu.events = append(e.mu.events, fmt.Sprint(numberOf(r), ": ", text))
	}

	if e.mu.notify != nil {
		e.mu.notify(numberOf(r), ended)
	}
}

// checkEnds checks that each request has had one last call.
func (e *eventLog) checkEnds(t *testing.T) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for n := range e.mu.open {
		if e.mu.ends[n] != 1 {
			t.Errorf("request %d has ended %d times", n, e.mu.ends[n])
		}
	}
}

func (e *eventLog) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	if len(ops) != len(results) {
		panic(fmt.Sprintf("%d operations, %d results", len(ops), len(results)))
	}

	text := ""
	if ops[0].Kind != fdbpq.OpPush || results[0].Err != nil {
		text = outcome(results)
	}

	e.note(r, true, text, results)
}

func (e *eventLog) Deliver(r *Request, ops []fdbpq.Op, results []fdbpq.Result) bool {
	refuses := e.mu.refuses == numberOf(r)
	e.note(r, refuses, "part "+outcome(results), results)

	if e.told != nil {
		e.told(r)
	}

	return !refuses
}

func (e *eventLog) Heartbeat(r *Request, wanted int) {
	e.note(r, false, fmt.Sprint("heartbeat ", wanted), nil)
	if e.told != nil {
		e.told(r)
	}
}

func (e *eventLog) Fail(r *Request, ops []fdbpq.Op, err error) {
	e.note(r, true, fmt.Sprintf("failed %d, %s", len(ops), short(err)), nil)
}

// outcome is results as text: the items, and the error of the first that got none.
func outcome(results []fdbpq.Result) string {
	var list []string
	for i := range results {
		if results[i].Err != nil {
			list = append(list, short(results[i].Err))
			break
		}
		list = append(list, string(results[i].Item.Value))
	}

	return strings.Join(list, " ")
}

// short returns one or two words for an error.
func short(err error) string {
	if waited := (LimitError{}); errors.As(err, &waited) {
		return "waited"
	}

	for _, known := range []struct {
		err  error
		text string
	}{
		{fdbpq.ErrPaused, "paused"},
		{fdbpq.ErrRate, "rate"},
		{fdbpq.ErrGroupLimits, "at a limit"},
		{fdbpq.ErrMaxLeased, "leased"},
		{fdbpq.ErrFull, "full"},
		{fdbpq.ErrEmpty, "empty"},
		{fdbpq.ErrMaxBytes, "too large"},
		{fdbpq.ErrLeaseLost, "lost"},
		{ErrUnknownOutcome, "unknown"},
		{ErrUnavailable, "unavailable"},
		{kv.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}

	return err.Error()
}

// String returns the name of the state.
func (s waiterState) String() string {
	return [...]string{
		"new", "acking", "first", "parked", "trying", "late", "late and trying", "left",
	}[s]
}

// String returns the name of the state.
func (s lineState) String() string {
	return [...]string{"quiet", "ready", "reserved", "trying", "gone"}[s]
}
