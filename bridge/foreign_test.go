package bridge_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// writeForeign adds an item as the recipe's own client does: the key is
// ("pq", queue, "i", priority, count, 20 random bytes).
func writeForeign(t *testing.T, db kv.Database, queue string, priority int64, value string) {
	t.Helper()
	key := tuple.Tuple{"pq", queue, "i", priority, int64(0), []byte("01234567890123456789")}.Pack()
	err := kv.Update(t.Context(), db, func(tx kv.Transaction) error {
		tx.Set(key, []byte(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
