package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxRemembered is how many of its own items a worker may remove or move later.
const maxRemembered = 256

// errDuplicate: another item has the unique key of a push.
var errDuplicate = errors.New("duplicate")

// movesItems reports whether items of a queue are moved. Such a queue, and one that is purged, gets
// no items that were redriven: see [books.Books].
func movesItems(queue string) bool { return queue == "a-0" || queue == "a-1" || queue == "a-2" }

// remember keeps some items that were pushed.
func (w *teller) remember(op *books.Operation) {
	if op.Kind != books.Push || op.Batch > 0 || op.Outcome != books.Done ||
		books.IsTraced(op.Queue) || w.workload.random.IntN(4) > 0 {
		return
	}

	if len(w.pushed) == maxRemembered {
		w.pushed[w.workload.random.IntN(maxRemembered)] = *op
		return
	}

	w.pushed = append(w.pushed, *op)
}

// editAll removes and moves items by their ids: some that the worker pushed, which may be anywhere
// by now, and some that it has leased.
func (w *teller) editAll() {
	random := w.workload.random
	var requests []pending

	add := func(queue, value, id string) {
		if books.IsTraced(queue) { // see askAll
			return
		}
		if slices.Contains(w.redriven, queue+"-dead") { // the job may be back: see [books.Books]
			return
		}
		op := books.Operation{Kind: books.Remove, Queue: queue, Value: value, ID: id}
		if movesItems(queue) && random.IntN(3) > 0 {
			op.Kind, op.Priority = books.Move, random.Int64N(4)-1
		}

		requests = append(requests, pending{op: op})
	}

	for range min(len(w.pushed), 1+random.IntN(maxEdited)) {
		n := random.IntN(len(w.pushed))
		add(w.pushed[n].Queue, w.pushed[n].Value, w.pushed[n].ID)

		if random.IntN(4) > 0 { // otherwise it is edited once more
			w.pushed = slices.Delete(w.pushed, n, n+1)
		}
	}

	if len(w.grips) > 0 {
		g := w.grips[random.IntN(len(w.grips))]
		add(g.queue, g.item.Value, g.item.ID)
	}

	w.burst(requests)
}

// sweep purges a queue or sends dead letters back.
func (w *teller) sweep() {
	random := w.workload.random
	op := books.Operation{Kind: books.Purge, Queue: w.purged[random.IntN(len(w.purged))]}

	if random.IntN(2) == 0 {
		op.Kind, op.Batch = books.Redrive, 1+random.IntN(100)
		op.Queue = w.redriven[random.IntN(len(w.redriven))]
	}

	w.burst([]pending{{op: op}})
}

// encodeEdit returns the message of a request that is about an item by its id, or about a queue.
func (b *burster) encodeEdit(op *books.Operation) *nats.Msg {
	// A lease has told the place of its item.
	id, err := fdbpq.ParseID(op.ID)
	item := subjects.ItemOptions{
		ID: op.ID, AtPlace: err == nil && fdbpq.Moved(&id), Priority: op.Priority,
		State: subjects.State(op.State),
	}
	var verb subjects.Verb
	var data []byte

	switch op.Kind {
	case books.Remove:
		verb, data = subjects.Remove, item.Encode(subjects.Remove)
	case books.Move:
		verb, data = subjects.Move, item.Encode(subjects.Move)
	case books.Purge:
		states := []subjects.State{
			"",
			subjects.StateReady,
			subjects.StateDelayed,
			subjects.StateLeased,
		}
		verb, data = subjects.Purge, subjects.EncodePurge(states[b.sent%len(states)])
	default:
		verb, data = subjects.Redrive, subjects.ItemOptions{Most: op.Batch}.Encode(subjects.Redrive)
	}

	return &nats.Msg{Subject: b.subject(op.Queue, verb), Data: data}
}

// readEdit reads the reply to such a request.
func readEdit(op *books.Operation, data []byte) (err error) {
	switch op.Kind {
	case books.Remove:
		_, err = subjects.ParseReply[subjects.Removed](data)
	case books.Move:
		var moved subjects.Moved
		moved, err = subjects.ParseReply[subjects.Moved](data)
		op.Moved, op.Job = moved.Place, moved.ID
	case books.Purge:
		var purged subjects.Purged
		purged, err = subjects.ParseReply[subjects.Purged](data)
		op.Len = purged.Purged
	default:
		var redriven subjects.Redriven
		redriven, err = subjects.ParseReply[subjects.Redriven](data)
		op.Len = redriven.Redriven
	}
	if err != nil {
		err = errors.Join(client.ErrBadReply, err)
	}

	return err
}

// compare compares what info and the lists of queues say with a scan of the store.
func (b *bank) compare(ctx context.Context, db kv.Database) {
	// For all, so that nothing more expires.
	now := time.Now()
	for _, name := range slices.Concat(b.living(), b.dead) { // does what is due by now
		for more := true; more; {
			more = b.apply(ctx, db, name, now, fdbpq.Op{Kind: fdbpq.OpSweep}).Swept.More
		}
	}

	contents, err := fdbpqtest.CheckInvariants(ctx, db, subjects.DefaultPriorityPrefix,
		subjects.DefaultFIFOPrefix)
	must(b.t, err)
	want := [2]int64{int64(contents.Items), int64(contents.Items)}

	if got := b.counted(ctx, db, now); got != want {
		b.t.Errorf(
			"info and the lists of queues say that there are %d items, and there are %d\nmake a "+
				"similar run: %s",
			got,
			contents.Items,
			b.again(),
		)
	}
}

// apply does an operation on a queue of a store, without bridges.
func (b *bank) apply(
	ctx context.Context, db kv.Database, name string, now time.Time, op fdbpq.Op,
) fdbpq.Result {
	var err error
	op.Queue, err = target(keyspace(), name)
	must(b.t, err)

	batcher := fdbpq.NewBatcher(db, keyspace())
	batcher.SetNow(func() time.Time { return now })
	results, err := batcher.Apply(ctx, []fdbpq.Op{op})
	must(b.t, err)
	must(b.t, results[0].Err)

	return results[0]
}

// counted returns how many items there are by info, and by the lists of queues.
func (b *bank) counted(ctx context.Context, db kv.Database, now time.Time) (n [2]int64) {
	for _, name := range slices.Concat(b.living(), b.dead) {
		info := b.apply(ctx, db, name, now, fdbpq.Op{Kind: fdbpq.OpInfo}).Info
		items := info.Ready + info.Leased + info.Delayed
		if slices.Contains(b.limited, name) && items > maxItems {
			b.t.Errorf("queue %s has %d items, and a limit of %d\nmake a similar run: %s",
				name, items, maxItems, b.again())
		}

		n[0] += items
	}

	k := keyspace()
	list := k.ListPriorityQueues

	for range 2 {
		after := ""
		for more := true; more; {
			page, err := list(ctx, db, after, 5, now)
			must(b.t, err)

			for _, q := range page.Queues {
				n[1] += q.Ready + q.Leased + q.Delayed
			}

			after, more = page.Next, page.Next != ""
		}

		list = k.ListQueues
	}

	return n
}

// target returns a queue of either kind.
func target(k *fdbpq.Keyspace, name string) (q fdbpq.Target, err error) {
	if isFIFO(name) {
		q, err = k.Queue(name)
	} else {
		q, err = k.PriorityQueue(name)
	}
	if err != nil {
		err = fmt.Errorf("queue %s: %w", name, err)
	}

	return q, err
}
