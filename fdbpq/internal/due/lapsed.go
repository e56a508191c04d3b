package due

import (
	"bytes"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// lapsed is a key that is removed once it is due, and no more: the row of a rate that allows a full
// burst again (see state.Bucket), or a consumer that nobody uses.
type lapsed struct {
	dueRecord
	due   *Due
	value kv.Future[[]byte]
	until func(value []byte) time.Time // when it falls due
}

// removeLapsed removes keys with their entries. An entry whose key has another time goes alone.
func removeLapsed(all []*lapsed) error {
	for _, r := range all {
		value, err := r.value.Get()
		if err != nil {
			return err
		}

		g := r.due.Ledger
		if value != nil && bytes.Equal(g.L.DueKey(r.until(value), r.key), r.entry) {
			g.Tx.Clear(r.key)
		}
		g.Tx.Clear(r.entry)
		r.due.Done = true
	}
	return nil
}
