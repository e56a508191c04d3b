//go:build fdb

package dispatch

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/fdbserver"
)

func init() {
	lasting = append(lasting, goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb.executeWithRunningNetworkThread.func1"))
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
