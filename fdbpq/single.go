package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// applyOne runs a single operation in the caller's transaction. Result.Err is any error.
func applyOne(tx kv.Transaction, op Op) Result { return first(Apply(tx, []Op{op}, time.Now())) }

// readOne is applyOne for operations that only read.
func readOne(r kv.Reader, op Op) Result { return first(Read(r, []Op{op})) }

func first(results []Result, err error) Result {
	if err != nil {
		return Result{Err: err}
	}
	return results[0]
}

func (r Result) id() (ID, error)                     { return r.Item.ID, r.Err }
func (r Result) pushed() (ID, bool, error)           { return r.Item.ID, r.Duplicate, r.Err }
func (r Result) item() (Item, error)                 { return r.Item, r.Err }
func (r Result) itemState() (Item, ItemState, error) { return r.Item, r.State, r.Err }
func (r Result) lease() (Item, Lease, error)         { return r.Item, r.Lease, r.Err }
func (r Result) rank() (int64, bool, error)          { return r.Rank, r.RankAtLeast, r.Err }

// orZero returns what p points to, if there is no error.
func orZero[V any](p *V, err error) (v V, _ error) {
	if err == nil {
		v = *p
	}
	return v, err
}
