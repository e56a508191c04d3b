package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// single is the result of a single operation.
type single struct {
	result Result
	err    error
}

// applyOne runs a single operation in the caller's transaction.
func applyOne(tx kv.Transaction, op Op) single {
	results, err := Apply(tx, []Op{op}, time.Now())
	if err != nil {
		return single{err: err}
	}
	return single{results[0], results[0].Err}
}

// readOne runs a single peek or len.
func readOne(r kv.Reader, op Op) single {
	results, err := Read(r, []Op{op})
	if err != nil {
		return single{err: err}
	}
	return single{results[0], results[0].Err}
}

func (o single) id() (ID, error) { return o.result.Item.ID, o.err }
func (o single) pushed() (ID, bool, error) {
	return o.result.Item.ID, o.result.Duplicate, o.err
}
func (o single) item() (Item, error) { return o.result.Item, o.err }
func (o single) lease() (Item, Lease, error) {
	return o.result.Item, o.result.Lease, o.err
}
func (o single) settings() (Settings, error) {
	if o.err != nil {
		return Settings{}, o.err
	}
	return *o.result.Settings, nil
}
func (o single) length() (int64, error) { return o.result.Len, o.err }
func (o single) info() (Info, error) {
	if o.err != nil {
		return Info{}, o.err
	}
	return *o.result.Info, nil
}
func (o single) itemState() (Item, ItemState, error) { return o.result.Item, o.result.State, o.err }
func (o single) rank() (int64, bool, error)          { return o.result.Rank, o.result.RankAtLeast, o.err }
func (o single) progress() (Progress, error)         { return o.result.Progress, o.err }
