package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/antithesishq/antithesis-sdk-go/assert"
	"github.com/antithesishq/antithesis-sdk-go/random"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

const (
	// requests is how many a driver makes, and maxUnknown of how many it may not know the outcome:
	// the checker has to try all that these may have done.
	requests   = 40
	maxUnknown = 2
	// lease is the length of leases, and delay that of delays.
	lease = time.Second
	delay = 300 * time.Millisecond
)

// kinds are what drivers do, as often as they are here.
var kinds = []books.Kind{
	books.Push, books.Push, books.Push, books.Push, books.Push, books.PopMin, books.PopMax,
	books.PeekMin, books.PeekMax, books.Len, books.LeaseMin, books.LeaseMin, books.LeaseMax,
	books.Ack, books.Ack, books.Nak,
}

var (
	pops = map[books.Kind]func(
		*client.Queue, context.Context, ...client.PopOption,
	) (*client.Item, error){
		books.PopMin: (*client.Queue).Pop, books.PopMax: (*client.Queue).PopMax,
	}
	peeks = map[books.Kind]func(*client.Queue, context.Context) (*client.Item, error){
		books.PeekMin: (*client.Queue).Peek, books.PeekMax: (*client.Queue).PeekMax,
	}
	leases = map[books.Kind]func(
		*client.Queue, context.Context, ...client.LeaseOption,
	) (*client.Delivery, error){
		books.LeaseMin: (*client.Queue).Lease, books.LeaseMax: (*client.Queue).LeaseMax,
	}
)

// driver makes requests, one after the other.
type driver struct {
	*workload
	journal *os.File
	leases  []held
}

// held is a lease.
type held struct {
	*client.Delivery
	item books.Item
}

// drive makes some requests to one queue.
func drive(w *workload) {
	queue := name(w.used() - 1)
	journal, err := os.CreateTemp(w.dir, "driver-")
	must(err)
	d := &driver{workload: w, journal: journal}
	for i, unknown := 0, 0; i < requests && unknown < maxUnknown; i++ {
		op := d.do(d.next(queue, fmt.Sprintf("%s-%d", filepath.Base(journal.Name()), i)))
		if op.Open() {
			unknown++
		}
		assert.Sometimes(op.Open(), "the outcome of a request is unknown", nil)
		assert.Sometimes(len(op.Items) > 0, "an item is served", nil)
		assert.Sometimes(op.Kind == books.Ack && op.Outcome == books.Done,
			"a lease is acknowledged", nil)
	}
}

// next returns a random request. A push has the value, and what needs a lease uses the newest.
func (d *driver) next(queue, value string) books.Operation {
	op := books.Operation{Queue: queue, Kind: random.RandomChoice(kinds)}
	if op.Kind.Settles() && len(d.leases) == 0 {
		op.Kind = books.LeaseMin
	}

	switch {
	case op.Kind == books.Push:
		op.Value, op.Size = value, int64(len(value))
		op.Priority = random.RandomChoice([]int64{-1, 0, 1, 2})
		op.Group = random.RandomChoice([]string{"a", "b", "c"})
		op.Delay = int64(random.RandomChoice([]time.Duration{0, 0, 0, 0, delay}))
	case op.Kind.Leases():
		op.Wait = int64(lease)
	case op.Kind.Settles():
		item := d.leases[len(d.leases)-1].item
		op.Value, op.ID, op.Fence = item.Value, item.ID, item.Fence
	}

	return op
}

// do makes a request and notes what became of it. If the service is away, it waits until that is
// back.
func (d *driver) do(op books.Operation) *books.Operation {
	op.Client, op.Outcome, op.Call = os.Getpid(), books.Lost, time.Now().UnixNano()
	op.Return = op.Call
	d.note(&op)

	err := d.request(context.Background(), &op)
	op.Outcome, op.Return = outcome(err), time.Now().UnixNano()
	d.note(&op)
	if op.Open() || op.Outcome == books.Refused {
		d.await()
	}

	return &op
}

// note adds an operation to the driver's file. What is noted before a request has an unknown
// outcome, and so it stays if the driver is killed.
func (d *driver) note(op *books.Operation) {
	must(json.NewEncoder(d.journal).Encode(op))
}

// request makes a request and reads the answer.
func (d *driver) request(ctx context.Context, op *books.Operation) (err error) {
	q := d.client.PriorityQueue(op.Queue)
	var item *client.Item
	var leased *client.Delivery

	switch {
	case op.Kind == books.Push:
		ack, err := q.Push(ctx, op.Priority, []byte(op.Value),
			client.Group(op.Group), client.Delay(time.Duration(op.Delay)))
		op.ID = ack.ID
		return err
	case op.Kind == books.Len:
		op.Len, err = q.Len(ctx)
	case op.Kind == books.Ack:
		return d.newest().Ack(ctx)
	case op.Kind == books.Nak:
		return d.newest().Nak(ctx, 0)
	case op.Kind.Pops():
		item, err = pops[op.Kind](q, ctx)
	case op.Kind.Peeks():
		item, err = peeks[op.Kind](q, ctx)
	default:
		leased, err = leases[op.Kind](q, ctx, client.AckWait(lease))
		if err == nil {
			item = &leased.Item
		}
	}
	if err != nil || item == nil {
		return err
	}

	got := books.Item{
		Value: string(item.Value), ID: cmp.Or(item.Place, item.ID), Group: item.Group,
		Size: int64(len(item.Value)),
	}
	if leased != nil {
		_, text, _ := strings.Cut(leased.AckSubject(), ".ack.")
		token, _ := fdbpq.ParseToken(text) // The checker knows that no fence is 0.
		got.Fence = token.Fence >> 48      // the rest is random
		got.Deliveries, got.Until = leased.Deliveries, leased.Until.UnixNano()
		d.leases = append(d.leases, held{leased, got})
	}
	op.Items = []books.Item{got}

	return nil
}

// newest returns the newest lease and forgets it.
func (d *driver) newest() *client.Delivery {
	last := len(d.leases) - 1
	newest := d.leases[last].Delivery
	d.leases = d.leases[:last]
	return newest
}

// outcome returns what the client promises about a request that ended with an error.
func outcome(err error) books.Outcome {
	wrong := errors.Is(err, client.ErrBadReply) || errors.Is(err, client.ErrBadRequest) ||
		errors.Is(err, client.ErrInternal)
	assert.Always(!wrong, "the service answers as the protocol says", map[string]any{"error": err})

	switch {
	case err == nil:
		return books.Done
	case errors.Is(err, client.ErrEmpty):
		return books.Empty
	case errors.Is(err, client.ErrLeaseLost):
		return books.Stale
	case errors.Is(err, client.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return books.Lost
	default:
		return books.Refused
	}
}
