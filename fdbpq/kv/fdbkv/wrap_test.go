//go:build fdb

package fdbkv_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
}

// TestWrapCommitsWithItsOwner: what was done through Wrap and what was done
// through the binding commit together.
func TestWrapCommitsWithItsOwner(t *testing.T) {
	db := openOwn(t)
	queue := fdbpq.NewPriorityQueue(db.subspace.Sub("queue"), fdbpq.RawValues)
	done := fdb.Key(db.subspace.Pack(tuple.Tuple{"done"}))

	db.transact(t, func(tr fdb.Transaction) error {
		tx := fdbkv.Wrap(tr)
		defer tx.Cancel() // ends the use of tx only
		_, err := queue.Push(tx, 7, fdbpq.Message{Value: []byte("job")})
		tr.Set(done, []byte("no"))
		return err
	})
	db.transact(t, func(tr fdb.Transaction) error {
		item, err := queue.PopMin(fdbkv.Wrap(tr))
		if err != nil {
			return err
		}
		if item.ID.Priority != 7 || string(item.Value) != "job" {
			t.Errorf("popped %+v, want the job with priority 7", item)
		}
		tr.Set(done, []byte("yes"))
		return nil
	})
	db.transact(t, func(tr fdb.Transaction) error {
		if got, err := tr.Get(done).Get(); err != nil || string(got) != "yes" {
			t.Errorf("read %q, %v, want yes", got, err)
		}
		if _, err := queue.PopMin(fdbkv.Wrap(tr)); !errors.Is(err, fdbpq.ErrEmpty) {
			t.Errorf("PopMin returned %v, want ErrEmpty", err)
		}
		return nil
	})
}

func TestWrappedIsNotCommittedByUs(t *testing.T) {
	db := openOwn(t)
	key := db.subspace.Pack(tuple.Tuple{"key"})
	tr, err := db.CreateTransaction()
	if err != nil {
		t.Fatal(err)
	}
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

// TestOwnersLoopRetriesConflicts: errors that come out of a wrapped transaction
// lead the binding's own loop to try again.
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
