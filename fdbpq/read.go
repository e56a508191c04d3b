package fdbpq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var errReadOnly = fmt.Errorf("%w: only peeks and lens can be read", ErrOp)

// Read runs peeks and lens in the caller's transaction and returns one Result for
// each, in the order of ops. It begins the reads of all of them before it waits for
// the first, so many cost hardly more time than one.
//
// Other operations give ErrOp. The error is one of the store.
func Read(r kv.Reader, ops []Op) ([]Result, error) {
	results := make([]Result, len(ops))
	queues := group(ops, results)
	for i := range ops {
		if ops[i].Kind.writes() {
			results[i].Err = errReadOnly
		}
	}
	for _, q := range queues {
		q.beginLen(r)
		q.beginPeeks(r)
	}
	for _, q := range queues {
		if err := q.answerLen(results); err != nil {
			return nil, err
		}
		if err := q.findPeeks(r); err != nil {
			return nil, err
		}
	}
	for _, q := range queues {
		if err := q.answerPeeks(results); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (q *queueOps) beginLen(r kv.Reader) {
	if len(q.lens) > 0 {
		q.length = r.Get(q.l.totalKey())
	}
}

// answerLen gives all lens of the queue the number that was read.
func (q *queueOps) answerLen(results []Result) error {
	if len(q.lens) == 0 {
		return nil
	}
	value, err := q.length.Get()
	if err != nil {
		return err
	}
	n, err := parseLength(value)
	if err != nil {
		return failed(results, q.lens, err)
	}
	for _, i := range q.lens {
		results[i].Len = n
	}
	return nil
}

func parseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: number of items has %d bytes: want 8", ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// begin begins to read the items at one end of a queue, as many as are wanted.
func (e *endOps) begin(r kv.Reader, l *layout, end, want int) {
	e.read = r.GetRange(l.itemRange(), kv.RangeOptions{Limit: want, Reverse: end == backEnd})
}

// wait ends what begin began.
func (e *endOps) wait() (err error) {
	e.pairs, err = e.read.Get()
	return err
}

func (q *queueOps) beginPeeks(r kv.Reader) {
	for end := range q.peeks {
		if e := &q.peeks[end]; len(e.places) > 0 {
			e.begin(r, q.l, end, 1) // all of them get the same answer
		}
	}
}

// findPeeks waits for what beginPeeks began, and begins to read the rest of the
// items.
func (q *queueOps) findPeeks(r kv.Reader) error {
	for end := range q.peeks {
		e := &q.peeks[end]
		if len(e.places) == 0 {
			continue
		}
		if err := e.wait(); err != nil {
			return err
		}
		for _, pair := range e.pairs {
			e.items = append(e.items, q.l.find(r, pair))
		}
	}
	return nil
}

// answerPeeks waits for the items and gives them to the peeks.
func (q *queueOps) answerPeeks(results []Result) error {
	for end := range q.peeks {
		e := &q.peeks[end]
		answer := Result{Err: ErrEmpty}
		if len(e.items) > 0 {
			f := &e.items[0]
			if err := f.wait(); err != nil {
				return err
			}
			if answer = (Result{Item: f.item}); f.err != nil {
				answer = Result{Err: f.err}
			}
		}
		for _, i := range e.places {
			results[i] = answer
		}
	}
	return nil
}

// failed gives an error that is about one queue's data to the operations at
// the given places. Any other error is the whole batch's and returned.
func failed(results []Result, places []int, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	for _, i := range places {
		results[i].Err = err
	}
	return nil
}

// outcome is the result of a single operation.
type outcome struct {
	result Result
	err    error
}

// one runs a single operation in the caller's transaction.
func one(tx kv.Transaction, op Op) outcome {
	b, err := apply(tx, []Op{op}, time.Now(), nil)
	if err != nil {
		return outcome{err: err}
	}
	return outcome{b.results[0], b.results[0].Err}
}

// oneRead runs a single peek or len.
func oneRead(r kv.Reader, op Op) outcome {
	results, err := Read(r, []Op{op})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{results[0], results[0].Err}
}

func (o outcome) id() (ID, error)        { return o.result.Item.ID, o.err }
func (o outcome) item() (Item, error)    { return o.result.Item, o.err }
func (o outcome) length() (int64, error) { return o.result.Len, o.err }
