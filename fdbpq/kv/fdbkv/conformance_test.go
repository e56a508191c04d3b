//go:build fdb

package fdbkv_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/testenv"
)

// FoundationDB passes the suite of every store.
func TestConformance(t *testing.T) {
	clusterFile := testenv.FDBClusterFile(t)
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			return func() kv.Database { return open(t, clusterFile) }
		},
		Persistent: true,
	})
}
