//go:build fdb

package fdbkv

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// BeginLate is Begin without the wait for the read version, for clusters that fall silent
// afterwards.
func (db *DB) BeginLate(ctx context.Context) (kv.Transaction, error) { return db.begin(ctx, false) }
