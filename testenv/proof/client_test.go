package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
)

// line is a connection of clients. When it breaks, the requests under way are given up,
// since their answers most likely are lost too.
type line struct {
	nc       *nats.Conn
	awaiting sync.Mutex // held by the client that asks whether the system is back

	mu     sync.Mutex
	ctx    context.Context // ends when the connection breaks
	cancel context.CancelFunc
}

func newLine(t *testing.T, url string) *line {
	l := &line{}
	l.ctx, l.cancel = context.WithCancel(context.Background())

	nc, err := nats.Connect(
		url,
		nats.Timeout(patience),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(5*time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { l.giveUp() }),
		nats.SyncQueueLen(1024), // by default each pop of several items allocates half a megabyte
		// Cut connections leave broken messages.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	)
	must(t, err)
	l.nc = nc
	t.Cleanup(l.close)

	return l
}

func (l *line) close() {
	l.nc.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
}

func (l *line) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.ctx, l.cancel = context.WithCancel(context.Background())
}

func (l *line) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// caller makes requests one after the other and records the replies.
type caller struct {
	t       *testing.T
	number  int
	line    *line
	client  *client.Client
	timeout *atomic.Int64 // nanoseconds to wait for an answer
	zero    time.Time     // of the clock of the history
	tight   bool          // see limits: the caller has to know which batches were cut off
	calm    bool          // nothing breaks
	mayFail bool          // the store may be unreadable
	first   time.Duration // how long insist waits at first

	ops   []books.Operation // of this round
	grips []*grip           // leases of this round, most of them still good
	fresh []*grip           // those of the last operation
}

func (r *rig) newCaller(number int, l *line) *caller {
	return &caller{t: r.t, number: number, line: l, client: client.New(l.nc),
		timeout: &r.timeout, zero: r.zero, mayFail: r.unreadable, first: 250 * time.Millisecond}
}

// request makes a request that ends when the connection is lost.
func (c *caller) request(timeout time.Duration, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.line.context(), timeout)
	defer cancel()
	return send(ctx)
}

// do makes a request and records what became of it.
func (b *burster) do(op books.Operation, padding int) *books.Operation {
	if op.JetStream && op.Kind.Takes() && op.Fence > 0 {
		requests := ackAndPull(b.grip(&op), op)
		b.sendAll(requests, nil, nothing, nothing)
		b.drop(&op)
		b.ops = append(b.ops, requests[0].op, requests[1].op)

		return &b.ops[len(b.ops)-1]
	}

	b.send(&op, padding)
	b.ops = append(b.ops, op)
	return &b.ops[len(b.ops)-1]
}

// send makes a request and enters what became of it.
func (b *burster) send(op *books.Operation, padding int) {
	request := []pending{b.useOfGrips(*op)}
	b.sendAll(request, func(string) int { return padding }, nothing, nothing)
	*op = request[0].op
}

func nothing(*pending) {}

// outcome returns what the client promises about a request that ended with an error.
func (c *caller) outcome(op *books.Operation, err error) books.Outcome {
	var reply *client.Error
	replied := errors.As(err, &reply)
	if errors.Is(err, errTorn) || errors.Is(err, client.ErrBadReply) ||
		replied && !c.expected(op, reply.Code) {
		c.t.Errorf("%s of %s: %v", op.Kind, op.Queue, err)
	}

	switch {
	case err == nil, errors.Is(err, errTorn):
		return books.Done
	case errors.Is(err, errDuplicate):
		return books.Duplicate
	case errors.Is(err, client.ErrEmpty), replied && hasUsedUp(op, reply.Code):
		return books.Empty
	case errors.Is(err, client.ErrTooLarge) && op.Kind.Takes():
		return books.TooLarge
	case errors.Is(err, client.ErrLeaseLost) && op.Kind != books.Push:
		return books.Stale
	case replied && (reply.Unknown || op.Kind.Nexts() &&
		(reply.Code == subjects.CodeUnavailable || reply.Code == subjects.CodeInternal)):
		return books.Unknown
	case errors.Is(err, client.ErrUnknownOutcome):
		return books.Lost
	case replied, errors.Is(err, client.ErrNoBridge), !op.Kind.Peeks() && op.Kind != books.Len:
		return books.Refused // nothing has changed
	default: // a request that changes nothing has no unknown outcome
		return books.Lost
	}
}

// expected reports whether a request may get that code while the system is broken.
func (c *caller) expected(op *books.Operation, code subjects.Code) bool {
	switch code {
	case subjects.CodeTooLarge: // what finds no room is tried again
		return op.MaxBytes > 0
	case subjects.CodeInternal:
		return c.mayFail
	case subjects.CodeNotFound,
		subjects.CodeConflict,
		subjects.CodeOverloaded,
		subjects.CodeUnavailable:
		return true
	}
	return false
}

// message returns what the operation pushes.
func message(op *books.Operation, padding int) (m client.Message) {
	if op.Kind == books.Push {
		m.Value = pad(op.Value, padding)
		op.Size = int64(len(m.Value))

		if padding%3 == 1 {
			m.Headers = nats.Header{"Value": {op.Value}}
		}

		m = kept(grouped(delayed(m, op), op.Queue, op.Value), op.Queue)
		if op.TTL > 0 {
			m = m.With(client.TTL(time.Duration(op.TTL)))
		}
	}
	return m
}

// delayed returns a message that is held back as the operation says.
func delayed(m client.Message, op *books.Operation) client.Message {
	if op.Delay > 0 {
		m = m.With(client.Delay(time.Duration(op.Delay)))
	}
	return m
}

// pad makes a value of more bytes.
func pad(value string, n int) []byte {
	return []byte(value + " " + strconv.Itoa(n) + " " + strings.Repeat("x", n))
}

// errTorn: a value is not as it was pushed.
var errTorn = errors.New("torn value")

// unpad returns the value, if every byte of it is there.
func unpad(item *client.Item) (value string, err error) {
	fields := strings.SplitN(string(item.Value), " ", 3)
	if len(fields) != 3 {
		return "", fmt.Errorf("%w %.100q", errTorn, item.Value)
	}

	n, err := strconv.Atoi(fields[1])
	if err != nil || len(fields[2]) != n {
		return fields[0], fmt.Errorf("%w %.100q of %d bytes", errTorn, item.Value, len(item.Value))
	}

	if header := item.Headers.Get("Value"); n%3 == 1 && header != fields[0] {
		return fields[0], fmt.Errorf("%w %.100q with the header %q", errTorn, item.Value, header)
	}

	return strings.Clone(fields[0]), nil // without the padding
}

// queueOf returns the queue with that name, which tells its kind.
func queueOf(c *client.Client, name string) *client.Queue {
	if isFIFO(name) {
		return c.FIFOQueue(name)
	}
	return c.PriorityQueue(name)
}

// isFIFO reports whether a queue is a FIFO queue, which its name tells.
func isFIFO(queue string) bool { return strings.HasPrefix(queue, "fifo-") }

// broken reports whether an error means that something in the system is down at the
// moment.
func broken(op *books.Operation) bool {
	return op.Outcome != books.Done && op.Outcome != books.Empty && op.Outcome != books.Stale &&
		op.Outcome != books.Duplicate &&
		op.Outcome != books.TooLarge
}

const (
	// awaitAgain is the time between two checks whether the system is back.
	awaitAgain = 5 * time.Millisecond
	// patience is how long the system may be down.
	patience = 2 * time.Minute
)

// await waits until the system answers again.
func (c *caller) await() {
	c.insist("the system does not come back", func(ctx context.Context) error {
		_, err := c.client.PriorityQueue("probe").Len(ctx)
		return err
	})
}

// insist makes a request until it succeeds.
func (c *caller) insist(what string, do func(ctx context.Context) error) {
	again := time.NewTicker(awaitAgain)
	defer again.Stop()
	timeout := c.first // more each time, in case the machine is slow

	for begin := time.Now(); ; <-again.C {
		err := c.request(timeout, do)
		timeout = min(2*timeout, patience/10)

		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			c.t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// run makes the requests of one round.
func (b *burster) run(w *workload, open *openPops, meter *odometer) {
	c := b.caller
	var early []books.Operation
	for n := 0; n < requests; n++ {
		if c.t.Failed() {
			return
		}

		var op books.Operation
		padding := 0
		if len(early) > 0 {
			op, early = early[0], early[1:]
		} else {
			if c.tight && w.random.IntN(crowdEvery) == 0 {
				n += b.crowd(w, open, meter)
			}
			op, padding = w.next(c, open)
		}
		w.decorate(&op, c.number, []string{op.Queue}, func() string { return w.newValue(c) })
		done := b.do(op, padding)
		c.note(w, done)
		open.add(op.Queue, done.Untold())
		meter.add()

		if broken(done) {
			c.await()
		} else if len(early) == 0 {
			early = w.askEarly(c, done, open)
		}
	}
}

// askEarly waits until just before the delay of an operation is over, as far as clocks tell, unless
// that is too late by now, and returns requests to which its item must not be there.
func (w *workload) askEarly(
	c *caller, op *books.Operation, open *openPops,
) (requests []books.Operation) {
	wait := time.Until(c.zero.Add(time.Duration(op.Call+op.Delay) - w.early))
	if op.Delay == 0 || op.Outcome != books.Done || wait < 0 || open.many(op.Queue) {
		return nil
	}

	<-time.After(wait)
	if books.IsTraced(op.Queue) {
		return []books.Operation{{
			Kind: books.LeaseMin, Queue: op.Queue, Wait: int64(fdbpq.MinLease),
		}}
	}
	return []books.Operation{
		{Kind: books.Len, Queue: op.Queue}, {Kind: books.PopMin, Queue: op.Queue},
	}
}

// workload says what clients do, at random.
type workload struct {
	random *rand.Rand
	queues []string
	tight  bool // see limits
	// early is how long before the end of a delay an item is certainly not there yet, and some
	// time for a request.
	early  time.Duration
	round  string // makes values of different rounds differ
	pushes int

	results int // so far: see decorate
}

// shares says how often clients do what, in percent. All else is use of tokens.
var shares = []struct {
	kind  books.Kind
	share int
}{
	{books.Push, 34},
	{books.PopMin, 9},
	{books.PopMax, 6},
	{books.PeekMin, 5},
	{books.PeekMax, 5},
	{books.Len, 7},
	{books.LeaseMin, 11},
	{books.LeaseMax, 6},
}

// next returns the next operation of a client. Once many pops have no known outcome, it
// returns no more pops and leases.
func (w *workload) next(c *caller, open *openPops) (op books.Operation, padding int) {
	op.Queue = w.queues[w.random.IntN(len(w.queues))]
	x := w.random.IntN(100)

	for _, s := range shares {
		if x -= s.share; x < 0 {
			op.Kind = s.kind
			break
		}
	}

	if op.Kind == "" {
		if len(c.grips) > 0 {
			if op, ok := w.nextUse(c, open); ok {
				return op, 0
			}
		}
		op.Kind = books.LeaseMin
	}

	if books.IsTraced(op.Queue) {
		if ask, ok := w.ask(c, op.Queue); ok && (op.Kind == books.Len || op.Kind.Peeks()) {
			return ask, 0
		}
		op.Kind = leased(op.Kind)
	}

	if isFIFO(op.Queue) {
		op.Kind = fromFront(op.Kind)
	}

	if op.Kind.Takes() && open.many(op.Queue) {
		op.Kind = books.Push
	}

	w.fill(&op)
	w.pullSome(&op)

	if op.Kind == books.Push {
		w.fillPush(c, &op)
		padding = w.padding()
	}

	return op, padding
}

// fillPush sets what a push of a client pushes.
func (w *workload) fillPush(c *caller, op *books.Operation) {
	op.Value = w.newValue(c)
	op.Group = groupOf(op.Queue, op.Value)

	if !isFIFO(op.Queue) {
		op.Priority = w.random.Int64N(4) - 1
	}

	if w.random.IntN(5) == 0 {
		op.Delay = w.random.Int64N(int64(maxDelay))
	}

	if w.random.IntN(5) == 0 && !books.IsTraced(op.Queue) {
		op.TTL = int64(fdbpq.MinTTL) + w.random.Int64N(int64(maxDelay))
	}
}
