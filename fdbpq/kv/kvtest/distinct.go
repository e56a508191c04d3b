package kvtest

import (
	"context"
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Distinct is a store that a test can tell from the default one, to see what a decorator
// forwards.
type Distinct struct {
	kv.Database
	// Began is what Begin was called with last.
	Began kv.BeginOptions
}

// ErrCheck is what the Check of a Distinct store returns.
var ErrCheck = errors.New("checked")

// Traits implements kv.Database: all of them are true.
func (d *Distinct) Traits() kv.Traits { return kv.Traits{Pipelines: true, Serial: true, Shared: true} }

// Check implements kv.Database.
func (d *Distinct) Check() error { return ErrCheck }

// Begin implements kv.Database.
func (d *Distinct) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	d.Began = o
	return d.Database.Begin(ctx, o)
}
