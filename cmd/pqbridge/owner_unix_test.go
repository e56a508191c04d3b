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

// An error about permissions of the store's folder says what to do: about the folder if it is
// there, and else how somebody makes it who may.
func TestFolderOfSomebodyElse(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(closed, 0o500))
	own := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())

	for folder, advice := range map[string]string{
		closed: "as in chown -R " + own + " " + closed,
		closed + "/data": "it cannot make a folder in " + closed + ", so make one for it there, " +
			"as in mkdir -p " + closed + "/data && chown " + own + " " + closed + "/data",
	} {
		c := defaultConfig()
		c.DataDir = folder
		var err error

		if os.Getuid() == 0 { // root may do it, so this is the error of others
			denied := &fs.PathError{Op: "mkdir", Path: folder, Err: fs.ErrPermission}
			err = explainPermission(fmt.Errorf("make the folder: %w", denied), folder)
		} else {
			_, err = openStore(c, slog.New(slog.DiscardHandler))
		}

		if err == nil {
			t.Fatal("no error")
		}
		wantWords(t, err.Error(), "permission denied", advice,
			"runs as user "+strings.Replace(own, ":", " and group ", 1), "docker run --user",
			"--tmpfs "+folder+":uid=")
	}
}

// If the backup cannot be read, the advice of -restore is about the backup, not about the store.
func TestBackupOfSomebodyElse(t *testing.T) {
	backup := t.TempDir()
	denied := &fs.PathError{Op: "open", Path: backup + "/000012.sst", Err: fs.ErrPermission}

	err := explainPermission(fmt.Errorf("restore: %w", denied), "/data", backup)

	wantWords(t, err.Error(),
		"chown -R "+fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())+" "+backup)
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
