package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Pops and peeks of an empty queue say so, before its first push and after its last pop, and an
// empty value is a value.
func TestEmptyQueue(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("empty"), f.fifoQueue("empty")
		for range 2 { // before the first push, and after the last pop
			for _, method := range []func(kv.Transaction) (fdbpq.Item, error){
				q.PopMin, q.PopMax, fifo.Dequeue,
			} {
				wantError(f.T, errOf(f.take(method)), fdbpq.ErrEmpty)
			}

			for _, method := range []func(kv.Reader) (fdbpq.Item, error){
				q.PeekMin, q.PeekMax, fifo.Peek,
			} {
				wantError(f.T, errOf(f.look(method)), fdbpq.ErrEmpty)
			}
			wantEqual(f.T, "Len", f.length(q)+f.length(fifo), 0)

			f.apply(opPush(q, 1, ""), opPush(fifo, 1, ""))
			for _, r := range f.apply(op(opPopMin, q), op(opPopMin, fifo)) {
				if r.Err != nil || r.Item.Value == nil || len(r.Item.Value) > 0 {
					f.Errorf("an empty value comes back as %#v, error %v", r.Item.Value, r.Err)
				}
			}
		}
	})
}

// Clear removes everything in one queue and nothing in others, and the queue can be used again.
func TestClear(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, other, fifo := f.queue("a"), f.queue("a\x00"), f.fifoQueue("a")
		headers := map[string][]string{"A": {"b"}}

		for i := range 10 {
			m := fdbpq.Message{Value: pattern(i*30_000, i), Headers: headers}
			f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: m}, opPush(other, 1, "o"),
				opPush(fifo, 1, "f"))
		}

		write(f, func(tx kv.Transaction) { q.Clear(tx) })
		wantEqual(f.T, "lengths", []int64{f.length(q), f.length(other), f.length(fifo)},
			[]int64{0, 10, 10})
		wantError(f.T, errOf(f.take(q.PopMin)), fdbpq.ErrEmpty)

		f.push(q, 3, "again")
		wantList(f.T, "values", f.values(q.PopMin), "again")

		write(f, func(tx kv.Transaction) { fifo.Clear(tx) })
		wantEqual(f.T, "values", len(f.values(fifo.Dequeue)), 0)
	})
}

// Names of any bytes up to the limit work, and are listed in byte order, in pages of any size.
func TestNames(t *testing.T) {
	onEngines(t, func(f *fixture) {
		long := strings.Repeat("n", fdbpq.MaxQueueName)
		for _, name := range []string{"", long + "n"} {
			wantError(f.T, errOf(f.PriorityQueue(name)), fdbpq.ErrQueueName)
			wantError(f.T, errOf(f.Queue(name)), fdbpq.ErrQueueName)
		}

		names := []string{"\x00", "a", "a\x00", "a\x00b", "ab", "b", long, "\xff"}
		for _, name := range names {
			f.apply(opPush(f.queue(name), 1, name),
				opPush(f.fifoQueue(name+"!"[:1-len(name)/fdbpq.MaxQueueName]), 1, name))
		}

		f.apply(op(opPopMin, f.queue("never pushed to")), op(opPopMin, f.queue("a")))
		list := func(after string, limit int) []string {
			got := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) {
				return f.PriorityQueues(r, after, limit).Get()
			}))
			return got
		}

		for limit := 1; limit <= len(names)+1; limit++ {
			var all []string
			for page := list("", limit); len(page) > 0; page = list(page[len(page)-1], limit) {
				if len(page) > limit {
					f.Fatalf("%d names, limit %d", len(page), limit)
				}
				all = append(all, page...)
			}
			wantList(f.T, fmt.Sprint("pages of ", limit), all, names...)
		}
		wantList(f.T, "after a name that is not there", list("a\x00a", 2), "a\x00b", "ab")

		fifos, err := kv.ReadTransact(f.ctx, f.db,
			func(r kv.Reader) ([]string, error) { return f.Queues(r, "", 2).Get() })
		if err != nil || len(fifos) != 2 {
			f.Errorf("Queues gives %q, error %v", fifos, err)
		}
		for _, name := range names[2:] {
			wantList(f.T, name, f.values(f.queue(name).PopMax), name)
		}
	})
}

// A push or pop takes effect with the caller's transaction, or not at all.
func TestInCallersTransaction(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("mine"), f.fifoQueue("mine")
		own := tuple.Tuple{f.priority, "zz", "n"}.Pack() // looks like a number of a queue
		f.push(q, 1, "first")

		run := func(result error) error {
			_, err := do(f, func(tx kv.Transaction) (struct{}, error) {
				item, err := q.PopMin(tx)
				if err == nil {
					tx.Set(own, []byte{1, 0, 0, 0, 0, 0, 0, 0})
					_, err = fifo.Enqueue(tx, item.Message)
				}

				if err == nil {
					_, err = q.Push(tx, 2, message("second"))
				}

				seen, peekErr := q.PeekMin(tx)
				if peekErr != nil || string(seen.Value) != "second" {
					f.Errorf("in the transaction the first item is %q, error %v",
						seen.Value, peekErr)
				}

				return struct{}{}, errors.Join(err, result)
			})
			return err
		}

		before := fmt.Sprintf("%x", f.stored(f.priority))
		abort := errors.New("the caller changed its mind")
		wantError(f.T, run(abort), abort)

		if after := fmt.Sprintf("%x", f.stored(f.priority)); after != before {
			f.Errorf("an aborted transaction left %s, before it was %s", after, before)
		}
		wantEqual(f.T, "keys of the other queue", len(f.stored(f.fifo)), 0)
		wantError(f.T, run(nil), nil)
		f.wantStored(own, []byte{1, 0, 0, 0, 0, 0, 0, 0})

		write(f, func(tx kv.Transaction) { tx.Clear(own) })
		wantList(f.T, "moved", f.values(fifo.Dequeue), "first")
		wantList(f.T, "pushed", f.values(q.PopMin), "second")
	})
}

// Errors of the store pass through unchanged.
func TestStoreErrorsPassThrough(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("a")
		tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
		tx.Cancel()

		wantError(f.T, errOf(q.Push(tx, 1, message("v"))), kv.ErrUsed)
		wantError(f.T, errOf(q.PopMin(tx)), kv.ErrUsed)
		wantError(f.T, errOf(q.PeekMax(tx)), kv.ErrUsed)
		wantError(f.T, errOf(q.Len(tx)), kv.ErrUsed)

		ended, cancel := context.WithCancel(f.ctx)
		cancel()

		for _, what := range []fdbpq.Op{opNoItem, opPopMin, opPeekMin, opLen} {
			_, err := f.batcher.Apply(ended, []fdbpq.Op{op(what, q)})
			wantError(f.T, err, context.Canceled)

			if kv.MaybeCommitted(err) {
				f.Errorf("operation %d never began, and its error says %v", what.Kind, err)
			}
		}
	})
}
