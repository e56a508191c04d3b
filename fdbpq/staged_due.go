package fdbpq

import (
	"cmp"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

const (
	// returnBytes is about the most bytes of values that one transaction returns to all
	// of its queues.
	returnBytes = 250_000
	// firstReturn is how many values it reads first; each later step reads returnGrowth
	// times as many.
	firstReturn  = 8
	returnGrowth = 8
)

// leftovers is what staged pops have left in one queue and has fallen due.
type leftovers struct {
	due     *due
	claims  []dueRecord
	answers []uncollected
}

// uncollected is an answer that was not collected in time.
type uncollected struct {
	dueRecord
	due      *due
	encoded  kv.Future[[]byte]
	valueKey []byte
	item     *ID // nil if it has none
}

// add adds the key with the given rest of its tuple after ("f"), and starts to read it. It
// reports whether such keys fall due.
func (left *leftovers) add(record dueRecord, rest []byte) bool {
	part, request, err := tuple.DecodeInt(rest)
	switch {
	case err != nil:
		return false
	case part == partClaim:
		left.claims = append(left.claims, record)
		return true
	case part == partAnswer:
		g := left.due.ledger
		left.answers = append(left.answers, uncollected{
			dueRecord: record,
			due:       left.due,
			encoded:   g.tx.Snapshot().Get(record.key),
			valueKey:  append(g.l.partPrefix(partValue), request...),
		})
		return true
	}
	return false
}

// returnStaged returns the items of uncollected answers to their queues, and removes all
// other answers and the claims.
func returnStaged(all []*leftovers) error {
	var answers []*uncollected
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

// remove removes everything but the answers with items, which it returns. If something
// cannot be read, it removes nothing.
func (left *leftovers) remove() (withItem []*uncollected, err error) {
	if left.due.err != nil {
		return nil, nil
	}
	var without []*uncollected
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
		tx.AddReadConflict(kv.SingleKey(a.key)) // with whoever collects it
		a.remove(tx)
	}
	for i := range left.claims {
		left.claims[i].remove(tx)
	}
	return withItem, nil
}

// returnItems returns items to their queues, up to returnBytes. The size of a value is
// unknown until it is read, so returnItems reads few values first, to read little more than
// it returns, and more in each step, to take few steps.
func returnItems(answers []*uncollected) error {
	bytes := 0
	for next := firstReturn; len(answers) > 0 && bytes <= returnBytes; next *= returnGrowth {
		some := answers[:min(next, len(answers))]
		answers = answers[len(some):]
		values, returns := make([]kv.Future[[]byte], len(some)), make([]returning, len(some))
		for i, a := range some {
			values[i], returns[i] = a.due.ledger.tx.Get(a.valueKey), a.due.ledger.beginReturn(a.item)
		}
		for i := 0; i < len(some) && bytes <= returnBytes; i++ {
			value, err := values[i].Get()
			if err != nil {
				return err
			}
			if err := some[i].giveBack(returns[i], value); err != nil {
				return err
			}
			bytes += len(value)
			some[i].due.done = true
		}
		for _, a := range some {
			a.due.more = a.due.more || bytes > returnBytes
		}
	}
	for _, a := range answers {
		a.due.more = true
	}
	return nil
}

func (a *uncollected) giveBack(r returning, value []byte) error {
	g := a.due.ledger
	g.tx.AddReadConflict(kv.SingleKey(a.key))
	a.remove(g.tx)
	g.tx.Clear(a.valueKey)
	a.due.returned = true
	return g.returnStaged(r, value)
}

// returnDue handles what is due in a queue, in a transaction that has no other use for its
// ledger yet.
func returnDue(tx kv.Transaction, l *layout, now time.Time) (*due, error) {
	g := ledger{tx: tx, l: l, now: now}
	dead := burials{tx: tx, now: now}
	d := &due{ledger: &g, dead: &dead}
	if err := bringBack([]*due{d}, &dueRoom{bytes: heldBytes}); err != nil {
		return nil, err
	}
	if err := cmp.Or(g.flush(), dead.flush()); err != nil {
		return nil, err
	}
	return d, d.err
}

// adopt adds the oldest answers and claims that are due to the time index. Versions of this
// package without the index left them out. Poppers call adopt from time to time; plain pops
// do not.
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
