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

// Whoever may not use the folder of the store learns what to do.
func TestFolderOfSomebodyElse(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(closed, 0o500))
	c := defaultConfig()
	c.DataDir = filepath.Join(closed, "data")
	var err error
	if os.Getuid() == 0 { // root may do it, so this is the error of others
		err = explainPermission(fmt.Errorf("make the folder: %w", &fs.PathError{Op: "mkdir", Path: c.DataDir, Err: fs.ErrPermission}), c.DataDir)
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
