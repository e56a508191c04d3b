package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Read runs operations that only read (see OpKind.Writes) in the caller's transaction, and returns
// one Result for each, in the order of ops. It starts the reads of many operations before it waits
// for the first: a hundred take hardly more time than one.
//
// Read cannot write, so it does not see items that have fallen due and that no pop, lease, or batch
// of a Batcher has brought back yet. But an OpGet does not find an item that has expired.
//
// Other operations result in ErrOp. The error that Read returns is one of the store.
func Read(r kv.Reader, ops []Op) ([]Result, error) {
	results, _, err := readOps(r, ops, nil, state.NoBound)
	return results, err
}

// ReadSome is Read by a clock, with about maxBytes of items and results at most: operations without
// room result in ErrNoRoom. The first always has some.
func ReadSome(r kv.Reader, ops []Op, now time.Time, maxBytes int) ([]Result, error) {
	results, _, err := readOps(r, ops, &now, maxBytes)
	return results, err
}

// ReadDue is Read, and also returns the queues of the operations, in a Keyspace, where something is
// due by now. An OpSweep handles it.
func ReadDue(r kv.Reader, ops []Op, now time.Time) (results []Result, due []QueueName, err error) {
	results, layouts, err := readOps(r, ops, &now, state.NoBound)
	for _, l := range layouts {
		due = l.AppendName(due)
	}
	return results, due, err
}

// readOps is Read, which returns up to about maxReturned bytes of items. Unless now is nil, it also
// returns the queues where something is due by then. Nothing that is due comes back: the time only
// says which rates are used up, and what an OpGet does not find any more.
func readOps(
	r kv.Reader, ops []Op, now *time.Time, maxReturned int,
) (results []Result, due []*codec.Layout, err error) {
	t := &txOps{txn: txn{
		snapshot: r, ops: ops, results: make([]Result, len(ops)),
		bounds: usualBounds, returned: state.ReadBudget{Most: maxReturned},
	}}
	if t.asOf = time.Now(); now != nil {
		t.asOf = *now
	}
	t.assign()

	beginLens(t.looks)
	for _, q := range t.configs {
		q.ledger.ReadSettings(r, q.l)
	}
	for _, q := range t.queues {
		if now != nil && q.looked {
			q.due.Entries = r.GetRange(q.l.DueRange(*now), kv.RangeOptions{Limit: 1})
		}
	}

	err = state.InOrder(
		func() error { return t.readInfos(t.infos) },
		func() error { return t.inspect(t.inspections) },
		func() error { return t.runPeeks(t.peeks) },
		func() error { return state.Each(t.looks, (*queueLooks).finish) },
		func() error { return state.Each(t.configs, (*queueConfigs).configure) },
		func() error { return t.runRecords(t.records) },
	)
	for _, q := range t.queues {
		if err == nil && q.due.Entries != nil {
			var entries []kv.KeyValue
			if entries, err = q.due.Entries.Get(); len(entries) > 0 {
				due = append(due, q.l)
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return t.results, due, nil
}
