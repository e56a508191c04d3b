//go:build fdb

package fdbkv_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
)

// own is a part of the cluster of one test, used through the binding.
type own struct {
	fdb.Database
	subspace tuple.Subspace
}

// openOwn returns an empty part of the cluster that is cleared afterwards.
func openOwn(t *testing.T) own {
	t.Helper()
	clusterFile := testenv.FDBClusterFile(t)
	open(t, clusterFile).Close() // chooses the API version
	db, err := fdb.OpenDatabase(clusterFile)
	must(t, err)

	o := own{db, tuple.NewSubspace(tuple.Tuple{"fdbkv test", rand.Text()})}
	t.Cleanup(func() {
		begin, end := o.subspace.Range()
		o.transact(t, func(tr fdb.Transaction) error {
			tr.ClearRange(fdb.KeyRange{Begin: fdb.Key(begin), End: fdb.Key(end)})
			return nil
		})
	})

	return o
}

// transact runs fn in the binding's retry loop.
func (o own) transact(t *testing.T, fn func(fdb.Transaction) error) {
	t.Helper()
	_, err := o.Transact(func(tr fdb.Transaction) (any, error) { return nil, fn(tr) })
	must(t, err)
}

// A wrapped transaction is committed by its owner only.
func TestWrappedIsNotCommittedByUs(t *testing.T) {
	db := openOwn(t)
	key := db.subspace.Pack(tuple.Tuple{"key"})
	tr, err := db.CreateTransaction()
	must(t, err)
	defer tr.Cancel()
	tx := fdbkv.Wrap(tr)
	tx.Set(key, []byte("1"))

	if _, err := tx.Commit().Get(); !errors.Is(err, fdbkv.ErrOwnerCommits) {
		t.Errorf("Commit returned %v, want ErrOwnerCommits", err)
	}
	if got, err := tx.Get(key).Get(); err != nil || !bytes.Equal(got, []byte("1")) {
		t.Errorf("after it Get returned %q, %v, want 1", got, err)
	}

	tx.Cancel()
	if _, err := tx.Get(key).Get(); !errors.Is(err, kv.ErrUsed) {
		t.Errorf("after Cancel Get returned %v, want ErrUsed", err)
	}

	if err := tr.Commit().Get(); err != nil {
		t.Errorf("the owner's Commit: %v", err)
	}
}

// Errors that come out of a wrapped transaction lead the binding's own loop to try again.
func TestOwnersLoopRetriesConflicts(t *testing.T) {
	db := openOwn(t)
	key := db.subspace.Pack(tuple.Tuple{"key"})
	attempts := 0

	db.transact(t, func(tr fdb.Transaction) error {
		attempts++
		tx := fdbkv.Wrap(tr)

		if _, err := tx.Get(key).Get(); err != nil {
			return err
		}

		if attempts == 1 {
			// Cancelling the owner's transaction is no reason to try again, so
			// have another one write what this one read.
			db.transact(t, func(other fdb.Transaction) error {
				fdbkv.Wrap(other).Set(key, []byte("other"))
				return nil
			})
		}

		tx.Set(key, []byte("ours"))
		return nil
	})
	if attempts != 2 {
		t.Errorf("it took %d attempts, want 2", attempts)
	}
}

// The binding's subspaces and directories can hold queues.
var (
	_ fdbpq.Subspace = subspace.Subspace(nil)
	_ fdbpq.Subspace = directory.DirectorySubspace(nil)
)

// Peeks run in the binding's loop for reads, and through a snapshot, which lets others write the
// same keys.
func TestWrapRead(t *testing.T) {
	db := openOwn(t)
	queue := fdbpq.NewPriorityQueue(subspace.FromBytes(db.subspace.Bytes()), fdbpq.RawValues)

	push := func(value string) {
		db.transact(t, func(tr fdb.Transaction) error {
			_, err := queue.Push(fdbkv.Wrap(tr), 7, fdbpq.Message{Value: []byte(value)})
			return err
		})
	}

	peek := func(rt fdb.ReadTransaction) (any, error) {
		item, err := queue.PeekMin(fdbkv.WrapRead(rt))
		return string(item.Value), err
	}
	if _, err := db.ReadTransact(peek); !errors.Is(err, fdbpq.ErrEmpty) {
		t.Errorf("PeekMin of nothing returned %v, want ErrEmpty", err)
	}

	push("first")
	push("second")
	if got, err := db.ReadTransact(peek); err != nil || got != "first" {
		t.Errorf("PeekMin returned %q, %v, want first", got, err)
	}

	attempts := 0
	db.transact(t, func(tr fdb.Transaction) error {
		attempts++
		if got, err := peek(tr.Snapshot()); err != nil || got != "first" {
			t.Errorf("through a snapshot PeekMin returned %q, %v, want first", got, err)
		}

		if attempts == 1 {
			db.transact(t, func(other fdb.Transaction) error {
				queue.Clear(fdbkv.Wrap(other))
				_, err := queue.Push(fdbkv.Wrap(other), 0, fdbpq.Message{Value: []byte("first")})
				return err
			})
		}

		tr.Set(fdb.Key(db.subspace.Pack(tuple.Tuple{"other"})), nil)
		return nil
	})
	if attempts != 1 {
		t.Errorf("a read through a snapshot made the transaction conflict")
	}
}

// A DB for a database of the program works, and the database outlives it.
func TestNewOnAnOpenDatabase(t *testing.T) {
	db := openOwn(t)
	key := db.subspace.Pack(tuple.Tuple{"key"})
	store, err := fdbkv.New(db.Database, testenv.Patience)
	must(t, err)

	set := func(value []byte) error {
		_, err := kv.Transact(t.Context(), store, func(tx kv.Transaction) (struct{}, error) {
			tx.Set(key, value)
			return struct{}{}, nil
		})
		return err
	}
	must(t, set([]byte("1")))
	must(t, store.Close())

	if err := set(nil); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("after Close it returned %v, want ErrClosed", err)
	}

	db.transact(t, func(tr fdb.Transaction) error {
		if got, err := tr.Get(fdb.Key(key)).Get(); err != nil || string(got) != "1" {
			t.Errorf("after Close the program reads %q, %v, want 1", got, err)
		}
		return nil
	})
}

// New refuses a negative timeout, and a database that was never opened.
func TestNewRefuses(t *testing.T) {
	for want, timeout := range map[string]time.Duration{
		"TransactionTimeout": -1,
		"never opened":       0,
	} {
		_, err := fdbkv.New(fdb.Database{}, timeout)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New with %v returned %v, want an error about %s", timeout, err, want)
		}
	}
}
