//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A commit that is refused, because the context has ended, still ends the transaction and frees it.
func TestRefusedCommitReleases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fdb.cluster")
	if err := os.WriteFile(file, []byte("none:none@127.0.0.1:1"), 0o600); err != nil {
		t.Fatal(err)
	}

	db, err := Open(Options{ClusterFile: file})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}

	released := 0
	release := tx.release

	tx.release = func() {
		release()
		released++
	}

	cancel()
	if _, err := tx.Commit().Get(); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit returned %v, want context.Canceled", err)
	}
	if released != 1 {
		t.Errorf("the transaction was released %d times, want 1", released)
	}
}
