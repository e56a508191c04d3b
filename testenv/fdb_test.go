//go:build fdb

package testenv_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv"
)

func set(ctx context.Context, db kv.Database, key string) error {
	return kv.UpdateIdempotent(ctx, db, func(tx kv.Transaction) error {
		tx.Set([]byte(key), []byte("1"))
		return nil
	})
}

// keys returns all keys of db.
func keys(t *testing.T, db kv.Database) []string {
	t.Helper()
	pairs, err := kv.ReadTransact(t.Context(), db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(kv.Range{End: []byte("\xff")}, kv.RangeOptions{}).Get()
	})
	must(t, err)
	var keys []string

	for _, pair := range pairs {
		keys = append(keys, string(pair.Key))
	}

	return keys
}

func openFDB(t *testing.T, o fdbkv.Options) kv.Database {
	t.Helper()
	db, err := fdbkv.Open(o)
	must(t, err)
	t.Cleanup(func() { db.Close() })

	return db
}

// Each database is empty at first, sees only its own keys, and leaves nothing behind, even if the
// test closed it.
func TestFDBDatabasesAreApart(t *testing.T) {
	key := rand.Text()
	t.Run("Use", func(t *testing.T) {
		a, b := testenv.FDB(t), testenv.FDB(t)
		must(t, set(t.Context(), a, key))
		if got := keys(t, a); len(got) != 1 || got[0] != key {
			t.Errorf("it holds %q, want %q", got, key)
		}

		if got := keys(t, b); len(got) != 0 {
			t.Errorf("the other one holds %q, want nothing", got)
		}

		a.Close()
	})

	all := openFDB(t, fdbkv.Options{ClusterFile: testenv.FDBClusterFile(t)})
	for _, found := range keys(t, all) {
		if strings.Contains(found, key) {
			t.Errorf("%q is left behind", found)
		}
	}
}

// A server that was killed keeps its data, and answers again once it is restarted.
func TestFDBServerKilled(t *testing.T) {
	server := testenv.StartFDB(t, testenv.FDBSSD)
	patient := openFDB(t,
		fdbkv.Options{ClusterFile: server.ClusterFile(), TransactionTimeout: testenv.Patience})
	must(t, set(t.Context(), patient, "before"))
	must(t, server.Kill())

	if server.Running() {
		t.Error("Running returned true for a killed server")
	}

	hasty := openFDB(t, fdbkv.Options{
		ClusterFile:        server.ClusterFile(),
		TransactionTimeout: 100 * time.Millisecond,
	})

	err := kv.View(t.Context(), hasty, func(r kv.Reader) error {
		_, err := r.Get([]byte("before")).Get()
		return err
	})
	if !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("while it is down a read returned %v, want ErrUnavailable", err)
	}
	must(t, server.Restart())
	must(t, set(t.Context(), patient, "later"))

	if got := fmt.Sprint(keys(t, patient)); got != "[before later]" {
		t.Errorf("after the restart it holds %s, want [before later]", got)
	}
}

// A paused server answers nobody, and goes on when it is resumed.
func TestFDBServerPaused(t *testing.T) {
	server := testenv.StartFDB(t, testenv.FDBMemory)
	patient := openFDB(t,
		fdbkv.Options{ClusterFile: server.ClusterFile(), TransactionTimeout: testenv.Patience})
	must(t, set(t.Context(), patient, "before"))

	db := openFDB(t,
		fdbkv.Options{ClusterFile: server.ClusterFile(), TransactionTimeout: 5 * time.Second})
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	must(t, err)
	defer tx.Cancel()
	must(t, server.Pause())
	tx.Set([]byte("open"), nil)

	if _, err := tx.Commit().Get(); !kv.MaybeCommitted(err) {
		t.Errorf("while it is paused Commit returned %v, want ErrCommitUnknown", err)
	}
	must(t, server.Resume())
	must(t, set(t.Context(), patient, "later"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
