//go:build unix

package pebblekv

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only its owner can use the folder of a store, also one that was made by others.
func TestOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	for range 2 {
		mustClose(t, openTestDir(t, dir, Options{}))
		info, err := os.Stat(dir)
		must(t, err)

		if rights := info.Mode().Perm(); rights&othersMask != 0 {
			t.Errorf("the folder has the rights %v", rights)
		}
		must(t, os.Chmod(dir, 0o755))
	}
}

// A folder whose rights we may not change is used as it is, with a warning.
func TestFolderOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o770))
	var log bytes.Buffer
	tighten(dir, func(string, fs.FileMode) error { return fs.ErrPermission },
		slog.New(slog.NewTextHandler(&log, nil)))

	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), dir) {
		t.Errorf("logged %q", log.String())
	}
}
