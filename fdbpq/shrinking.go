package fdbpq

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// shrinking is a store for transactions that remove items or put them back. They must
// go on when the disk is nearly full: the receipt or claim of a pop can be larger than the
// item that it removes, and no pop runs before popped items are back.
type shrinking struct{ kv.Database }

// Begin implements kv.Database.
func (s shrinking) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	o.Shrinks = true
	return s.Database.Begin(ctx, o)
}
