package due

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// returnBytes is about the most bytes of values that one transaction returns to all of its queues.
const returnBytes = 250_000

// stagedAnswer is the answer to a staged pop that was not collected in time.
type stagedAnswer struct {
	dueRecord
	due      *Due
	encoded  kv.Future[[]byte]
	valueKey []byte
	item     *codec.ID // nil if the answer is that there was none
}

// returnStaged returns the items of answers to their queues, and removes answers without one. An
// answer that cannot be read stays.
func returnStaged(answers []*stagedAnswer) error {
	var withItem []*stagedAnswer
	for _, a := range answers {
		encoded, err := a.encoded.Get()
		if err != nil {
			return err
		}

		if encoded != nil {
			decoded, err := codec.ParseAnswer(encoded)
			if err != nil {
				a.due.Err = err
				continue
			}
			a.item = decoded.Item
		}

		if a.item != nil {
			withItem = append(withItem, a)
			continue
		}

		tx := a.due.Ledger.Tx
		tx.AddReadConflict(kv.SingleKey(a.key)) // with its collection
		a.remove(tx)
	}

	return returnItems(withItem)
}

// returnItems returns items to their queues, up to returnBytes. The size of a value is not known
// before it is read. So the first step reads few values, lest they are large, and each later step
// more.
func returnItems(answers []*stagedAnswer) error {
	bytes := 0
	for next := firstReturn; len(answers) > 0 && bytes <= returnBytes; next *= returnGrowth {
		some := answers[:min(next, len(answers))]
		values, returns := make([]kv.Future[[]byte], len(some)), make([]*state.ItemRead, len(some))
		for i, a := range some {
			g := a.due.Ledger
			values[i], returns[i] = g.Tx.Get(a.valueKey), g.BeginReturn(a.item)
		}

		for i := 0; i < len(some) && bytes <= returnBytes; i++ {
			value, err := values[i].Get()
			if err != nil {
				return err
			}
			if err := some[i].settle(returns[i], value); err != nil {
				return err
			}
			bytes += len(value)
			answers = answers[1:]
		}
	}

	for _, a := range answers {
		a.due.More = true
	}
	return nil
}

// settle returns the item, unless it has expired, and removes the answer.
func (a *stagedAnswer) settle(read *state.ItemRead, value []byte) error {
	g := a.due.Ledger
	g.Tx.AddReadConflict(kv.SingleKey(a.key)) // with its collection
	a.remove(g.Tx)
	g.Tx.Clear(a.valueKey)
	a.due.Done, a.due.Returned = true, true
	return g.ReturnStaged(read, value)
}
