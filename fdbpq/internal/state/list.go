package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// AddToList lists the queue, without a mark, if it is in a Keyspace.
func (g *Ledger) AddToList() {
	if g.L.List != nil {
		g.Tx.Set(g.L.ListKey(), tuple.AppendInt(nil, g.Now.UnixMicro()))
		g.wrote = true
	}
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
