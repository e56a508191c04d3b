package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// FirstHistory starts to read the first history of an item in the queue. If there is none,
// which is usual, pops need not read those of their items. It reads without conflict: see
// ReadHistory.
func (g *Ledger) FirstHistory() kv.Future[[]kv.KeyValue] {
	if g.Facts != nil && g.Facts.noHistories {
		return Nothing
	}
	first := g.Tx.Snapshot().GetRange(g.L.KindRange(codec.KindHistory), kv.RangeOptions{Limit: 1})
	if g.Facts != nil {
		pairs, err := first.Get()
		g.Facts.noHistories = err == nil && len(pairs) == 0
	}
	return first
}

// Nothing is the result of reading a range that is known to be empty.
var Nothing = kv.Ready[[]kv.KeyValue](nil, nil)

// ReadHistory starts to read the history of an item that is to be taken. It reads without
// conflict, because an item and its history are written together.
func ReadHistory(l *codec.Layout, tx kv.Transaction, id *codec.ID) kv.Future[[]byte] {
	return tx.Snapshot().Get(l.HistoryKey(id))
}
