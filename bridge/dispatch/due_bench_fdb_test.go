//go:build fdb

package dispatch

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/fdbserver"
)

func init() {
	dueStores["fdbkv"] = func(b *testing.B) (kv.Database, error) {
		server, err := fdbserver.Start(b.TempDir(), fdbserver.SSD)
		if err != nil {
			return nil, err
		}
		b.Cleanup(func() {
			if err := server.Stop(); err != nil {
				b.Error(err)
			}
		})
		return fdbkv.Open(fdbkv.Options{ClusterFile: server.ClusterFile()})
	}
}
