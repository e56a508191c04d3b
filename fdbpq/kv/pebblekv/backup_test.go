package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A copy that is made under load has everything that was durable before, opens, and takes
// writes of its own, which leave the original alone. Memtables are small, so that logs and
// tables come and go meanwhile.
func TestBackupUnderLoad(t *testing.T) {
	dir := t.TempDir()
	small := Options{MemTableSize: minMemTableSize, MinFreeSpace: -1}
	db := openTestDir(t, filepath.Join(dir, "data"), small)
	load := &crashLoad{db: db, steps: make(chan struct{})}
	end := load.start(t, seeded(t))

	for range 400 {
		<-load.steps
	}

	go func() {
		for range load.steps { // until end
		}
	}()

	for round := range 3 {
		dest := filepath.Join(dir, fmt.Sprint("backup", round))
		least := load.least()
		must(t, db.Backup(t.Context(), dest))

		wantOnly(t, dir, "backup", round+1)
		wantMode(t, dest, 0o700)

		copied := openTestDir(t, dest, small)
		load.check(t, copied, least)

		mustSet(t, copied, "only", "here")
		mustClose(t, copied)
	}

	wantValue(t, db, "only", "")

	end()
	noError(t, db.Check())

	mustClose(t, db)
	openTestDir(t, filepath.Join(dir, "data"), small) // its marks are right
}

// wantOnly checks how many entries of a folder have a prefix, none of them of an unfinished backup.
func wantOnly(t *testing.T, dir, prefix string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	n := 0

	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Unfinished) {
			t.Errorf("%s is left", e.Name())
		}
		if strings.HasPrefix(e.Name(), prefix) {
			n++
		}
	}

	if n != want {
		t.Errorf("%v: want %d that begin with %s", entries, want, prefix)
	}
}

// Once Backup has returned, a power cut does not take the copy away; before, nothing of
// it has the name.
func TestBackupIsSynced(t *testing.T) {
	files := vfs.NewCrashableMem()
	db := openTest(t, files, Options{})

	for i := range 10 {
		mustSet(t, db, fmt.Sprint(i), "value")
	}

	must(t, db.Backup(t.Context(), "copy"))
	clone := files.CrashClone(vfs.CrashCloneCfg{})

	copied := openTestDir(t, "copy", Options{FS: clone})
	for i := range 10 {
		wantValue(t, copied, fmt.Sprint(i), "value")
	}
}

// Backups of the store in one folder are a series, also after it was opened again. A restored store
// begins another series, and a folder that is no backup belongs to none.
func TestBackupSeries(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }

	backUp := func(store, dest string) string {
		db := openTestDir(t, in(store), Options{})
		must(t, db.Backup(t.Context(), in(dest)))
		mustClose(t, db)
		return BackupSeries(in(dest))
	}

	first, second := backUp("data", "1"), backUp("data", "2")
	must(t, Restore(t.Context(), in("2"), in("restored"), Options{}))
	restored, other := backUp("restored", "3"), backUp("other", "4")

	if first == "" || first != second {
		t.Errorf("backups of one store belong to %q and %q", first, second)
	}
	if restored == "" || restored == first || other == "" || other == first || other == restored {
		t.Errorf("of the restored one %q, of another %q, of the first %q: want different ones",
			restored, other, first)
	}

	for _, name := range []string{"data", "restored", "none"} {
		if got := BackupSeries(in(name)); got != "" {
			t.Errorf("%s is no backup, and belongs to %q", name, got)
		}
	}
}

// A refused backup says why, and leaves everything as it is.
func TestBackupRefusals(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	db := openTestDir(t, data, Options{})

	for _, path := range []string{"there", "link"} {
		must(t, os.MkdirAll(filepath.Join(dir, path), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	must(t, os.Symlink(data, filepath.Join(dir, "link", "data")))

	for dest, want := range map[string]string{
		"there":            "it exists",
		"file":             "it exists",
		"data":             "it exists",
		"missing/backup":   "does not exist",
		"file/backup":      "not a directory",
		"data/backup":      "inside the folder of the store",
		"link/data/backup": "inside the folder of the store",
	} {
		err := db.Backup(t.Context(), filepath.Join(dir, dest))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dest, err, want)
		}
	}

	wantOnly(t, dir, "", 4)

	mustSet(t, db, "a", "b")
	db.damage.note("table", errBlock)
	wantErr(t, "of a damaged store", db.Backup(t.Context(), filepath.Join(dir, "damaged")),
		kv.ErrCorrupt)

	mustClose(t, db)
	wantErr(t, "of a closed store", db.Backup(t.Context(), filepath.Join(dir, "late")),
		kv.ErrClosed)
}

// A commit that waits for its sync holds no backup up.
func TestBackupDuringSync(t *testing.T) {
	files, syncing, release := newHeldFS()
	db := openTest(t, files, Options{})
	mustSet(t, db, "a", "durable")
	files.broken.Store(true)
	tx := begin(t, db)
	tx.Set([]byte("b"), []byte("written"))
	commit := tx.Commit()
	<-syncing

	err := db.Backup(t.Context(), "copy")
	files.broken.Store(false)
	close(release)
	must(t, err)
	must(t, errOf(commit.Get()))

	copied := openTestDir(t, "copy", Options{FS: files})
	wantValue(t, copied, "a", "durable")
}

// The copy of a log ends where the log was written up to when it was opened. What follows
// may change while it is copied.
func TestCopyOfGrowingLog(t *testing.T) {
	files := vfs.NewMem()
	must(t, files.MkdirAll(testDir, ownerFolder))
	d, err := newDisk(testDir, Options{FS: files}.withDefaults())
	must(t, err)
	defer d.release()

	path := files.PathJoin(testDir, "000009.log")
	log, err := d.Create(path, logCategory)
	must(t, err)

	for n := range 3 {
		read, err := d.Open(path)
		must(t, err)
		must(t, errOf(log.Write([]byte("more"))))

		if content, err := io.ReadAll(read); err != nil || len(content) != 4*n {
			t.Errorf("after %d writes %d bytes are read, %v", n, len(content), err)
		}
		must(t, read.Close())
	}
	must(t, log.Close())
}

// fill writes more than a memtable of the smallest size holds.
func fill(t *testing.T, db *DB) {
	t.Helper()
	for i := range 40 {
		mustSet(t, db, fmt.Sprint(i), string(make([]byte, 64<<10)))
	}
}

// onCopy calls hook before a file of a backup to "copy" is made whose path has a part in it.
func (f *hookFS) onCopy(part string, hook func(path string) error) {
	f.onCreate(func(name string, _ vfs.DiskWriteCategory) error {
		if strings.HasPrefix(name, "copy"+Unfinished) && strings.Contains(name, part) {
			return hook(name)
		}
		return nil
	})
}

// filledStore returns a store with tables, which backups cannot link, so that they copy them.
func filledStore(t *testing.T) (*hookFS, *DB) {
	t.Helper()
	files := &hookFS{FS: vfs.NewMem(), link: syscall.EPERM}
	db := openTest(t, files, Options{MemTableSize: minMemTableSize})
	fill(t, db)
	must(t, db.store.pdb.Flush()) // else there may be no table yet

	return files, db
}

func wantNoCopy(t *testing.T, files vfs.FS) {
	t.Helper()
	wantErr(t, "there is a copy", errOf(files.Stat("copy")), fs.ErrNotExist)
}

// wantFilled checks that a store has what fill writes.
func wantFilled(t *testing.T, db *DB) {
	t.Helper()
	if got, err := get(db, "0"); len(got) != 64<<10 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A backup that fails on its own disk leaves nothing, and the store goes on. So does one that is
// cancelled, and two at once are refused.
func TestBackupFails(t *testing.T) {
	// Each is a file of the copy, from the first to the last.
	for _, part := range []string{
		"OPTIONS", "marker.format", ".sst", "MANIFEST", "marker.manifest", ".log",
	} {
		for name, interrupt := range map[string]func(context.CancelCauseFunc, *DB) error{
			"full disk": func(context.CancelCauseFunc, *DB) error { return syscall.ENOSPC },
			"cancelled": func(cancel context.CancelCauseFunc, _ *DB) error {
				cancel(nil)
				return nil
			},
			"second": func(_ context.CancelCauseFunc, db *DB) error {
				err := db.Backup(context.Background(), "other")
				if !errors.Is(err, ErrBackupRunning) {
					return fmt.Errorf("the second one: %w", err)
				}

				return syscall.EROFS
			},
		} {
			if part != ".sst" && (name != "full disk" || harness.Race && part != ".log") {
				continue
			}

			files, db := filledStore(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			var failed error

			files.onCopy(part, func(path string) error {
				if failed = interrupt(cancel, db); failed != nil {
					failed = &fs.PathError{Op: "create", Path: path, Err: failed}
				}
				return failed
			})

			err := db.Backup(ctx, "copy")
			if err == nil || failed == nil && !errors.Is(err, context.Canceled) ||
				failed != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s at %s: %v", name, part, err)
			}

			cancel(nil)
			files.hook.Store(nil)

			names, err := files.List("")
			if err != nil || len(names) != 1 {
				t.Errorf("%s at %s: left %q, %v", name, part, names, err)
			}

			if err := errors.Join(db.Check(), set(db, "after", "it")); err != nil {
				t.Errorf("%s at %s: the store: %v", name, part, err)
			}
			if err := db.Backup(t.Context(), "copy"); err != nil {
				t.Errorf("%s at %s: the next one: %v", name, part, err)
			}

			mustClose(t, db)
		}
	}
}

// A store that fails while it is copied has no copy: Pebble may believe in writes that are not
// there.
func TestBackupOfStoreThatFails(t *testing.T) {
	files, db := filledStore(t)
	files.onCopy("OPTIONS", func(string) error { // the first file of a copy
		db.store.disk.fail(syscall.EIO)
		return nil
	})
	wantErr(t, "the backup", db.Backup(t.Context(), "copy"), kv.ErrUnavailable)
	wantNoCopy(t, files)
}

// Two stores that are copied to the same place do not disturb each other: the second is refused.
func TestBackupsToOnePlace(t *testing.T) {
	files, db := filledStore(t)
	other := openTestDir(t, "other", Options{FS: files})
	var once sync.Once

	files.onCopy(".sst", func(string) error {
		once.Do(func() {
			wantErr(t, "the second one", other.Backup(t.Context(), "copy"), ErrBackupRunning)
		})
		return nil
	})
	must(t, db.Backup(t.Context(), "copy"))
	wantFilled(t, openTestDir(t, "copy", Options{FS: files}))
}

// Close ends a backup that is under way, and waits for it.
func TestCloseEndsBackup(t *testing.T) {
	files, db := filledStore(t)
	var closing sync.WaitGroup

	files.onCopy(".sst", func(string) error {
		closing.Go(func() { mustClose(t, db) })
		<-db.closing
		s, err := db.current()

		for err == nil && s.endedWith() == nil { // until Close has told all that are open
		}
		return nil
	})
	wantErr(t, "the backup", db.Backup(t.Context(), "copy"), kv.ErrClosed)

	closing.Wait()
	wantNoCopy(t, files)
}

// endedWith returns why nothing can begin any more.
func (s *openedStore) endedWith() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// The rest of a backup whose process was killed is not taken for a store, and the next backup
// replaces it.
func TestUnfinishedBackup(t *testing.T) {
	dir := t.TempDir()
	db := openTestDir(t, filepath.Join(dir, "data"), Options{})
	mustSet(t, db, "a", "b")
	dest := filepath.Join(dir, "backup")
	must(t, db.Backup(t.Context(), dest))

	left := dest + Unfinished
	must(t, os.MkdirAll(left, 0o700))
	must(t, os.Rename(dest, filepath.Join(left, "store")))

	for _, path := range []string{left, filepath.Join(left, "store")} {
		_, err := Open(path, Options{})
		if err == nil || !strings.Contains(err.Error(), "did not finish") {
			t.Errorf("%s was opened with %v", path, err)
		}
	}

	must(t, db.Backup(t.Context(), dest))
	wantOnly(t, dir, "backup", 1)
}

// A backup that would take the space that the store keeps free is refused before it is begun.
func TestBackupNeedsRoom(t *testing.T) {
	files := vfs.NewMem()
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 31})
	db := openTest(t, files, Options{MinFreeSpace: 1 << 20})
	mustSet(t, db, "a", "b")
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 31})

	err := db.Backup(t.Context(), "copy")
	if !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "1048576 bytes free") {
		t.Errorf("a backup without room: %v, want the bytes that are free", err)
	}
}

// A backup that is removed goes as a whole: the rest of an interrupted removal is refused, and a
// second removal takes it. A folder that somebody serves or restores from stays.
func TestRemoveBackup(t *testing.T) {
	dir := t.TempDir()
	backup, served := filepath.Join(dir, "backup"), filepath.Join(dir, "served")
	must(t, openTestDir(t, backup, Options{}).Close())

	db := openTestDir(t, served, Options{})
	must(t, os.MkdirAll(filepath.Join(dir, "left"+Unfinished, "store"), 0o700))

	for _, name := range []string{backup, filepath.Join(dir, "left"+Unfinished)} {
		if err := RemoveBackup(name); err != nil {
			t.Error(err)
		}
	}
	if err := RemoveBackup(served); !errors.Is(err, ErrInUse) {
		t.Errorf("the folder of an open store: %v, want %v", err, ErrInUse)
	}

	must(t, db.Close())
	entries, err := os.ReadDir(dir)
	must(t, err)

	if len(entries) != 1 || entries[0].Name() != "served" {
		t.Errorf("%v is left: want only the store that was open", entries)
	}
}
