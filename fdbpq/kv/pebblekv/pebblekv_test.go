package pebblekv_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			dir := t.TempDir()
			return func() kv.Database {
				db, err := pebblekv.Open(dir, pebblekv.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return db
			}
		},
		Persistent: true,
		Serial:     true,
	})
}
