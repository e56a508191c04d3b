package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// clock is a time that only the test moves.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// faultyFS fails operations while it is broken. It is errorfs, which forgets
// about logs that are reused.
type faultyFS struct {
	*errorfs.FS
	inner    *vfs.MemFS
	injector errorfs.InjectorFunc
	broken   atomic.Bool
}

// newFaultyFS returns a file system whose operations fail with err while it is
// broken, if match says so.
func newFaultyFS(err error, match func(errorfs.Op) bool) *faultyFS {
	f := &faultyFS{inner: vfs.NewMem()}
	f.injector = func(op errorfs.Op) error {
		if f.broken.Load() && match(op) {
			return err
		}
		return nil
	}

	f.FS = errorfs.Wrap(f.inner, f.injector)
	return f
}

func (f *faultyFS) ReuseForWrite(
	oldname, newname string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if err != nil {
		return nil, err
	}

	return errorfs.WrapFile(file, errorfs.InjectorFunc(func(op errorfs.Op) error {
		op.Path = newname
		return f.injector(op)
	})), nil
}

// Whatever kind of write fails, nothing acknowledged is lost, readers go on, the commits say what
// happened, and when the disk works again so does the store.
func TestWriteFailure(t *testing.T) {
	of := func(prefixOrSuffix string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
		return func(op errorfs.Op) bool {
			name := filepath.Base(op.Path)
			if !strings.HasPrefix(name, prefixOrSuffix) &&
				!strings.HasSuffix(name, prefixOrSuffix) {
				return false
			}

			return slices.Contains(kinds, op.Kind)
		}
	}

	sync := []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	cases := []struct {
		name  string
		match func(errorfs.Op) bool
	}{
		{"log write", of(".log", errorfs.OpFileWrite)},
		{"log sync", of(".log", sync...)},
		{"log create", of(".log", errorfs.OpCreate, errorfs.OpReuseForWrite)},
		{"log reuse", of(".log", errorfs.OpReuseForWrite)},
		{"log size", of(".log", errorfs.OpFileStat)},
		{"table create", of(".sst", errorfs.OpCreate)},
		{"table write", of(".sst", errorfs.OpFileWrite)},
		{"table sync", of(".sst", sync...)},
		{"manifest write", of("MANIFEST", errorfs.OpFileWrite)},
		{"manifest sync", of("MANIFEST", sync...)},
		{"folder sync", of(testDir, sync...)},
		{
			"all writes",
			func(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite },
		},
	}

	causes := []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}
	for i, c := range cases {
		for _, cause := range slices.Concat(causes[i%3:], causes)[:harness.Times(1, 3)] {
			t.Run(fmt.Sprintf("%s/%s", c.name, cause), func(t *testing.T) {
				writeFailure(t, cause, c.match)
			})
		}
	}
}

func writeFailure(t *testing.T, cause error, match func(errorfs.Op) bool) {
	var time clock
	files := newFaultyFS(cause, match)
	db := openTest(t, files, Options{MemTableSize: minMemTableSize, now: time.now})
	value := make([]byte, 50_000)
	rand.NewChaCha8([32]byte{}).Read(value)

	acked := 0
	write := func() error {
		err := set(db, fmt.Sprintf("%06d", acked+1), string(value))
		if err == nil {
			acked++
		}

		return err
	}

	for range 50 { // enough for old logs to reuse
		must(t, write())
	}

	// A write fails, and says that its outcome is unknown, or that it was not tried.

	db.retry = time.now().Add(retryInterval)
	files.broken.Store(true)
	var err error

	for range 300 {
		if err = write(); err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("it never failed")
	}
	if !errors.Is(err, kv.ErrCommitUnknown) && !errors.Is(err, kv.ErrUnavailable) ||
		!errors.Is(err, cause) {
		t.Errorf("the commit failed with %v", err)
	}
	if kv.Retryable(err) {
		t.Errorf("%v says to try again", err)
	}

	// Nothing is lost. The next write is not tried.
	checkAcked(t, db, acked)
	if err := write(); !errors.Is(err, kv.ErrUnavailable) || kv.MaybeCommitted(err) {
		t.Errorf("the next one failed with %v", err)
	}

	// The disk works again, and the store is opened again.
	last := db.writer.turns
	files.broken.Store(false)
	time.advance(retryInterval)

	tx := begin(t, db)
	if tx.Turn() <= last+1 {
		t.Errorf(
			"a transaction has turn %d, as if what the one with turn %d wrote could not be lost",
			tx.Turn(), last)
	}

	tx.Cancel()

	noError(t, write())
	checkAcked(t, db, acked)

	mustClose(t, db)
	checkAcked(t, openTest(t, files, Options{}), acked)
}

// checkAcked checks that all up to n are there, and at most one more.
func checkAcked(t *testing.T, db *DB, n int) {
	t.Helper()
	tx := beginRead(t, db)
	defer tx.Cancel()
	pairs, err := tx.GetRange(kv.Range{Begin: []byte("0"), End: []byte("9")}, kv.RangeOptions{}).
		Get()
	must(t, err)

	if len(pairs) != n && len(pairs) != n+1 {
		t.Fatalf("%d of %d acknowledged pairs are left", len(pairs), n)
	}

	for i, pair := range pairs {
		if want := fmt.Sprintf("%06d", i+1); string(pair.Key) != want {
			t.Fatalf("key %d is %s, not %s", i, pair.Key, want)
		}
	}
}

// A store whose disk stays broken, or whose folder cannot be opened again, is tried again by
// writers, and by readers too: there may be no writers.
func TestStillBroken(t *testing.T) {
	for _, who := range []string{"writer", "reader"} {
		t.Run(who, func(t *testing.T) { stillBroken(t, who) })
	}
}

func stillBroken(t *testing.T, who string) {
	var time clock
	files := newFaultyFS(syscall.ENOSPC, func(op errorfs.Op) bool {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && filepath.Base(op.Path) != proofName
	})
	db := openTest(t, files, Options{now: time.now})
	mustSet(t, db, "key", "value")
	must(t, db.Check())

	wantFull := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || !errors.Is(err, syscall.ENOSPC) ||
			!strings.Contains(err.Error(), "disk full") {
			t.Errorf("%s while the disk is broken: %v", what, err)
		}
	}

	files.broken.Store(true)
	wantFull("the first commit", set(db, "key", "lost"), kv.ErrCommitUnknown)
	wantFull("Check", db.Check(), kv.ErrUnavailable)

	old := beginRead(t, db)
	for range 3 {
		time.advance(retryInterval)
		wantFull("a write", set(db, "key", "never"), kv.ErrUnavailable)
		wantFull("a read", errOf(get(db, "key")), kv.ErrUnavailable)
		wantFull("Check", db.Check(), kv.ErrUnavailable)
	}
	wantErr(t, "the store of the old reader is closed", errOf(old.Get([]byte("key")).Get()),
		kv.ErrUnavailable)

	old.Cancel()

	files.broken.Store(false)
	time.advance(retryInterval)

	if who == "writer" {
		mustSet(t, db, "other", "value")
	}
	if got, err := get(db, "key"); err != nil || (got != "value" && got != "lost") {
		t.Errorf("got %q, %v", got, err)
	}
	must(t, db.Check())

	mustClose(t, db)
	wantErr(t, "Check of a closed store", db.Check(), kv.ErrClosed)
}

// A store on a disk without any room opens by itself once there is some, and until then says why it
// cannot be used.
func TestOpenOnAFullDisk(t *testing.T) {
	for _, written := range []bool{false, true} {
		var time clock
		files := newFaultyFS(syscall.ENOSPC, func(op errorfs.Op) bool {
			name := filepath.Base(op.Path)
			return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpMkdirAll &&
				name != lockName && name != proofName
		})

		if written {
			db := openTest(t, files, Options{})
			mustSet(t, db, "key", "before")
			mustClose(t, db)
		}

		files.broken.Store(true)

		db := openTest(t, files, Options{now: time.now})
		for range 3 {
			time.advance(retryInterval)
			err := set(db, "key", "never")
			if !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "disk full") {
				t.Errorf("a write on the full disk: %v", err)
			}
			wantErr(t, "Check on the full disk", db.Check(), kv.ErrUnavailable)
		}

		files.broken.Store(false)
		time.advance(retryInterval)
		mustSet(t, db, "other", "value")

		if got, err := get(db, "key"); err != nil || (got == "before") != written {
			t.Errorf("written before %v: got %q, %v", written, got, err)
		}
		must(t, db.Check())
		mustClose(t, db)
	}
}

// Open fails if the folder cannot be written to, and works once it can.
func TestOpenFails(t *testing.T) {
	for _, kind := range []errorfs.OpKind{
		errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename,
		errorfs.OpMkdirAll,
	} {
		files := newFaultyFS(syscall.EROFS, func(op errorfs.Op) bool { return op.Kind == kind })
		files.broken.Store(true)

		_, err := Open(testDir, Options{FS: files})
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), testDir) {
			t.Errorf("operation %d: Open failed with %v", kind, err)
		}

		files.broken.Store(false)
		if err := openTest(t, files, Options{}).Close(); err != nil {
			t.Errorf("operation %d: %v", kind, err)
		}
	}
}

// Open fails if the folder cannot be listed any more once what was in the log is in a table. Pebble
// reads that table in the background, and panics if its Open fails meanwhile.
func TestListingFailsAfterFlush(t *testing.T) {
	disk := vfs.NewCrashableMem()
	db := openTest(t, disk, Options{})
	for i := range 100 {
		mustSet(t, db, fmt.Sprint(i), "")
		must(t, kv.Update(t.Context(), db, func(tx kv.Transaction) error {
			tx.Clear([]byte(fmt.Sprint(i)))
			return nil
		}))
	}

	for range harness.Times(20, 500) {
		var flushed atomic.Bool
		files := newFaultyFS(syscall.EIO, func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpCreate && isTable(op.Path) {
				flushed.Store(true)
			}
			return op.Kind == errorfs.OpList && flushed.Load()
		})
		files.inner = disk.CrashClone(vfs.CrashCloneCfg{})
		files.FS = errorfs.Wrap(files.inner, files.injector)

		files.broken.Store(true)
		wantErr(t, "Open", errOf(openQuiet(files)), syscall.EIO)
		if !flushed.Load() {
			t.Fatal("the log was empty")
		}

		files.broken.Store(false)
		mustClose(t, openTest(t, files, Options{}))
	}
}

// While too little space is free, only transactions that do not make the store larger are admitted.
func TestDiskFull(t *testing.T) {
	var time clock
	files := vfs.NewMem()

	free := func(n uint64) {
		files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1000})
		time.advance(spaceInterval)
	}

	free(100)
	db := openTest(t, files, Options{MinFreeSpace: 100, now: time.now})

	run := func(o kv.BeginOptions, work func(kv.Transaction)) error {
		tx, err := db.Begin(t.Context(), o)
		must(t, err)
		work(tx)
		_, err = tx.Commit().Get()

		return err
	}

	put := func(tx kv.Transaction) { tx.Set([]byte("key"), []byte("value")) }
	grow := func() error { return run(kv.BeginOptions{}, put) }
	// Shrinks counts, whatever the sizes of the writes and removals.
	shrink := func() error { return run(kv.BeginOptions{Shrinks: true}, put) }
	remove := func() error {
		return run(kv.BeginOptions{}, func(tx kv.Transaction) { tx.Clear([]byte("other")) })
	}
	removeRange := func() error {
		return run(kv.BeginOptions{}, func(tx kv.Transaction) {
			tx.ClearRange(kv.Range{Begin: []byte("o"), End: []byte("p")})
		})
	}
	// What a cleared range holds may be as much as is written instead.
	replace := func() error {
		return run(kv.BeginOptions{}, func(tx kv.Transaction) {
			tx.ClearRange(kv.Range{Begin: []byte("k"), End: []byte("l")})
			put(tx)
		})
	}
	must(t, grow())

	// 100 bytes are kept free, and the others may use three quarters of them.
	for _, step := range []struct {
		free   uint64
		grows  bool // transactions that make the store larger are let in
		others bool // so are all others
	}{
		{free: 99, grows: false, others: true},
		{free: 20, grows: false, others: false},
		{free: 200, grows: true, others: true},
	} {
		free(step.free)
		want := fmt.Sprintf("disk full: %d bytes free, 100 needed", step.free)
		for name, err := range map[string]error{"grow": grow(), "replace": replace()} {
			refused := errors.Is(err, kv.ErrUnavailable) && !kv.MaybeCommitted(err)
			if (err == nil) != step.grows ||
				err != nil && (!refused || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %d free: %v, without %q", name, step.free, err, want)
			}
		}

		for name, err := range map[string]error{
			"shrink": shrink(), "remove": remove(), "remove a range": removeRange(),
		} {
			if (err == nil) != step.others ||
				err != nil && (!errors.Is(err, kv.ErrUnavailable) || kv.MaybeCommitted(err)) {
				t.Errorf("%s with %d free: %v", name, step.free, err)
			}
		}
		wantValue(t, db, "key", "value")
	}
}

// When the disk has room again, the log says so once, with the first transaction that is let in. A
// disk that goes up and down around the limit is a line a minute.
func TestRoomAgainIsLogged(t *testing.T) {
	var time clock
	var log harness.Transcript
	files := vfs.NewMem()

	free := func(n uint64) {
		files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1000})
		time.advance(spaceInterval)
	}

	free(100)
	logger := slog.New(slog.NewTextHandler(&log, nil))
	db := openTest(t, files, Options{MinFreeSpace: 100, now: time.now, Logger: logger})

	push := func() {
		tx, err := db.Begin(t.Context(), kv.BeginOptions{})
		must(t, err)
		tx.Set([]byte("key"), []byte("value"))
		_, _ = tx.Commit().Get() // refused while the disk is full
	}

	logged := func(want int) {
		t.Helper()
		if n := strings.Count(log.String(), "the disk has room again"); n != want {
			t.Fatalf("logged %d times, want %d: %s", n, want, log.String())
		}
	}

	push()
	free(99)
	push()
	logged(0)

	free(100)
	push()
	push()
	logged(1)

	for range 20 { // a few seconds by the clock
		free(99)
		push()
		free(100)
		push()
	}

	logged(1)
	time.advance(spaceInterval * 600) // a minute
	push()
	logged(2)
}

// A writer that waits for flushes goes on after one, and gives up when its context, the disk or the
// store ends.
func TestWaitRoom(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()

	for _, name := range []string{"flush", "failure", "close"} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			files := newFaultyFS(nil, func(op errorfs.Op) bool {
				if op.Kind == errorfs.OpCreate && isTable(op.Path) {
					<-gate
				}
				return false
			})

			files.broken.Store(true)
			db := openTest(t, files, Options{MemTableSize: minMemTableSize})
			value := strings.Repeat("v", 100_000)

			for n := 0; db.store.waitRoom(over, db.closing) == nil; n++ {
				if n > 100*maxMemTables {
					t.Fatal("writers never wait")
				}
				mustSet(t, db, "key", value)
			}

			waiting := make(chan error)
			db.retry = time.Now().Add(time.Hour) // after a failure the folder cannot be closed yet
			go func() { waiting <- set(db, "key", "value") }()

			switch name {
			case "flush":
				close(gate)
				noError(t, <-waiting)
			case "failure":
				db.store.disk.fail(syscall.EIO)
				wantErr(t, "the writer", <-waiting, kv.ErrUnavailable)
				close(gate)
			case "close":
				go close(gate)
				mustClose(t, db)

				err := <-waiting
				if err != nil && !errors.Is(err, kv.ErrClosed) && !kv.MaybeCommitted(err) {
					t.Error(err)
				}
			}
		})
	}
}

// A compaction that begins while the folder is being opened, and fails, must not
// keep it from being opened: Pebble waits there for its end.
func TestCompactionFailsDuringOpen(t *testing.T) {
	files := vfs.NewMem()
	o := Options{
		Logger: quiet,
		FS: (&hookFS{FS: files}).onCreate(func(name string, category vfs.DiskWriteCategory) error {
			if isTable(name) && category != categoryFlush { // a table of a compaction
				return syscall.EIO
			}
			return nil
		}),
	}

	for i, failed := 0, false; !failed; i++ {
		if i == 100 {
			t.Fatal("no compaction began during 100 opens")
		}

		db, err := Open(testDir, o)
		if err == nil { // each log becomes a table when it is opened again, on top of the others
			err = set(db, "key", fmt.Sprint(i))
			_ = db.Close() // its disk may have failed
		}

		failed = err != nil
	}

	db := openTest(t, files, Options{})
	noError(t, errOf(get(db, "key")))
}
