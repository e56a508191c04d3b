package proof_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// grip is a lease that a client has, or had.
type grip struct {
	*client.Delivery
	queue   string
	subject string // of a pull: where JetStream's acknowledgements go
	item    books.Item
	back    bool // it was leased from there
	wait    int64
}

// waits are the lengths of leases. The shortest is the shortest there is.
var waits = []time.Duration{fdbpq.MinLease, 2 * fdbpq.MinLease, 4 * fdbpq.MinLease}

const (
	// maxDelay bounds the delays of negative acknowledgements and pushes.
	maxDelay = 300 * time.Millisecond
	// maxWait bounds how long requests wait for an item.
	maxWait = 100 * time.Millisecond
	// dueTime is how long items are held at most.
	dueTime = 500 * time.Millisecond
	// maxBatch bounds pops and leases of several items.
	maxBatch = 3
)

// fromFront returns the operation at the front of the queue in place of one at the back.
func fromFront(k books.Kind) books.Kind {
	return books.Kind(strings.Replace(string(k), ".max", ".min", 1))
}

// fill sets what an operation asks for.
func (w *workload) fill(op *books.Operation) {
	if op.Kind.Leases() {
		op.Wait = int64(waits[w.random.IntN(len(waits))])
	}

	if !op.Kind.Takes() {
		return
	}

	w.limitBytes(op)
	switch w.random.IntN(8) {
	case 0, 1:
		op.Batch = 2 + w.random.IntN(maxBatch-1)
	case 2: // of one item, because a batch that waits takes several transactions
		op.Expires = int64(time.Millisecond) + w.random.Int64N(int64(maxWait))
	}
}

// nextUse returns an operation with one of the client's tokens. Now and then the client
// first waits until that lease should be over.
func (w *workload) nextUse(c *caller, open *openPops) (op books.Operation, ok bool) {
	g := c.grips[w.random.IntN(len(c.grips))]
	if w.random.IntN(25) == 0 {
		<-time.After(min(time.Until(g.Until), dueTime))
	}

	op = w.useOf(g)
	w.ackAsJetStream(g, &op)

	if w.random.IntN(2) == 0 {
		w.addOthers(c, &op, maxBatch)
	}

	if op.Kind.Takes() {
		w.limitBytes(&op)
	}

	return op, !op.Kind.Takes() || !open.many(op.Queue)
}

// useOf returns an operation with a token.
func (w *workload) useOf(g *grip) books.Operation {
	op := operationOf(g, "")
	switch x := w.random.IntN(100); {
	case x < 35:
		op.Kind = books.Ack
	case x < 60:
		op.Kind = books.Nak
		op.Snooze = w.random.IntN(3) == 0

		if w.random.IntN(2) == 0 {
			op.Delay = w.random.Int64N(int64(maxDelay))
		}
	case x < 75:
		op.Kind = books.Extend
	case g.back:
		op.Kind = books.NextMax
	default:
		op.Kind = books.NextMin
	}

	return op
}

// operationOf returns an operation of a kind with the token.
func operationOf(g *grip, kind books.Kind) books.Operation {
	return books.Operation{
		Kind:  kind,
		Queue: g.queue,
		Value: g.item.Value,
		ID:    g.item.ID,
		Fence: g.item.Fence,
		Wait:  g.wait,

		Joiner: g.item.Joiner,
	}
}

// note keeps the leases that an operation gave, and forgets most leases that it ended.
func (c *caller) note(w *workload, op *books.Operation) {
	if op.JetStream && op.Kind == books.Ack && op.Outcome == books.Lost && w.random.IntN(4) > 0 {
		c.drop(op)
	}

	answered := []books.Outcome{books.Done, books.Empty, books.TooLarge, books.Stale}
	if op.Kind.Settles() && op.Kind != books.Extend && slices.Contains(answered, op.Outcome) &&
		w.random.IntN(4) > 0 {
		for _, lease := range over(op) {
			c.drop(&books.Operation{ID: lease.ID, Fence: lease.Fence})
		}
	}

	c.grips = append(c.grips, c.fresh...)
	c.fresh = nil
}

// grip returns the lease that an operation uses.
func (c *caller) grip(op *books.Operation) *grip {
	return c.grips[slices.IndexFunc(c.grips, func(g *grip) bool { return g.of(op) })]
}

// drop forgets that lease.
func (c *caller) drop(op *books.Operation) {
	c.grips = slices.DeleteFunc(c.grips, func(g *grip) bool { return g.of(op) })
}

// of reports whether the operation uses the lease.
func (g *grip) of(
	op *books.Operation,
) bool {
	return g.item.ID == op.ID && g.item.Fence == op.Fence
}

// popped records one of several items.
func popped(op *books.Operation, item *client.Item) error {
	value, torn := unpad(item)
	if torn == nil {
		torn = checkGroup(op.Queue, value, item)
	}

	op.Items = append(op.Items, books.Item{
		Value:  value,
		ID:     cmp.Or(item.Place, item.ID),
		Job:    item.ID,
		Unique: item.Unique,
		Group:  item.Group,
		Size:   int64(len(item.Value)),
		Joiner: joinerOf(item),
		Joined: (*books.Joined)(item.Joined),
	})

	return torn
}

// got records leased items.
func (c *caller) got(op *books.Operation, list ...*client.Delivery) (err error) {
	for _, d := range list {
		value, torn := unpad(&d.Item)
		if torn == nil {
			torn = checkGroup(op.Queue, value, &d.Item)
		}

		subject := d.AckSubject()
		token, malformed := fdbpq.ParseToken(tokenOf(subject))

		place := cmp.Or(d.Place, d.ID)
		if malformed != nil || token.ID.String() != place {
			malformed = fmt.Errorf("%w: the token of %s: %q: %v",
				errTorn, place, subject, malformed)
		}

		err = errors.Join(err, torn, malformed)
		// The count of leases and negative acknowledgements; the rest is random.
		fence := token.Fence >> 48

		item := books.Item{
			Value: value, ID: place, Job: d.ID, Unique: d.Unique, Group: d.Group,
			Size: int64(len(d.Value)), Fence: fence, Deliveries: d.Deliveries,
			Until: c.since(d.Until), Joiner: joinerOf(&d.Item),
			Joined: (*books.Joined)(d.Joined),
		}

		op.Items = append(op.Items, item)
		c.fresh = append(c.fresh,
			&grip{Delivery: d, queue: op.Queue, item: item, back: op.Kind.Back(), wait: op.Wait})
	}
	return err
}

// since returns a time by the clock of the history.
func (c *caller) since(t time.Time) int64 { return t.Sub(c.zero).Nanoseconds() }
