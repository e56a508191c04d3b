package main

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// A backup has every item acknowledged before it, can be served beside the original, and only its
// owner may read it. After a kill -9, which leaves the socket behind, the command copies the store
// itself. Package pebblekv copies stores under load.
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

	wantItems := func(c *command, values ...string) {
		t.Helper()
		for _, want := range values {
			pops(t, connect(t, c.nats), "pq.jobs.pop.min", want)
		}
	}

	request(t, connect(t, c.nats), "pq.jobs.push.1", "first")
	backUp("1")
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		info, gone := os.Lstat(path)
		// Nobody but the owner may use it.
		if gone == nil && path != dir && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the rights %v", path, info.Mode())
		}

		return err
	}))

	// Each of the two stores goes its own way.
	copied := startDev(t, "PQ_DATA_DIR="+filepath.Join(dir, "1"))
	request(t, connect(t, copied.nats), "pq.jobs.push.2", "copy")
	request(t, connect(t, c.nats), "pq.jobs.push.2", "original")
	wantItems(copied, "first", "copy")

	c.kill()

	if _, err := os.Lstat(filepath.Join(dir, "data", socketName)); err != nil {
		t.Error(err)
	}

	backUp("2")
	wantItems(startDev(t, "PQ_DATA_DIR="+filepath.Join(dir, "2")), "first", "original")
}

// A backup is restored into an empty PQ_DATA_DIR. Over another store it is refused: by the command,
// and if its files were copied by other means, by the service.
func TestRestore(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	backup, restored := filepath.Join(dir, "backup"), filepath.Join(dir, "restored")
	data := "PQ_DATA_DIR=" + filepath.Join(dir, "data")
	c := startDev(t, data)
	request(t, connect(t, c.nats), "pq.jobs.push", "kept")
	_, _, err := runCommand(t, []string{"-backup", backup}, []string{data})
	must(t, err)

	stdout, stderr, err := runCommand(t, []string{"-restore", backup},
		[]string{"PQ_DATA_DIR=" + restored})
	if err != nil || !strings.Contains(stdout, "restored "+backup+" to "+restored) {
		t.Errorf("%v, printed %q\n%s", err, stdout, stderr)
	}

	refuses(t, []string{"-restore", backup}, []string{data}, "not empty")
	refuses(t, []string{"-restore", ""}, []string{data}, "needs the folder of a backup")
	refuses(t, []string{"-restore", backup}, []string{"PQ_STORE=fdb"}, "fdbrestore")
	refuses(t, []string{"-restore", filepath.Join(dir, "data")},
		[]string{"PQ_DATA_DIR=" + filepath.Join(dir, "new")}, "in use by another process")

	pops(t, connect(t, c.nats), "pq.jobs.pop.min", "kept")
	c.stop(syscall.SIGTERM)

	// The service finds out that the files of two stores are mixed.
	for range 3 { // later files have other names than those of the backup
		db, err := pebblekv.Open(filepath.Join(dir, "data"), pebblekv.Options{})
		must(t, err)
		must(t, db.Close())
	}

	files, err := os.ReadDir(backup)
	must(t, err)

	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(backup, file.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "data", file.Name()), content, 0o600))
	}
	refuses(t, []string{"-dev"}, []string{data}, "do not belong together", "into an empty one")

	pops(t, connect(t, startDev(t, "PQ_DATA_DIR="+restored).nats), "pq.jobs.pop.min", "kept")
}

// Each mistake is named by its error, and leaves no folder behind. The socket through which backups
// are asked for is the owner's alone, and goes with the service.
func TestBackupErrors(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	c := startDev(t, "PQ_DATA_DIR="+data)

	for name, test := range map[string]struct {
		args, variables []string
		want            string
	}{
		"no name": {[]string{"-backup", ""}, nil, "needs the name of a new folder"},
		"inside the store": {[]string{"-backup", filepath.Join(data, "b")}, nil, "inside the " +
			"folder of the store"},
		"no store": {
			[]string{"-backup", filepath.Join(dir, "b")},
			[]string{"PQ_DATA_DIR=" + filepath.Join(dir, "none")},
			"no store",
		},
		"FoundationDB": {
			[]string{"-backup", filepath.Join(dir, "b")},
			[]string{"PQ_STORE=fdb"},
			"fdbbackup",
		},
		"two actions": {[]string{"-backup", filepath.Join(dir, "b"), "-dev"}, nil, "only one"},
	} {
		t.Run(name, func(t *testing.T) {
			refuses(t, test.args, append([]string{"PQ_DATA_DIR=" + data}, test.variables...),
				test.want)
		})
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want only the store", entries, err)
	}

	info, err := os.Lstat(filepath.Join(data, socketName))
	if err != nil || info.Mode().Perm()&0o077 != 0 {
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
	refuses(t, []string{"-backup", filepath.Join(dir, "b")}, []string{"PQ_DATA_DIR=" + data},
		"in use by another process")

	c.stop(syscall.SIGTERM)
}

// A backup in an image needs something mounted: a folder of the image itself goes with the
// container.
func TestOnVolume(t *testing.T) {
	const (
		root    = "620 550 0:59 / / rw,relatime - overlay overlay rw,lowerdir=/l\n"
		data    = "633 620 254:0 /volumes/d/_data /data rw,relatime - ext4 /dev/vda rw\n"
		backups = "634 620 254:0 /volumes/b/_data /backup rw,relatime master:1 - ext4 /dev/vda rw\n"
	)

	for name, test := range map[string]struct {
		mounts, path string
		want         bool
	}{
		"a volume":              {root + data + backups, "/backup/monday", true},
		"in a folder of it":     {root + backups, "/backup/one/monday", true},
		"no volume":             {root + data, "/backup/monday", false},
		"a name that begins so": {root + backups, "/backups/monday", false},
		"another volume":        {root + data, "/data/backup/monday", true},
		"no mounts are known":   {"", "/backup/monday", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := onVolume(test.mounts, test.path); got != test.want {
				t.Errorf("%s is on a volume: %v, want %v", test.path, got, test.want)
			}
		})
	}
}

// If the service dies before it has answered, the command says so.
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

	err = askForBackup(t.Context(), dir, "/nowhere")
	if err == nil || !strings.Contains(err.Error(), "the service ended") {
		t.Errorf("asking for the backup: %v, want that the service ended", err)
	}

	<-asked
}

// With -keep, backups get names by their time, and the oldest of the same store go, with what
// interrupted ones have left. Whatever else is in the folder stays, such as backups of another
// store.
func TestBackupsKept(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	data := "PQ_DATA_DIR=" + filepath.Join(dir, "data")
	c := startDev(t, data)
	backups := filepath.Join(dir, "backups")
	must(t, os.MkdirAll(backups, 0o700))

	makeAs := func(name string, variables ...string) {
		t.Helper()
		_, stderr, err := runCommand(t, []string{"-backup", filepath.Join(backups, name)},
			variables)
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
	}

	for _, name := range []string{
		"2020-01-01T03-00-00Z", "2020-01-02T03-00-00Z", // too old
		"2020-01-03T03-00-00Z", // the second newest
		"cut off",
		"monday", "2020-01-01", "2020-01-01T03-00-00.5Z", // other names
	} {
		makeAs(name, data)
	}
	must(t, os.Rename(filepath.Join(backups, "cut off"),
		filepath.Join(backups, "2020-01-04T03-00-00Z.unfinished-backup")))

	other := filepath.Join(dir, "other")
	must(t, errorOfClosing(pebblekv.Open(other, pebblekv.Options{})))
	makeAs("2019-12-30T03-00-00Z", "PQ_DATA_DIR="+other)

	for _, name := range []string{
		"2019-12-29T03-00-00Z",
		"2019-12-29T03-00-00Z.unfinished-backup",
	} {
		must(t, os.MkdirAll(filepath.Join(backups, name), 0o700))
		must(t, os.WriteFile(filepath.Join(backups, name, "photo.jpg"), nil, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(backups, "2019-12-31T03-00-00Z"), nil, 0o600)) // no folder

	stdout, stderr, err := runCommand(t, []string{"-backup", backups, "-keep", "2"}, []string{data})

	made := regexp.MustCompile(`backup in \S+/(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ), made`).
		FindStringSubmatch(stdout)
	if err != nil || made == nil {
		t.Fatalf("%v, printed %q\n%s", err, stdout, stderr)
	}

	var left []string
	entries, err := os.ReadDir(backups)
	must(t, err)

	for _, entry := range entries {
		left = append(left, entry.Name())
	}

	want := []string{
		"2019-12-29T03-00-00Z", "2019-12-29T03-00-00Z.unfinished-backup", "2019-12-30T03-00-00Z",
		"2019-12-31T03-00-00Z", "2020-01-01", "2020-01-01T03-00-00.5Z", "2020-01-03T03-00-00Z",
		made[1], "monday",
	}
	if !slices.Equal(left, want) {
		t.Errorf("%q is left: want %q", left, want)
	}
	wantWords(t, stdout, "removed "+filepath.Join(backups, "2020-01-01T03-00-00Z\n"),
		"removed "+filepath.Join(backups, "2020-01-04T03-00-00Z.unfinished-backup\n"))

	if found, err := pebblekv.Exists(filepath.Join(backups, made[1])); err != nil || !found {
		t.Errorf("%s has no store: %v", made[1], err)
	}

	c.stop(syscall.SIGTERM)
}

// -keep without a backup, or with a number that would keep none, is refused before anything is
// made; so is a folder that is not there, such as a volume that was not mounted.
func TestKeepRefusals(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	data := []string{"PQ_DATA_DIR=" + filepath.Join(dir, "data")}
	must(t, errorOfClosing(pebblekv.Open(filepath.Join(dir, "data"), pebblekv.Options{})))

	for _, args := range [][]string{
		{"-keep", "7"},
		{"-backup", dir, "-keep", "0"},
		{"-backup", dir, "-keep", "-1"},
	} {
		refuses(t, args, data, "-keep", "1 or more")
	}
	refuses(t, []string{"-backup", filepath.Join(dir, "unmounted"), "-keep", "7"}, data,
		"does not exist")
	refuses(t, []string{"-backup", filepath.Join(dir, "data"), "-keep", "7"}, data,
		"is a store or a backup itself")

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want only the store", entries, err)
	}
}

func errorOfClosing(db *pebblekv.DB, err error) error {
	if err != nil {
		return err
	}
	return db.Close()
}

// A service that cannot read the request, because it is another version, has not made the backup,
// and the command says so.
func TestBackupByAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	must(t, err)

	const reply = `{"error":"invalid character '/' looking for beginning of value"}`
	older := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, reply) }))
	must(t, older.Listener.Close())
	older.Listener = l
	older.Start()
	defer older.Close()

	err = askForBackup(t.Context(), dir, filepath.Join(dir, "backup"))
	if err == nil || !strings.Contains(err.Error(), "made no backup") {
		t.Errorf("asking another version for a backup: %v, want that it made none", err)
	}
}
