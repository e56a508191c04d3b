package pebblekv

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/testenv/crashfs"
)

// A backup is restored into a folder that is empty, also from a file system that cannot be written
// to, and remains as it is.
func TestRestore(t *testing.T) {
	files := crashfs.New()
	db := openTest(t, files, Options{})
	mustSet(t, db, "key", "value")
	must(t, db.Backup(t.Context(), "backup"))

	mustSet(t, db, "key", "later")
	must(t, files.MkdirAll("empty/lost+found", ownerFolder))
	before := contents(t, files, "backup")

	readOnly := errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasPrefix(op.Path, "backup") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return &os.PathError{Op: "create", Path: op.Path, Err: syscall.EROFS}
		}
		return nil
	}))

	for _, dir := range []string{"new", "empty"} {
		must(t, Restore(t.Context(), "backup", dir, Options{FS: readOnly, Logger: quiet}))

		// A power cut does not take it away.
		left := files.CrashClone(vfs.CrashCloneCfg{})
		wantValue(t, openTestDir(t, dir, Options{FS: left}), "key", "value")
	}
	if after := contents(t, files, "backup"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the backup was changed")
	}
}

// Restore refuses what would mix two stores or copy one that changes meanwhile, and leaves
// everything as it is.
func TestRestoreRefusals(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	db := openTestDir(t, in("data"), Options{})
	mustSet(t, db, "key", "value")
	must(t, db.Backup(t.Context(), in("backup")))
	must(t, os.MkdirAll(in("none"), 0o700))
	must(t, os.MkdirAll(in("full"), 0o700))
	must(t, os.WriteFile(filepath.Join(in("full"), "a"), nil, 0o600))
	must(t, os.CopyFS(in("x"+Unfinished+"/store"), os.DirFS(in("backup"))))
	must(t, os.CopyFS(in("damaged"), os.DirFS(in("backup"))))

	logs, err := filepath.Glob(filepath.Join(in("damaged"), "*.log"))
	must(t, err)
	must(t, os.Truncate(logs[len(logs)-1], 0))
	must(t, os.CopyFS(in("torn"), os.DirFS(in("backup"))))

	tables, err := filepath.Glob(filepath.Join(in("torn"), "*.sst"))
	must(t, err)
	must(t, os.Truncate(tables[0], 10))

	for _, c := range []struct{ from, to, want string }{
		{"backup", "data", "not empty"},
		{"backup", "full", `not empty, it has "a"`},
		{"backup", "backup", "not empty"},
		{"none", "new", "no store in it"},
		{"missing", "new", "no such file"},
		{"data", "new", "in use by another process"},
		{"x" + Unfinished + "/store", "new", "did not finish"},
		{".", "new", "want the folder of one backup, not of several"},
		{"damaged", "new", "damaged or missing"},
		{"damaged", "new", "this backup is damaged, and nothing of it was kept: try another one: "},
		{"torn", "new", "this backup is damaged, and nothing of it was kept: try another one: "},
	} {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		err := Restore(t.Context(), in(c.from), in(c.to), Options{Logger: logger})

		text := fmt.Sprint(err, log.String())
		if strings.Contains(text, "restore a backup") ||
			strings.Contains(text, "the service") {
			t.Errorf("%s to %s: the advice is for a store that serves: %s", c.from, c.to, text)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %q", c.from, c.to, err, c.want)
		}
	}

	if found, err := Exists(in("new")); found || err != nil {
		t.Errorf("something is left of what was refused: %v, %v", found, err)
	}
	wantValue(t, db, "key", "value")
	must(t, Restore(t.Context(), in("backup"), in("new"), Options{Logger: quiet}))
}

// Wherever the process is killed while it restores a backup, the folder has all of the backup, or
// is not taken for a store.
func TestKilledWhileRestoring(t *testing.T) {
	files := crashfs.New()
	db := openTest(t, files, Options{})
	fill(t, db)
	must(t, db.Backup(t.Context(), "backup"))

	p := newPowerCuts(files, 1)
	p.kept = 100
	names, err := storeFiles(files, "backup")
	must(t, err)

	p.on.Store(true)
	must(t, copyStore(t.Context(), p.FS, names, "backup", "new"))

	opened := 0
	for i, cut := range p.cuts {
		_, nothing := cut.files.Stat("new/" + names[0])
		db, err := Open("new", Options{FS: cut.files, Logger: quiet, MemTableSize: minMemTableSize})
		if err != nil {
			wantErr(t, fmt.Sprint("killed at ", i), err, errDamaged)
			continue
		}

		if opened++; nothing == nil {
			wantFilled(t, db)
		}

		mustClose(t, db)
	}
	if opened == len(p.cuts) || len(p.cuts) < 2*len(names) {
		t.Errorf("%d of %d were opened", opened, len(p.cuts))
	}
}

// A restore that fails or is cancelled leaves nothing, and the next one succeeds.
func TestRestoreFails(t *testing.T) {
	files := newFaultyFS(syscall.ENOSPC, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSync && strings.HasPrefix(op.Path, "new/")
	})
	db := openTest(t, files, Options{})
	fill(t, db)
	must(t, db.Backup(t.Context(), "backup"))

	restore := func(ctx context.Context) error {
		return Restore(ctx, "backup", "new",
			Options{FS: files, Logger: quiet, MemTableSize: minMemTableSize})
	}

	files.broken.Store(true)
	wantErr(t, "full disk", restore(t.Context()), syscall.ENOSPC)

	files.broken.Store(false)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errInjected)

	wantErr(t, "cancelled", restore(cancelled), errInjected)
	must(t, restore(t.Context()))

	wantFilled(t, openTestDir(t, "new", Options{FS: files}))
}
