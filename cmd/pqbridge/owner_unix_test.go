//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error about permissions of the store's folder says what to do.
func TestFolderOfSomebodyElse(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(closed, 0o500))
	c := defaultConfig()
	c.DataDir = filepath.Join(closed, "data")
	var err error

	if os.Getuid() == 0 { // root may do it, so this is the error of others
		denied := &fs.PathError{Op: "mkdir", Path: c.DataDir, Err: fs.ErrPermission}
		err = explainPermission(fmt.Errorf("make the folder: %w", denied), c.DataDir)
	} else {
		_, err = openStore(c, slog.New(slog.DiscardHandler))
	}

	own := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	if err == nil {
		t.Fatal("no error")
	}
	wantWords(t, err.Error(), "permission denied",
		"runs as user "+strings.Replace(own, ":", " and group ", 1),
		"chown -R "+own+" "+c.DataDir, "docker run --user", "--tmpfs "+c.DataDir+":uid=")
}

// If the backup cannot be read, the advice of -restore is about the backup, not about the store.
func TestBackupOfSomebodyElse(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/backup/monday", Err: fs.ErrPermission}

	err := explainPermission(fmt.Errorf("restore: %w", denied), "/data", "/backup/monday")

	wantWords(t, err.Error(),
		"chown -R "+fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())+" /backup/monday")
	if strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("a tmpfs for backups: %v", err)
	}
}

// An error about permissions of the folder of backups says what to do, too.
func TestBackupFolderOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	data, backups := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	must(t, os.Mkdir(backups, 0o500))

	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}

	startDev(t, "PQ_DATA_DIR="+data)

	refuses(t, []string{"-backup", backups, "-keep", "2"}, []string{"PQ_DATA_DIR=" + data},
		"permission denied", "chown -R", backups)
}
