package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var errReadOnly = fmt.Errorf("%w: it is not a peek, len, info, OpGet, OpRank or OpSettings", ErrOp)

// Read runs peeks, lens, infos, OpGet, OpRank and OpSettings in the caller's transaction, and returns one Result for each, in
// the order of ops. It starts all reads before it waits for the first, so many take hardly
// more time than one.
//
// Read cannot write, so it does not see items that have fallen due and that no pop, lease,
// or batch of a Batcher has brought back yet.
//
// Other operations result in ErrOp. The error that Read returns is one of the store.
func Read(r kv.Reader, ops []Op) ([]Result, error) {
	results, _, err := read(r, ops, nil, state.NoBound)
	return results, err
}

// read is Read, which returns up to about most bytes of items. Unless now is nil, it also returns the queues where something is due by then.
func read(r kv.Reader, ops []Op, now *time.Time, most int) (results []Result, due []*codec.Layout, err error) {
	results = make([]Result, len(ops))
	returned := &state.ItemRoom{Most: most}
	queues := group(ops, results)
	for i := range ops {
		if ops[i].Kind.Writes() {
			results[i].Err = errReadOnly
		}
	}
	for _, q := range queues {
		q.beginLens(r)
		if q.infos != nil {
			q.infos.begin(r)
		}
		if len(q.configs) > 0 {
			q.ledger.Config.Begin(r, q.l)
		}
		if now != nil && q.looks() {
			q.due.Head = r.GetRange(q.l.DueRange(*now), kv.RangeOptions{Limit: 1})
		}
	}
	inspected := beginInspections(r, queues, returned)
	if err := readPeeks(r, queues, returned, results); err != nil {
		return nil, nil, err
	}
	for _, q := range queues {
		if err := q.finishLens(results); err != nil {
			return nil, nil, err
		}
		if err := q.readConfigs(results); err != nil {
			return nil, nil, err
		}
	}
	if err := runInfos(r, queues, returned, results); err != nil {
		return nil, nil, err
	}
	if err := inspected.run(results); err != nil {
		return nil, nil, err
	}
	for _, q := range queues {
		if q.due.Head == nil {
			continue
		}
		entries, err := q.due.Head.Get()
		if err != nil {
			return nil, nil, err
		}
		if len(entries) > 0 {
			due = append(due, q.l)
		}
	}
	return results, due, nil
}

// readPeeks runs the peeks of the queues. The error is one of the store.
func readPeeks(r kv.Reader, queues []*queueOps, returned *state.ItemRoom, results []Result) error {
	return eachSome(queues, returned, results, func(queues []*queueOps, share int) error {
		for _, q := range queues {
			q.peeks.begin(r, q.l, share)
		}
		for _, q := range queues {
			if err := q.peeks.find(time.Time{}, &q.due); err != nil {
				return err
			}
		}
		for _, q := range queues {
			if err := q.peeks.finish(returned, results); err != nil {
				return err
			}
		}
		return nil
	})
}
