package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

const (
	// returnBytes is about the most bytes of values that one transaction puts back,
	// in all queues together.
	returnBytes = 250_000
	// firstReturn is how many values it reads at first, and returnGrowth how many
	// times as many it reads at each later step.
	firstReturn  = 8
	returnGrowth = 8
)

// leftovers is what staged pops of one queue have left that is due.
type leftovers struct {
	due     *due
	claims  []dueRecord
	answers []uncollectedAnswer
}

// leftAnswer is an answer that was not collected in time.
type uncollectedAnswer struct {
	dueRecord
	due      *due
	encoded  kv.Future[[]byte]
	valueKey []byte
	item     *ID // nil if there is none to be put back
}

// add adds a key whose tuple goes on with rest after ("f"), and begins to read it.
// It reports whether that is a key that falls due.
func (left *leftovers) add(f dueRecord, rest []byte) bool {
	part, request, err := tuple.DecodeInt(rest)
	switch {
	case err != nil:
		return false
	case part == partClaim:
		left.claims = append(left.claims, f)
		return true
	case part == partAnswer:
		g := left.due.ledger
		left.answers = append(left.answers, uncollectedAnswer{
			dueRecord: f,
			due:       left.due,
			encoded:   g.tx.Snapshot().Get(f.key),
			valueKey:  append(g.l.partPrefix(partValue), request...),
		})
		return true
	}
	return false
}

// returnStaged puts back the items of answers that were not collected in time, and
// removes the other answers, and the marks.
func returnStaged(all []*leftovers) error {
	var answers []*uncollectedAnswer
	for _, left := range all {
		withItem, err := left.remove()
		switch {
		case errors.Is(err, ErrCorrupt):
			left.due.err = err
		case err != nil:
			return err
		}
		answers = append(answers, withItem...)
	}
	return returnItems(answers)
}

// remove removes all but the answers with items, which it returns. If there is
// something that it cannot read, it removes nothing.
func (left *leftovers) remove() (withItem []*uncollectedAnswer, err error) {
	if left.due.err != nil {
		return nil, nil
	}
	var without []*uncollectedAnswer
	for i := range left.answers {
		a := &left.answers[i]
		encoded, err := a.encoded.Get()
		if err != nil {
			return nil, err
		}
		if encoded != nil {
			decoded, err := parseAnswer(encoded)
			if err != nil {
				return nil, err
			}
			a.item = decoded.item
		}
		if a.item == nil {
			without = append(without, a)
		} else {
			withItem = append(withItem, a)
		}
	}
	tx := left.due.ledger.tx
	for _, a := range without {
		tx.AddReadConflict(kv.SingleKey(a.key)) // with collecting it
		a.remove(tx)
	}
	for i := range left.claims {
		left.claims[i].remove(tx)
	}
	return withItem, nil
}

// returnItems puts the items of answers back until they are returnBytes. The size
// of a value is not known before it is read, so it reads few at first, in order not
// to read much more than it returns, and more at each step, to take few steps.
func returnItems(answers []*uncollectedAnswer) error {
	bytes := 0
	for next := firstReturn; len(answers) > 0 && bytes <= returnBytes; next *= returnGrowth {
		some := answers[:min(next, len(answers))]
		answers = answers[len(some):]
		values := make([]kv.Future[[]byte], len(some))
		for i, a := range some {
			values[i] = a.due.ledger.tx.Get(a.valueKey)
		}
		for i := 0; i < len(some) && bytes <= returnBytes; i++ {
			value, err := values[i].Get()
			if err != nil {
				return err
			}
			some[i].giveBack(value)
			bytes += len(value)
		}
	}
	return nil
}

func (a *uncollectedAnswer) giveBack(value []byte) {
	g := a.due.ledger
	g.tx.AddReadConflict(kv.SingleKey(a.key))
	a.remove(g.tx)
	g.tx.Clear(a.valueKey)
	g.giveBack(a.item, value)
	a.due.returned = true
}

// sweep does what is due in a queue with which the transaction does nothing else at
// the same time.
func returnDue(tx kv.Transaction, l *layout, now time.Time) (returned bool, err error) {
	g := ledger{tx: tx, l: l, now: now}
	d := due{ledger: &g}
	if err := bringBack([]*due{&d}); err != nil {
		return false, err
	}
	g.flush()
	return d.returned, d.err
}

// adopt writes entries in the time index for the oldest answers and marks that
// are due: versions of this package that know no index left them without. Poppers
// do so from time to time; plain pops never look for such.
func adopt(tx kv.Transaction, l *layout, now time.Time) error {
	var parts [2]kv.Future[[]kv.KeyValue]
	for i, part := range []int64{partAnswer, partClaim} {
		parts[i] = tx.Snapshot().GetRange(within(l.partPrefix(part)), kv.RangeOptions{Limit: duePage})
	}
	for _, part := range parts {
		pairs, err := part.Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			deadline, err := parseDeadline(pair.Value)
			if err != nil {
				return err
			}
			if !deadline.After(now) {
				tx.AddReadConflict(kv.SingleKey(pair.Key)) // with whoever removes it
				tx.Set(l.dueKey(deadline, pair.Key), []byte{})
			}
		}
	}
	return nil
}
