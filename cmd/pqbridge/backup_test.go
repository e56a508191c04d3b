package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBackup: what was acknowledged before the backup is in it, and the copy is served while the
// original is. The command copies the store itself after a kill -9, which leaves the socket behind.
// Package pebblekv copies stores under load.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := "PQ_DATA_DIR=" + filepath.Join(dir, "data")
	c := startDev(t, data)
	backUp := func(to string) {
		t.Helper()
		dest := filepath.Join(dir, to)
		stdout, stderr, err := runCommand(t, []string{"-backup", dest}, []string{data})
		if err != nil || !strings.Contains(stdout, "backup in "+dest) {
			t.Errorf("%v, printed %q\n%s", err, stdout, stderr)
		}
	}
	items := func(c *command, values ...string) {
		t.Helper()
		for _, want := range values {
			pops(t, connect(t, c.nats), "pq.jobs.pop.min", want)
		}
	}
	request(t, connect(t, c.nats), "pq.jobs.push.1", "first")
	backUp("1")
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		info, gone := os.Lstat(path)
		if gone == nil && path != dir && info.Mode().Perm()&0o077 != 0 { // nobody but the owner may use it
			t.Errorf("%s has the rights %v", path, info.Mode())
		}
		return err
	}))
	copied := startDev(t, "PQ_DATA_DIR="+filepath.Join(dir, "1"))
	request(t, connect(t, copied.nats), "pq.jobs.push.2", "copy")
	request(t, connect(t, c.nats), "pq.jobs.push.2", "original")
	items(copied, "first", "copy")
	c.kill()
	if _, err := os.Lstat(filepath.Join(dir, "data", socketName)); err != nil {
		t.Error(err)
	}
	backUp("2")
	items(startDev(t, "PQ_DATA_DIR="+filepath.Join(dir, "2")), "first", "original")
}

// TestBackupErrors: each mistake has an error that says what is wrong, and nothing is made.
func TestBackupErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	c := startDev(t, "PQ_DATA_DIR="+data)
	for name, test := range map[string]struct {
		args, variables []string
		want            string
	}{
		"no name":          {[]string{"-backup", ""}, nil, "needs the name of a new folder"},
		"inside the store": {[]string{"-backup", filepath.Join(data, "b")}, nil, "inside the folder of the store"},
		"no store":         {[]string{"-backup", filepath.Join(dir, "b")}, []string{"PQ_DATA_DIR=" + filepath.Join(dir, "none")}, "no store"},
		"FoundationDB":     {[]string{"-backup", filepath.Join(dir, "b")}, []string{"PQ_STORE=fdb"}, "fdbbackup"},
		"two actions":      {[]string{"-backup", filepath.Join(dir, "b"), "-dev"}, nil, "only one"},
	} {
		t.Run(name, func(t *testing.T) {
			refuses(t, test.args, append([]string{"PQ_DATA_DIR=" + data}, test.variables...), test.want)
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want only the store", entries, err)
	}
	if info, err := os.Lstat(filepath.Join(data, socketName)); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	request(t, connect(t, c.nats), "pq.jobs.push", "x")
	c.stop(syscall.SIGTERM)
	if _, err := os.Lstat(filepath.Join(data, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a stopped service: %v", err)
	}
	// Nothing listens, and the store is in use all the same.
	c = startDev(t, "PQ_DATA_DIR="+data)
	must(t, os.Remove(filepath.Join(data, socketName)))
	refuses(t, []string{"-backup", filepath.Join(dir, "b")}, []string{"PQ_DATA_DIR=" + data}, "in use by another process")
	c.stop(syscall.SIGTERM)
}

// TestServiceEndsDuringBackup: the command says so if the service dies before it has answered.
func TestServiceEndsDuringBackup(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	must(t, err)
	defer l.Close()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	if err := askForBackup(t.Context(), dir, "/nowhere"); err == nil || !strings.Contains(err.Error(), "the service ended") {
		t.Errorf("%v", err)
	}
	<-asked
}
