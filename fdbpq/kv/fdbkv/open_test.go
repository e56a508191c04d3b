//go:build fdb

package fdbkv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// silentCluster returns the cluster file of a cluster that takes connections
// and never answers, and a channel that is closed when a client has connected.
func silentCluster(t *testing.T) (clusterFile string, connected <-chan struct{}) {
	t.Helper()
	return fakeCluster(t, func(int) []byte { return nil })
}

// fakeCluster is silentCluster, but it says hello to each client that connects, with its port.
func fakeCluster(
	t *testing.T, hello func(port int) []byte,
) (clusterFile string, connected <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	accepted, done := make(chan struct{}), make(chan struct{})

	go func() {
		defer close(done)
		for first := true; ; first = false {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Write(hello(listener.Addr().(*net.TCPAddr).Port))

			if first {
				close(accepted)
			}
		}
	}()

	t.Cleanup(func() {
		listener.Close()
		<-done
	})

	clusterFile = filepath.Join(t.TempDir(), "fdb.cluster")
	must(t, os.WriteFile(clusterFile, []byte("silent:silent@"+listener.Addr().String()), 0o600))
	return clusterFile, accepted
}

// A cluster file that is not there is refused by Open.
func TestOpenMissingClusterFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "fdb.cluster")
	if _, err := fdbkv.Open(fdbkv.Options{ClusterFile: missing}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open returned %v, want fs.ErrNotExist", err)
	}
}

// With a cluster file that makes no sense, reads fail instead of waiting.
func TestBrokenClusterFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fdb.cluster")
	must(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	db := open(t, file)
	defer db.Close()

	_, err := kv.ReadTransact(t.Context(), db,
		func(r kv.Reader) ([]byte, error) { return r.Get([]byte("a")).Get() })
	if !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("a read returned %v, want ErrUnavailable", err)
	}
}

// A process uses one API version: Open with another is refused.
func TestOneAPIVersion(t *testing.T) {
	clusterFile, _ := silentCluster(t)
	open(t, clusterFile).Close()
	open(t, clusterFile).Close()

	_, err := fdbkv.Open(fdbkv.Options{ClusterFile: clusterFile, APIVersion: 620})
	if err == nil || !strings.Contains(err.Error(), "620") ||
		!strings.Contains(err.Error(), "730") {
		t.Errorf("Open with another API version returned %v, want an error that names both", err)
	}
}

// hello is what a server of a release that no client library knows says to a client.
func hello(port int) []byte {
	const size, protocolVersion = 40, 0x1FDB00B0FF000000
	b := binary.LittleEndian.AppendUint32(nil, size)
	b = binary.LittleEndian.AppendUint64(b, protocolVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(port))

	return append(b, make([]byte, size-10)...) // the rest of its address
}

// A cluster of another release than the client library is named as the reason that nothing works.
func TestIncompatibleCluster(t *testing.T) {
	clusterFile, _ := fakeCluster(t, hello)
	db := open(t, clusterFile)
	defer db.Close()

	err := kv.View(t.Context(), db, func(r kv.Reader) error {
		_, err := r.Get([]byte("a")).Get()
		return err
	})

	if !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "another release") {
		t.Errorf("a read returned %v, want ErrUnavailable and the reason", err)
	}
}

// shortLived is a transaction that has written, on a cluster that does not
// answer, and may live for only a moment.
func shortLived(t *testing.T) kv.Transaction {
	t.Helper()
	clusterFile, _ := silentCluster(t)
	db, err := fdbkv.Open(
		fdbkv.Options{ClusterFile: clusterFile, TransactionTimeout: 50 * time.Millisecond})
	must(t, err)

	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginLate(t.Context())
	must(t, err)

	t.Cleanup(tx.Cancel)
	tx.Set([]byte("a"), nil)
	return tx
}

// The transaction's own time limit ends a read, and leaves no doubt that nothing was written.
func TestTimeoutBeforeCommit(t *testing.T) {
	tx := shortLived(t)
	read := tx.Get([]byte("b"))

	for range 2 {
		if _, err := read.Get(); !errors.Is(err, kv.ErrUnavailable) || kv.MaybeCommitted(err) {
			t.Errorf("the read returned %v, want ErrUnavailable", err)
		}
	}
}

// Begin waits for the read version, for as long as a transaction may take.
func TestBeginWaits(t *testing.T) {
	clusterFile, _ := silentCluster(t)
	db, err := fdbkv.Open(
		fdbkv.Options{ClusterFile: clusterFile, TransactionTimeout: 50 * time.Millisecond})
	must(t, err)
	defer db.Close()
	_, err = db.Begin(t.Context(), kv.BeginOptions{})
	if !errors.Is(err, kv.ErrUnavailable) || kv.MaybeCommitted(err) {
		t.Errorf("Begin returned %v, want ErrUnavailable", err)
	}
}

// Once a commit is under way the time limit leaves its outcome open.
func TestTimeoutDuringCommit(t *testing.T) {
	tx := shortLived(t)
	if _, err := tx.Commit().Get(); !kv.MaybeCommitted(err) {
		t.Errorf("Commit returned %v, want ErrCommitUnknown", err)
	}
}

// endings are the ways a transaction under way is ended from outside.
var endings = map[string]struct {
	end  func(db *fdbkv.DB, cancel context.CancelFunc)
	want error
}{
	"Context": {func(_ *fdbkv.DB, cancel context.CancelFunc) { cancel() }, context.Canceled},
	"Close":   {func(db *fdbkv.DB, _ context.CancelFunc) { db.Close() }, kv.ErrClosed},
}

// The end of the context, or of the database, ends reads and commits that wait for a cluster that
// does not answer.
func TestEndedWhileWaiting(t *testing.T) {
	for name, ending := range endings {
		t.Run(name, func(t *testing.T) {
			clusterFile, connected := silentCluster(t)
			db := open(t, clusterFile)
			defer db.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			reading, err := db.BeginLate(ctx)
			must(t, err)
			defer reading.Cancel()
			committing, err := db.BeginLate(ctx)
			must(t, err)
			defer committing.Cancel()
			committing.Set([]byte("a"), nil)
			get, list := reading.Get([]byte("a")), reading.Snapshot().
				GetRange(kv.Range{End: []byte("b")}, kv.RangeOptions{})
			commit := committing.Commit()

			go func() {
				<-connected
				ending.end(db, cancel)
			}()
			if _, err := get.Get(); !errors.Is(err, ending.want) || kv.MaybeCommitted(err) {
				t.Errorf("Get returned %v, want %v", err, ending.want)
			}

			if _, err := list.Get(); !errors.Is(err, ending.want) || kv.MaybeCommitted(err) {
				t.Errorf("GetRange returned %v, want %v", err, ending.want)
			}
			if _, err := commit.Get(); !errors.Is(err, ending.want) || !kv.MaybeCommitted(err) {
				t.Errorf("Commit returned %v, want %v and ErrCommitUnknown", err, ending.want)
			}
		})
	}
}

// A read that is still under way when its transaction is cancelled ends with it.
func TestCancelEndsReads(t *testing.T) {
	clusterFile, _ := silentCluster(t)
	db := open(t, clusterFile)
	defer db.Close()
	tx, err := db.BeginRead(t.Context())
	must(t, err)

	read := tx.Get([]byte("a"))
	tx.Cancel()
	if _, err := read.Get(); !errors.Is(err, kv.ErrUsed) {
		t.Errorf("the read returned %v, want ErrUsed", err)
	}
}

// open returns a database that the caller closes.
func open(t *testing.T, clusterFile string) *fdbkv.DB {
	t.Helper()
	db, err := fdbkv.Open(
		fdbkv.Options{ClusterFile: clusterFile, TransactionTimeout: testenv.Patience})
	must(t, err)
	return db
}
