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
	if _, err := tx.Commit().Get(); err != nil {
		t.Fatal(err)
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

func TestTransactionOlderThanHistoryIsTooOld(t *testing.T) {
	db := memkv.New(memkv.Options{History: 3})
	key := []byte("read")
	put(t, db, "read", "1")

	writer, blind, readOnly := begin(t, db), begin(t, db), begin(t, db)
	reader, err := db.BeginRead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range []kv.Transaction{writer, readOnly} {
		if _, err := tx.Get(key).Get(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		put(t, db, "other", "1")
	}
	for _, r := range []kv.Reader{writer, reader} {
		if _, err := r.Get(key).Get(); err != nil {
			t.Errorf("Get as old as the history returned %v", err)
		}
	}

	put(t, db, "other", "1")
	for _, r := range []kv.Reader{writer, writer.Snapshot(), reader} {
		if _, err := r.Get(key).Get(); !errors.Is(err, kv.ErrTooOld) {
			t.Errorf("Get returned %v, want ErrTooOld", err)
		}
	}
	writer.Set([]byte("written"), nil)
	if _, err := writer.Commit().Get(); !errors.Is(err, kv.ErrTooOld) {
		t.Errorf("Commit returned %v, want ErrTooOld", err)
	}
	if value, err := begin(t, db).Get([]byte("written")).Get(); err != nil || value != nil {
		t.Errorf("the transaction that is too old wrote %q (error %v)", value, err)
	}

	// Without reads nothing can be outdated; without writes nothing is checked.
	blind.Set([]byte("blind"), nil)
	if _, err := blind.Commit().Get(); err != nil {
		t.Errorf("Commit of a blind write returned %v", err)
	}
	if _, err := readOnly.Commit().Get(); err != nil {
		t.Errorf("Commit without writes returned %v", err)
	}
}

func TestConflictAtTheEndOfHistoryIsFound(t *testing.T) {
	db := memkv.New(memkv.Options{History: 2})
	put(t, db, "other", "1")
	tx := begin(t, db)
	if _, err := tx.Get([]byte("read")).Get(); err != nil {
		t.Fatal(err)
	}
	put(t, db, "read", "1")
	put(t, db, "other", "1")
	tx.Set([]byte("written"), nil)
	if _, err := tx.Commit().Get(); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("Commit returned %v, want ErrConflict", err)
	}
}
