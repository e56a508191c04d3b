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
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// caller makes requests one after the other and records the replies.
type caller struct {
	t       *testing.T
	number  int
	nc      *nats.Conn
	client  *client.Client
	timeout *atomic.Int64 // nanoseconds to wait for an answer
	zero    time.Time     // of the clock of the history

	mu     sync.Mutex
	cancel context.CancelFunc // gives up the current request

	ops []proof.Operation // of this round
}

// newCaller connects. When the connection is lost, the current request is given up,
// since its answer most likely is lost too.
func newCaller(t *testing.T, number int, url string, timeout *atomic.Int64) *caller {
	c := &caller{t: t, number: number, timeout: timeout, zero: time.Now(), cancel: func() {}}
	nc, err := nats.Connect(url,
		nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { c.giveUp() }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // cut connections leave broken messages
	)
	if err != nil {
		t.Fatal(err)
	}
	c.nc, c.client = nc, client.New(nc)
	return c
}

func (c *caller) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
}

// request makes a request that ends when the connection is lost.
func (c *caller) request(timeout time.Duration, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	return send(ctx)
}

// do makes a request and records what became of it.
func (c *caller) do(op proof.Operation, padding int) *proof.Operation {
	op.Client = c.number
	m := message(&op, padding)
	op.Call = time.Since(c.zero).Nanoseconds()
	err := c.request(time.Duration(c.timeout.Load()), func(ctx context.Context) error { return c.ask(ctx, &op, m) })
	op.Return = time.Since(c.zero).Nanoseconds()
	op.Outcome = c.outcome(&op, err)
	if err != nil {
		op.Text = err.Error()
	}
	c.ops = append(c.ops, op)
	return &c.ops[len(c.ops)-1]
}

// outcome returns what the client promises about a request that ended with an error.
func (c *caller) outcome(op *proof.Operation, err error) proof.Outcome {
	var reply *client.Error
	replied := errors.As(err, &reply)
	if errors.Is(err, errTorn) || errors.Is(err, client.ErrBadReply) ||
		replied && reply.Code != subjects.CodeNotFound && reply.Code != subjects.CodeOverloaded && reply.Code != subjects.CodeUnavailable {
		c.t.Errorf("%s of %s: %v", op.Kind, op.Queue, err)
	}
	switch {
	case err == nil, errors.Is(err, errTorn):
		return proof.Done
	case errors.Is(err, client.ErrEmpty):
		return proof.Empty
	case replied && reply.Unknown:
		return proof.Unknown
	case errors.Is(err, client.ErrUnknownOutcome):
		return proof.Lost
	case replied, errors.Is(err, client.ErrNoBridge), op.Kind == proof.Push, pops(op.Kind):
		return proof.Refused // nothing has changed
	default: // a request that changes nothing has no unknown outcome
		return proof.Lost
	}
}

// message returns what the operation pushes.
func message(op *proof.Operation, padding int) (m client.Message) {
	if op.Kind == proof.Push {
		m.Value = pad(op.Value, padding)
		if padding%3 == 1 {
			m.Headers = nats.Header{"Value": {op.Value}}
		}
	}
	return m
}

// ask makes the request of an operation and records what the reply says.
func (c *caller) ask(ctx context.Context, op *proof.Operation, m client.Message) error {
	var ack client.PushAck
	var item *client.Item
	var err error
	if isFIFO(op.Queue) {
		q := c.client.Queue(op.Queue)
		switch op.Kind {
		case proof.Push:
			ack, err = q.EnqueueMsg(ctx, m)
		case proof.PopMin:
			item, err = q.Dequeue(ctx)
		case proof.PeekMin:
			item, err = q.Peek(ctx)
		case proof.Len:
			op.Len, err = q.Len(ctx)
		}
	} else {
		q := c.client.PriorityQueue(op.Queue)
		switch op.Kind {
		case proof.Push:
			ack, err = q.PushMsg(ctx, op.Priority, m)
		case proof.PopMin:
			item, err = q.PopMin(ctx)
		case proof.PopMax:
			item, err = q.PopMax(ctx)
		case proof.PeekMin:
			item, err = q.PeekMin(ctx)
		case proof.PeekMax:
			item, err = q.PeekMax(ctx)
		case proof.Len:
			op.Len, err = q.Len(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case item == nil:
		op.ID = ack.ID
		return nil
	}
	op.ID = item.ID
	op.Value, err = unpad(item)
	return err
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

// isFIFO reports whether a queue is a FIFO queue, which its name tells.
func isFIFO(queue string) bool { return strings.HasPrefix(queue, "fifo-") }

// broken reports whether an error means that something in the system is down at the
// moment.
func broken(op *proof.Operation) bool {
	return op.Outcome != proof.Done && op.Outcome != proof.Empty
}

const (
	// awaitAgain is the time between two checks whether the system is back.
	awaitAgain = 5 * time.Millisecond
	// patience is how long the system may be down.
	patience = 2 * time.Minute
)

// await waits until the system answers again.
func (c *caller) await() {
	again := time.NewTicker(awaitAgain)
	defer again.Stop()
	for begin := time.Now(); ; <-again.C {
		err := c.request(250*time.Millisecond, func(ctx context.Context) error {
			_, err := c.client.PriorityQueue("probe").Len(ctx)
			return err
		})
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			c.t.Errorf("the system does not come back: %v", err)
			return
		}
	}
}

// openPops counts the pops of unknown outcome of each queue.
type openPops struct {
	mu    sync.Mutex
	count map[string]int
}

func (o *openPops) add(queue string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count[queue]++
}

// many reports whether there are as many as one history may have.
func (o *openPops) many(queue string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[queue] >= proof.MaxOpen/2
}

// run makes the requests of one round.
func (c *caller) run(w *workload, open *openPops, meter *odometer) {
	for range requests {
		if c.t.Failed() {
			return
		}
		op, padding := w.next(c.number, open)
		done := c.do(op, padding)
		if pops(op.Kind) && (done.Outcome == proof.Unknown || done.Outcome == proof.Lost) {
			open.add(op.Queue)
		}
		meter.add()
		if broken(done) {
			c.await()
		}
	}
}

func pops(k proof.Kind) bool { return k == proof.PopMin || k == proof.PopMax }

// workload says what clients do, at random.
type workload struct {
	random *rand.Rand
	queues []string
	round  string // makes values of different rounds differ
	pushes int
}

// next returns the next operation of a client. Once many pops have no known outcome, it
// returns no more pops.
func (w *workload) next(client int, open *openPops) (op proof.Operation, padding int) {
	op.Queue = w.queues[w.random.IntN(len(w.queues))]
	switch x := w.random.IntN(100); {
	case x < 42:
		op.Kind = proof.Push
	case x < 60:
		op.Kind = proof.PopMin
	case x < 75:
		op.Kind = proof.PopMax
	case x < 83:
		op.Kind = proof.PeekMin
	case x < 91:
		op.Kind = proof.PeekMax
	default:
		op.Kind = proof.Len
	}
	if one := map[proof.Kind]proof.Kind{proof.PopMax: proof.PopMin, proof.PeekMax: proof.PeekMin}[op.Kind]; one != "" && isFIFO(op.Queue) {
		op.Kind = one
	}
	if pops(op.Kind) && open.many(op.Queue) {
		op.Kind = proof.Push
	}
	if op.Kind == proof.Push {
		w.pushes++
		op.Value = fmt.Sprintf("%s-%d-%d", w.round, client, w.pushes)
		if !isFIFO(op.Queue) {
			op.Priority = w.random.Int64N(4) - 1
		}
		padding = w.padding()
	}
	return op, padding
}

// padding returns a size: mostly small, sometimes more than fits into one key.
func (w *workload) padding() int {
	if w.random.IntN(50) == 0 {
		return 60_000 + w.random.IntN(200_000)
	}
	return w.random.IntN(100)
}
