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

// wantOwnerOnly checks the rights of a folder and of all that is in it.
func wantOwnerOnly(t *testing.T, dir string) (names string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if os.IsNotExist(err) {
			return nil // Pebble removed it meanwhile.
		}
		if err == nil && info.Mode().Perm()&others != 0 {
			t.Errorf("%s has the rights %v", path, info.Mode())
		}
		names += filepath.Base(path) + " "
		return err
	})

	must(t, err)
	return names
}

// Nobody but the owner can read a store, whoever made it.
func TestOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	open := func() *DB { return openTestDir(t, dir, Options{MemTableSize: minMemTableSize}) }
	db := open()
	writeUntil(t, db, func() bool {
		tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
		_, err := os.Stat(filepath.Join(dir, reserveName))
		return len(tables) > 0 && err == nil
	})
	names := wantOwnerOnly(t, dir)
	for _, want := range []string{".log", ".sst", "LOCK", "MANIFEST", "OPTIONS", "marker", reserveName, commitMarkName} {
		if !strings.Contains(names, want) {
			t.Errorf("no %s among %s", want, names)
		}
	}
	mustClose(t, db)

	// As earlier versions made it.
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	must(t, err)
	open()
	wantOwnerOnly(t, dir)
}

// A folder whose rights we may not change is used as it is, with a warning.
func TestFolderOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o770))
	var log bytes.Buffer
	tighten(dir, func(string, fs.FileMode) error { return fs.ErrPermission }, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), dir) {
		t.Errorf("logged %q", log.String())
	}
}
