package fdbpq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// peeks is the peeks of one end of a queue: they all get the same answer.
type peeks struct {
	reverse bool
	places  []int
}

// peeks returns the ends that are peeked at.
func (q *queueOps) peeks() []peeks {
	var ends []peeks
	if len(q.peekMins) > 0 {
		ends = append(ends, peeks{false, q.peekMins})
	}
	if len(q.peekMaxs) > 0 {
		ends = append(ends, peeks{true, q.peekMaxs})
	}
	return ends
}

// answer gives all peeks the item that was found, nil for none.
func (p peeks) answer(results []Result, f *found) {
	for _, i := range p.places {
		switch {
		case f == nil:
			results[i].Err = ErrEmpty
		case f.err != nil:
			results[i].Err = f.err
		default:
			results[i].Item = f.item
		}
	}
}

// answerLens gives all lens of a queue the number that was read.
func answerLens(results []Result, places []int, n int64, err error) error {
	if err != nil {
		return failed(results, places, err)
	}
	for _, i := range places {
		results[i].Len = n
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

// first returns the item at one end of the queue, nil if there is none.
func first(r kv.Reader, l *layout, reverse bool) (*found, error) {
	pairs, err := r.GetRange(l.itemRange(), kv.RangeOptions{Limit: 1, Reverse: reverse}).Get()
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	f := l.find(r, pairs[0])
	return &f, f.wait()
}

func peek(r kv.Reader, l *layout, reverse bool) (Item, error) {
	f, err := first(r, l, reverse)
	switch {
	case err != nil:
		return Item{}, err
	case f == nil:
		return Item{}, ErrEmpty
	case f.err != nil:
		return Item{}, f.err
	}
	return f.item, nil
}

func length(r kv.Reader, l *layout) (int64, error) {
	value, err := r.Get(l.totalKey()).Get()
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: number of items has %d bytes: want 8", ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
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

func (o outcome) id() (ID, error)     { return o.result.Item.ID, o.err }
func (o outcome) item() (Item, error) { return o.result.Item, o.err }
