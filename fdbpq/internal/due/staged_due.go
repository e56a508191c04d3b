package due

import (
	"cmp"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
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
	due     *Due
	claims  []dueRecord
	answers []uncollected
}

// uncollected is an answer that was not collected in time.
type uncollected struct {
	dueRecord
	due      *Due
	encoded  kv.Future[[]byte]
	valueKey []byte
	item     *codec.ID // nil if it has none
}

// add adds the key with the given rest of its tuple after ("f"), and starts to read it. It
// reports whether such keys fall due.
func (left *leftovers) add(record dueRecord, rest []byte) bool {
	part, request, err := tuple.DecodeInt(rest)
	switch {
	case err != nil:
		return false
	case part == codec.PartClaim:
		left.claims = append(left.claims, record)
		return true
	case part == codec.PartAnswer:
		g := left.due.Ledger
		left.answers = append(left.answers, uncollected{
			dueRecord: record,
			due:       left.due,
			encoded:   g.Tx.Snapshot().Get(record.key),
			valueKey:  append(g.L.PartPrefix(codec.PartValue), request...),
		})
		return true
	}
	return false
}

// ReturnStaged returns the items of uncollected answers to their queues, and removes all
// other answers and the claims.
func returnStaged(all []*leftovers) error {
	var answers []*uncollected
	for _, left := range all {
		withItem, err := left.remove()
		switch {
		case errors.Is(err, codec.ErrCorrupt):
			left.due.Err = err
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
	if left.due.Err != nil {
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
			decoded, err := codec.ParseAnswer(encoded)
			if err != nil {
				return nil, err
			}
			a.item = decoded.Item
		}
		if a.item == nil {
			without = append(without, a)
		} else {
			withItem = append(withItem, a)
		}
	}
	tx := left.due.Ledger.Tx
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
		values, returns := make([]kv.Future[[]byte], len(some)), make([]state.Returning, len(some))
		for i, a := range some {
			values[i], returns[i] = a.due.Ledger.Tx.Get(a.valueKey), a.due.Ledger.BeginReturn(a.item)
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
			some[i].due.Done = true
		}
		for _, a := range some {
			a.due.More = a.due.More || bytes > returnBytes
		}
	}
	for _, a := range answers {
		a.due.More = true
	}
	return nil
}

func (a *uncollected) giveBack(r state.Returning, value []byte) error {
	g := a.due.Ledger
	g.Tx.AddReadConflict(kv.SingleKey(a.key))
	a.remove(g.Tx)
	g.Tx.Clear(a.valueKey)
	a.due.Returned = true
	return g.ReturnStaged(r, value)
}

// ReturnDue handles what is due in a queue, in a transaction that has no other use for its
// ledger yet.
func ReturnDue(tx kv.Transaction, l *codec.Layout, now time.Time) (*Due, error) {
	g := state.Ledger{Tx: tx, L: l, Now: now}
	dead := Burials{Tx: tx, Now: now}
	d := &Due{Ledger: &g, Dead: &dead}
	if err := BringBack([]*Due{d}, &DueRoom{Bytes: HeldBytes, Expired: MostExpiredBytes}); err != nil {
		return nil, err
	}
	if err := cmp.Or(g.Flush(), dead.Flush()); err != nil {
		return nil, err
	}
	return d, d.Err
}

// Adopt adds the oldest answers and claims that are due to the time index. Versions of this
// package without the index left them out. Poppers call adopt from time to time; plain pops
// do not.
func Adopt(tx kv.Transaction, l *codec.Layout, now time.Time) error {
	var parts [2]kv.Future[[]kv.KeyValue]
	for i, part := range []int64{codec.PartAnswer, codec.PartClaim} {
		parts[i] = tx.Snapshot().GetRange(codec.Within(l.PartPrefix(part)), kv.RangeOptions{Limit: DuePage})
	}
	for _, part := range parts {
		pairs, err := part.Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			deadline, err := codec.ParseDeadline(pair.Value)
			if err != nil {
				return err
			}
			if !deadline.After(now) {
				tx.AddReadConflict(kv.SingleKey(pair.Key)) // with whoever removes it
				tx.Set(l.DueKey(deadline, pair.Key), []byte{})
			}
		}
	}
	return nil
}
