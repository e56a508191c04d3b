package fdbpq_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
)

// A Batcher that knows the settings of a queue from earlier batches obeys a change, whoever made
// it, from its next batch on.
func TestSettingsChangedElsewhere(t *testing.T) {
	limit := func(s *fdbpq.Settings) { s.MaxItems = 1 }
	unlimit := func(s *fdbpq.Settings) { s.MaxItems = 0 }

	onEngines(t, func(f *fixture) {
		q, other := f.queue("a"), f.queue("other")
		elsewhere := fdbpq.NewBatcher(f.db, f.Keyspace)
		configure := func(change func(*fdbpq.Settings)) {
			op := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: change}
			wantErrors(f.T, must(elsewhere.Apply(f.ctx, []fdbpq.Op{op})))
		}
		wantPush := func(what string, want error) { // to a queue with one item
			f.Helper()
			f.Log(what)
			wantError(f.T, f.apply(opPush(q, 2, "x"), opPush(other, 1, ""))[0].Err, want)
			if want == nil {
				f.apply(op(opPopMax, q))
			}
		}

		f.push(q, 1, "first")
		wantPush("without a limit", nil)
		configure(limit)
		wantPush("after a Batcher set a limit", fdbpq.ErrFull)
		wantPush("once more", fdbpq.ErrFull)
		configure(unlimit)
		wantPush("after it removed the limit", nil)

		write(f, func(tx kv.Transaction) { must(q.Configure(tx, limit)) })
		wantPush("after another program set it", fdbpq.ErrFull)
		write(f, func(tx kv.Transaction) { q.Clear(tx) })
		f.push(q, 1, "first")
		wantPush("after another program cleared the queue", nil)
	})
}

// A change of settings that commits while a batch runs makes the batch conflict if it concerns one
// of its queues, although the Batcher knows the settings of before.
func TestSettingsChangedMeanwhile(t *testing.T) {
	onEngines(t, func(f *fixture) {
		if f.db.Traits().Serial {
			f.Skip("nothing commits meanwhile")
		}
		q, other := f.queue("a"), f.queue("other")
		meanwhile := func() {}
		hooks := &hooked{Database: f.db, beforeCommit: func() { meanwhile() }}
		b := fdbpq.NewBatcher(hooks, f.Keyspace)
		push := []fdbpq.Op{opPush(q, 1, "x")}

		for _, test := range []struct {
			changed   *fdbpq.PriorityQueue
			want      error
			conflicts int64
		}{{other, nil, 0}, {q, fdbpq.ErrFull, 1}} {
			wantErrors(f.T, must(b.Apply(f.ctx, push))) // finds the settings

			meanwhile = func() {
				meanwhile = func() {}
				full := func(s *fdbpq.Settings) { s.MaxItems = 1 }
				write(f, func(tx kv.Transaction) { must(test.changed.Configure(tx, full)) })
			}
			results := must(b.Apply(f.ctx, push))
			wantError(f.T, results[0].Err, test.want)
			wantEqual(f.T, "conflicts", b.Conflicts(), test.conflicts)
		}
	})
}

// After a change of the settings of any queue, a batch reads those of all its queues in one further
// round trip.
func TestSettingsReadAgain(t *testing.T) {
	f := newRoundsFixture(t, 100, false)
	push := []fdbpq.Op{{Kind: fdbpq.OpPush, Message: message("x")}}
	f.batch(push)
	f.configure(f.queue("other"), func(s *fdbpq.Settings) { s.MaxItems = 1 })

	for _, want := range []countkv.Cost{{Reads: 301, Rounds: 2}, {Reads: 201, Rounds: 1}} {
		f.store.Take()
		wantErrors(t, f.batch(push))
		wantEqual(t, "costs", f.store.Take(), []countkv.Cost{want})
	}
}
