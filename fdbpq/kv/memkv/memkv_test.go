package memkv_test

import (
	"errors"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The store in memory passes the suite of every store.
func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			return func() kv.Database { return memkv.New(memkv.Options{}) }
		},
	})
}

// put commits one write in a transaction of its own.
func put(t *testing.T, db kv.Database, key, value string) {
	t.Helper()
	tx := begin(t, db)
	tx.Set([]byte(key), []byte(value))
	wantErr(t, "put", commit(tx), nil)
}

func commit(tx kv.Transaction) error {
	_, err := tx.Commit().Get()
	return err
}

func get(r kv.Reader) error {
	_, err := r.Get([]byte("read")).Get()
	return err
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s returned %v, want %v", what, err, want)
	}
}

func begin(t *testing.T, db kv.Database) kv.Transaction {
	t.Helper()
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return tx
}

// A transaction that began before the oldest commit kept fails as too old.
func TestTransactionOlderThanHistoryIsTooOld(t *testing.T) {
	db := memkv.New(memkv.Options{History: 3})
	put(t, db, "read", "1")

	writer, blind, readOnly := begin(t, db), begin(t, db), begin(t, db)
	reader, err := db.BeginRead(t.Context())
	wantErr(t, "BeginRead", err, nil)
	wantErr(t, "Get", errors.Join(get(writer), get(readOnly)), nil)

	for range 3 {
		put(t, db, "other", "1")
	}
	wantErr(t, "Get as old as the history", errors.Join(get(writer), get(reader)), nil)

	put(t, db, "other", "1")
	for _, r := range []kv.Reader{writer, writer.Snapshot(), reader} {
		wantErr(t, "Get", get(r), kv.ErrTooOld)
	}

	writer.Set([]byte("written"), nil)
	wantErr(t, "Commit", commit(writer), kv.ErrTooOld)

	if value, err := begin(t, db).Get([]byte("written")).Get(); err != nil || value != nil {
		t.Errorf("the transaction that is too old wrote %q (error %v)", value, err)
	}

	// Without reads nothing can be outdated; without writes nothing is checked.
	blind.Set([]byte("blind"), nil)
	wantErr(t, "Commit of a blind write", commit(blind), nil)
	wantErr(t, "Commit without writes", commit(readOnly), nil)
}

// A conflict with the oldest commit kept is still found.
func TestConflictAtTheEndOfHistoryIsFound(t *testing.T) {
	db := memkv.New(memkv.Options{History: 2})
	put(t, db, "other", "1")

	tx := begin(t, db)
	wantErr(t, "Get", get(tx), nil)

	put(t, db, "read", "1")
	put(t, db, "other", "1")
	tx.Set([]byte("written"), nil)

	wantErr(t, "Commit", commit(tx), kv.ErrConflict)
}
