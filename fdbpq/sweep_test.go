package fdbpq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// sweep runs an OpPurge or OpRedrive to its end, in as many transactions as it needs.
func (f *fixture) sweep(at time.Time, op fdbpq.Op) (done int64, transactions int) {
	f.Helper()
	for {
		r := f.one(at, op)
		wantError(f.T, r.Err, nil)
		transactions++
		if op.Progress = r.Progress; op.Progress.Next == "" {
			return op.Progress.Done, transactions
		}
	}
}

// A purge takes many items in few transactions, and walks over those in other states.
func TestPurgeInTransactions(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		now := time.Now()
		const n = 3000
		for range n / 1000 {
			ops := make([]fdbpq.Op, 1000)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10)}
			}
			f.applyAt(now, ops...)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
			}
			leases := f.applyAt(now, ops...)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[i].Lease.Token, Delay: time.Duration(i%2) * time.Hour}
			}
			f.applyAt(now, ops...)
		}
		if purged, times := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.Leased}); purged != 0 || times > 1 {
			f.Errorf("purged %d leased items in %d transactions", purged, times)
		}
		if purged, times := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}); purged != n || times > 3 || times < 2 {
			f.Errorf("purged %d in %d transactions: want %d in 2 or 3", purged, times, n)
		}
		if info := f.infoOf(q, 0); info.Ready+info.Leased+info.Delayed != 0 {
			f.Errorf("%+v", info)
		}
	})
}

// bury makes dead letters of new items, with the values given, of a queue.
func (f *fixture) bury(at time.Time, q fdbpq.Target, values ...string) {
	f.Helper()
	for _, value := range values {
		m := fdbpq.Message{Value: []byte(value), Headers: map[string][]string{"Name": {value[:1]}, "Drop": {"x"}}}
		f.one(at, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 3, Message: m})
		lease := f.one(at, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		wantError(f.T, f.one(at, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Lease.Token}).Err, nil)
	}
}

// Dead letters go home without the headers that are dropped, however large they are, in a Keyspace and outside. Other
// items stay.
func TestRedrive(t *testing.T) {
	onEngines(t, func(f *fixture) {
		large, now := strings.Repeat("x", 300_000), time.Now()
		alone := fdbpq.NewPriorityQueue(tuple.NewSubspace(tuple.Tuple{f.priority + "-outside"}), f.format)
		for _, target := range [][2]fdbpq.Target{
			{f.queue("q"), f.queue("q-dead")}, {f.fifoQueue("q"), f.fifoQueue("q-dead")}, {alone, alone.DeadLetters()},
		} {
			q, dead := target[0], target[1]
			f.bury(now, q, "a", "b"+large)
			f.one(now, opPush(dead, 3, "no dead letter"))
			redrive := fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: dead, DropHeader: func(name string) bool { return name == "Drop" }}
			n, _ := f.sweep(now, redrive)
			wantEqual(f.T, "redriven", n, 2)
			for _, want := range []string{"a", "b" + large} {
				i := f.one(now, op(opPopMin, q)).Item
				wantMessage(f.T, "redriven", i, nil, fdbpq.Message{Value: []byte(want), Headers: map[string][]string{"Name": {want[:1]}}})
				wantEqual(f.T, "dead letter", i.DeadLetter, nil)
			}
			wantEqual(f.T, "stayed", string(f.one(now, op(opPopMin, dead)).Item.Value), "no dead letter")

			f.bury(now, q, "c")
			redrive.Kind, redrive.ID = fdbpq.OpRedriveItem, f.one(now, op(opPeekMin, dead)).Item.ID
			wantError(f.T, f.one(now, redrive).Err, nil)
			i := f.one(now, op(opPopMin, q)).Item
			want := fdbpq.Message{Value: []byte("c"), Headers: map[string][]string{"Name": {"c"}}}
			wantMessage(f.T, "redriven alone", i, nil, want)
		}
		write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority + "-outside")) })
	})
}

// Counts are exact and nothing happens twice, whatever is unknown of the outcome of commits.
func TestUnknownEdits(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		ids := f.order(q)
		f.bury(time.Now(), f.queue("b"), "x", "y", "z")
		ready()
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: ids[1]}, fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: ids[0], Priority: 9},
			fdbpq.Op{Kind: fdbpq.OpPurge, Queue: fifo}, opPush(fifo, 0, "new"), fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: f.queue("b-dead"), Limit: 2})
		wantError(f.T, errors.Join(r[0].Err, r[1].Err), nil)
		wantEqual(f.T, "purged and redriven", []int64{r[2].Progress.Done, r[4].Progress.Done}, []int64{6, 2})
		f.calm()
		wantList(f.T, "left", f.values(q.PopMin), "2", "3", "4", "0")
		wantEqual(f.T, "purged", f.length(fifo), 0)
		wantList(f.T, "home", f.values(f.queue("b").PopMin), "x", "y")
		wantList(f.T, "dead", f.values(f.queue("b-dead").PopMin), "z")
	})
}
