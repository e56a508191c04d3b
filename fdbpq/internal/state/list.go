package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// AddToList lists the queue, without a mark.
func AddToList(l *codec.Layout, tx kv.Transaction, now time.Time) {
	tx.Set(l.ListKey(), tuple.Tuple{now.UnixMicro()}.Pack())
}

// AddToList lists the queue of the ledger, without a mark.
func (g *Ledger) AddToList() {
	AddToList(g.L, g.Tx, g.Now)
	g.wrote = true
}

// ListNames starts to read up to limit names after the given one.
func ListNames(l *codec.List, r kv.Reader, after string, limit int) kv.Future[[]string] {
	span := codec.Within([]byte(l.Prefix))
	if after != "" {
		span.Begin = kv.SingleKey(tuple.AppendString([]byte(l.Prefix), after)).End
	}
	entries := r.GetRange(span, kv.RangeOptions{Limit: limit})
	return later[[]string](func() ([]string, error) {
		pairs, err := entries.Get()
		if err != nil {
			return nil, err
		}

		names := make([]string, len(pairs))
		for i, pair := range pairs {
			if names[i], err = l.Name(pair.Key); err != nil {
				return nil, err
			}
		}
		return names, nil
	})
}
