package requests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// bulkBatch is how many items a bulkEdit changes in a batch.
const bulkBatch = 500

// bulkEdit is a request that has to find its items first: a purge of a state, or a redrive without
// ids.
type bulkEdit struct {
	op    fdbpq.Op // for each item
	state fdbpq.ItemState
	max   int64 // items

	kind  subjects.Kind
	queue string
	done  int64 // items so far
}

// inspection returns how the inspector answers the request: with encode(done, more).
func (e *bulkEdit) inspection(
	i *Inspector, r *subjects.Request, encode func(done int64, more bool) []byte,
) *inspection {
	e.kind, e.queue = r.Kind, r.Queue
	asked := &inspection{limit: i.bulkEdits}
	asked.reply = func(ctx context.Context) ([]byte, error) {
		more, err := e.run(ctx, i)
		unknown := err != nil && Failure(err).Unknown
		asked.changed = e.done
		switch {
		case unknown && e.done > 0:
			err = fmt.Errorf("%w; items done before that: %d", err, e.done)
		case err != nil && e.done > 0:
			more, err = true, nil // the next request gets the error, if it persists
		}
		return encode(e.done, more), err
	}
	return asked
}

// run finds the items and changes them, a batch at a time, for half of the time of a request. So
// the last batch can end, and the reply says how many are done and whether there may be more.
func (e *bulkEdit) run(ctx context.Context, i *Inspector) (more bool, err error) {
	until := time.Now().Add(i.config.RequestTimeout / 2)
	q, err := i.config.Dispatcher.Queue(e.kind, e.queue)
	if err == nil {
		_, err = i.swept(ctx, e.kind, e.queue)
	}

	walk := fdbpq.Browse{State: e.state, MaxItems: maxLooked, MaxBytes: partBytes}
	for more = true; err == nil && more && e.done < e.max; {
		if time.Now().After(until) {
			if e.done == 0 {
				err = fmt.Errorf("%w: there was no time to find an item: try again",
					dispatch.ErrUnavailable)
			}
			break
		}
		more, err = e.batch(ctx, i, q, &walk)
	}

	return more && e.done < e.max, err
}

// batch finds the next items, changes them, and moves the walk on behind those that it has tried.
func (e *bulkEdit) batch(
	ctx context.Context, i *Inspector, q *dispatch.Queue, walk *fdbpq.Browse,
) (more bool, err error) {
	before := walk.After
	ops, more, err := e.find(ctx, i, q, walk)
	if err != nil || len(ops) == 0 {
		return more, err
	}

	results, err := i.config.Dispatcher.Do(ctx, q, ops)
	if err != nil {
		return false, err
	}

	tried, err := e.count(results)
	if err != nil || tried == len(ops) {
		return more, err
	}

	if walk.After = before; tried > 0 {
		walk.After = &ops[tried-1].ID
	}
	return true, nil
}

// find returns an operation for each of the next items, and moves the walk on behind them.
func (e *bulkEdit) find(
	ctx context.Context, i *Inspector, q *dispatch.Queue, walk *fdbpq.Browse,
) (ops []fdbpq.Op, more bool, err error) {
	redrives := e.op.Kind == fdbpq.OpRedriveItem
	visit := func(item *fdbpq.Browsed) bool {
		if len(ops) == int(min(bulkBatch, e.max-e.done)) {
			return false
		}
		if !redrives || item.DeadLetter != nil {
			op := e.op
			op.ID, op.Follows = item.ID, redrives && len(ops) > 0
			ops = append(ops, op)
		}
		return true
	}

	err = i.run(ctx, i.slots, func() error {
		end, err := walk.Walk(ctx, i.config.DB, q.Target, i.config.Now(), visit)
		walk.After, more = &end.Last, end.More
		return err
	})
	return ops, more && err == nil, err
}

// count counts the items that were changed, and returns how many were tried. It passes over items
// that are gone or leased by now.
func (e *bulkEdit) count(results []fdbpq.Result) (tried int, err error) {
	for n := range results {
		err := results[n].Err
		if err == nil {
			e.done++
			continue
		}

		switch code := classify(err).code; {
		case errors.Is(err, fdbpq.ErrNoRoom): // for this item: the next batch begins with it
			return n, nil
		case code != subjects.CodeNotFound && code != subjects.CodeConflict:
			return n, err
		case e.op.Kind == fdbpq.OpRedriveItem: // each follows the one before: the rest did not run
			return n + 1, nil
		}
	}
	return len(results), nil
}
