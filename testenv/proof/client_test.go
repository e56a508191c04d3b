package proof_test

import (
	"context"
	"encoding/json"
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

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// client makes requests one after the other and notes what it was told.
type client struct {
	t       *testing.T
	number  int
	nc      *nats.Conn
	timeout *atomic.Int64 // nanoseconds to wait for an answer
	zero    time.Time     // of the clock of the history

	mu     sync.Mutex
	cancel context.CancelFunc // gives up the request under way

	ops []proof.Operation // of this round
}

// newClient connects. A request under way is given up when the connection is
// lost, since its answer most likely is too.
func newClient(t *testing.T, number int, url string, timeout *atomic.Int64) *client {
	c := &client{t: t, number: number, timeout: timeout, zero: time.Now(), cancel: func() {}}
	nc, err := nats.Connect(url,
		nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { c.giveUp() }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // cut connections leave broken messages
	)
	if err != nil {
		t.Fatal(err)
	}
	c.nc = nc
	return c
}

func (c *client) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
}

func (c *client) request(m *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	return c.nc.RequestMsgWithContext(ctx, m)
}

// do makes a request and notes what became of it.
func (c *client) do(op proof.Operation, padding int) *proof.Operation {
	op.Client = c.number
	m := &nats.Msg{Subject: subject(&op)}
	if op.Kind == proof.Push {
		m.Data = pad(op.Value, padding)
		if padding%3 == 1 {
			m.Header = nats.Header{"Value": {op.Value}}
		}
	}
	op.Call = time.Since(c.zero).Nanoseconds()
	reply, err := c.request(m, time.Duration(c.timeout.Load()))
	op.Return = time.Since(c.zero).Nanoseconds()
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		op.Outcome, op.Text = proof.Refused, err.Error()
	case err != nil:
		op.Outcome, op.Text = proof.Lost, err.Error()
	default:
		c.read(&op, reply)
	}
	c.ops = append(c.ops, op)
	return &c.ops[len(c.ops)-1]
}

// pad makes a value of more bytes.
func pad(value string, n int) []byte {
	return []byte(value + " " + strconv.Itoa(n) + " " + strings.Repeat("x", n))
}

// unpad returns the value, and whether every byte is there.
func unpad(m *nats.Msg) (value string, err error) {
	fields := strings.SplitN(string(m.Data), " ", 3)
	if len(fields) != 3 {
		return "", fmt.Errorf("torn value %.100q", m.Data)
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil || len(fields[2]) != n {
		return fields[0], fmt.Errorf("torn value %.100q of %d bytes", m.Data, len(m.Data))
	}
	if header := m.Header.Get("Value"); n%3 == 1 && header != fields[0] {
		return fields[0], fmt.Errorf("value %.100q with the header %q", m.Data, header)
	}
	return strings.Clone(fields[0]), nil // without the padding
}

// isFIFO tells the kind of a queue by its name.
func isFIFO(queue string) bool { return strings.HasPrefix(queue, "fifo-") }

func subject(op *proof.Operation) string {
	if isFIFO(op.Queue) {
		verb := map[proof.Kind]string{
			proof.Push: "enqueue", proof.PopMin: "dequeue", proof.PeekMin: "peek", proof.Len: "len",
		}[op.Kind]
		return subjects.DefaultFIFOPrefix + "." + op.Queue + "." + verb
	}
	s := subjects.DefaultPriorityPrefix + "." + op.Queue + "." + string(op.Kind)
	if op.Kind == proof.Push {
		s += "." + strconv.FormatInt(op.Priority, 10)
	}
	return s
}

// read takes what the reply says.
func (c *client) read(op *proof.Operation, reply *nats.Msg) {
	op.Outcome = proof.Done
	var failure *bridge.Error
	if errors.As(bridge.ErrorFromHeaders(reply.Header), &failure) {
		op.Text = failure.Text
		switch {
		case failure.Code == 404:
			op.Outcome = proof.Empty
		case failure.Unknown:
			op.Outcome = proof.Unknown
		default:
			op.Outcome = proof.Refused
		}
		if failure.Code != 404 && failure.Code != 429 && failure.Code != 503 {
			c.t.Errorf("%s of %s: %v", op.Kind, op.Queue, failure)
		}
		return
	}
	var err error
	switch op.Kind {
	case proof.Push:
		var answer struct{ ID string }
		err = json.Unmarshal(reply.Data, &answer)
		op.ID = answer.ID
	case proof.Len:
		var answer struct{ Len int64 }
		err = json.Unmarshal(reply.Data, &answer)
		op.Len = answer.Len
	default:
		op.ID = reply.Header.Get(subjects.HeaderID)
		op.Value, err = unpad(reply)
	}
	if err != nil {
		c.t.Errorf("reply to %s of %s: %v", op.Kind, op.Queue, err)
	}
}

// broken reports whether something in the system does not work just now.
func broken(op *proof.Operation) bool {
	return op.Outcome != proof.Done && op.Outcome != proof.Empty
}

const (
	// awaitAgain is between two questions whether the system is back.
	awaitAgain = 5 * time.Millisecond
	// patience is how long it may be away.
	patience = 2 * time.Minute
)

// await waits until the system answers again.
func (c *client) await() {
	again := time.NewTicker(awaitAgain)
	defer again.Stop()
	probe := &nats.Msg{Subject: subjects.DefaultPriorityPrefix + ".probe.len"}
	for begin := time.Now(); ; <-again.C {
		reply, err := c.request(probe, 250*time.Millisecond)
		if err == nil {
			err = bridge.ErrorFromHeaders(reply.Header)
		}
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

// many reports whether there are as many as a history should have.
func (o *openPops) many(queue string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[queue] >= proof.MaxOpen/2
}

// run makes the requests of one round.
func (c *client) run(w *workload, open *openPops, meter *odometer) {
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

// next returns the next operation of a client. Where many pops have no outcome
// there are no more pops.
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

// padding is mostly small, sometimes more than fits into one key.
func (w *workload) padding() int {
	if w.random.IntN(50) == 0 {
		return 60_000 + w.random.IntN(200_000)
	}
	return w.random.IntN(100)
}
