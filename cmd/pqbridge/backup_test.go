package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBackupOfRunningService: what was acknowledged before the backup is in it. The copy is served
// while the original is. Package pebblekv copies stores under load.
func TestBackupOfRunningService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
	c := startDev(t, "PQ_DATA_DIR="+data)
	for i := range 20 {
		request(t, connect(t, c.nats), fmt.Sprint("pq.jobs.push.", i), fmt.Sprint(i))
	}
	stdout, stderr, err := runCommand(t, []string{"-backup", dest}, []string{"PQ_DATA_DIR=" + data})
	if err != nil || !strings.Contains(stdout, "backup in "+dest) {
		t.Errorf("%v, printed %q\n%s", err, stdout, stderr)
	}

	copied := startDev(t, "PQ_DATA_DIR="+dest)
	request(t, connect(t, copied.nats), "pq.jobs.push.-1", "copy")
	request(t, connect(t, c.nats), "pq.jobs.push.-1", "original")
	for from, want := range map[*command]string{copied: "copy", c: "original"} {
		pops(t, connect(t, from.nats), "pq.jobs.pop.min", want)
		for i := range 20 {
			pops(t, connect(t, from.nats), "pq.jobs.pop.min", fmt.Sprint(i))
		}
	}
	c.stop(syscall.SIGTERM)
	if _, err := os.Lstat(filepath.Join(data, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a stopped service: %v", err)
	}
}

// TestBackupOfStoppedService: the command copies the store itself, also after a kill -9, which
// leaves the socket behind, and with a folder whose path is too long for a socket.
func TestBackupOfStoppedService(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	must(t, os.Mkdir(long, 0o700))
	for name, dir := range map[string]string{"short": t.TempDir(), "long": long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := "PQ_DATA_DIR=" + filepath.Join(dir, "data")
			c := startDev(t, data)
			request(t, connect(t, c.nats), "pq.jobs.push", "kept")
			backUp := func(to string) {
				t.Helper()
				if _, stderr, err := runCommand(t, []string{"-backup", filepath.Join(dir, to)}, []string{data}); err != nil {
					t.Errorf("%v\n%s", err, stderr)
				}
			}
			backUp("1")
			c.kill()
			if _, err := os.Lstat(filepath.Join(dir, "data", socketName)); err != nil {
				t.Error(err)
			}
			backUp("2")
			for _, copied := range []string{"1", "2"} {
				c := startDev(t, "PQ_DATA_DIR="+filepath.Join(dir, copied))
				pops(t, connect(t, c.nats), "pq.jobs.pop.min", "kept")
				c.stop(syscall.SIGTERM)
			}
		})
	}
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
	if info, err := os.Lstat(filepath.Join(data, socketName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	request(t, connect(t, c.nats), "pq.jobs.push", "x")
	// Something else listens: the store is still in use.
	c.kill()
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
	if _, err := askForBackup(t.Context(), dir, "/nowhere"); err == nil || !strings.Contains(err.Error(), "the service ended") {
		t.Errorf("%v", err)
	}
	<-asked
}
