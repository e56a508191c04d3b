package pebblekv

import (
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// unopenable is a file system with one table that cannot be opened while it is broken: the first
// one made since arm. It counts the attempts.
type unopenable struct {
	*faultyFS
	armed atomic.Bool
	path  atomic.Pointer[string]
	tries atomic.Int64
}

func newUnopenable(err error) *unopenable {
	u := &unopenable{}
	u.faultyFS = newFaultyFS(err, func(op errorfs.Op) bool {
		switch path := u.path.Load(); {
		case op.Kind == errorfs.OpCreate && isTable(op.Path) && u.armed.CompareAndSwap(true, false):
			u.path.Store(&op.Path)
		case op.Kind == errorfs.OpOpen && path != nil && op.Path == *path:
			return u.tries.Add(1) < maxTries
		}
		return false
	})
	u.broken.Store(true)
	return u
}

// maxTries ends a test of something that does not wait between its tries.
const maxTries = 10_000

// arm makes the next table the one that cannot be opened.
func (u *unopenable) arm() { u.armed.Store(true) }

// triesIn returns how often Pebble tries to open the table in d, without a try that is under way.
func (u *unopenable) triesIn(d time.Duration) int64 {
	synctest.Wait()
	before := u.tries.Load()
	time.Sleep(d)
	return u.tries.Load() - before
}

// The statistics of a table that cannot be opened are tried once a second, which is logged once a
// minute. Neither Open nor Close waits for that. Once the table can be opened, they stop.
func TestStatisticsOfTableThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := newUnopenable(&fs.PathError{Op: "open", Path: "table", Err: syscall.EIO})
		files.arm()
		newTable(t, files)

		var log harness.Transcript
		open := func() *DB {
			t.Helper()
			began := time.Now()
			db := openTest(t, files, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if took := time.Since(began); took > 0 {
				t.Errorf("Open took %v", took)
			}
			return db
		}
		wantLines := func(when string, want int) {
			t.Helper()
			if n := strings.Count(log.String(), "background work failed"); n != want {
				t.Errorf("%s: logged %d times, want %d", when, n, want)
			}
		}

		db := open()
		if n := files.triesIn(10 * time.Second); n < 9 || n > 11 {
			t.Errorf("tried %d times in ten seconds, want one a second", n)
		}
		wantLines("after ten seconds", 1)
		time.Sleep(time.Minute)
		wantLines("a minute later", 2)

		began := time.Now()
		mustClose(t, db)
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}

		open()
		files.broken.Store(false)
		time.Sleep(2 * backgroundPause)
		if n := files.triesIn(time.Minute); n > 0 {
			t.Errorf("a table that was opened is opened %d times more", n)
		}
	})
}

// A compaction of a table that cannot be opened is tried once a second, which is logged once a
// minute. Meanwhile writers and flushes go on.
func TestCompactionOfTableThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Transcript
		files := newUnopenable(syscall.EMFILE)
		db := openTest(t, files, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		failed := func() int64 { return db.store.pdb.Metrics().Compact.FailedCount }
		files.arm()

		began := time.Now()
		for i := range maxSublevels + 4 {
			mustSet(t, db, "key", fmt.Sprint(i))
			must(t, db.store.pdb.Flush())
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("writers and flushes took %v", took)
		}

		synctest.Wait()
		before := failed()
		time.Sleep(10 * time.Second)
		if n := failed() - before; n < 9 || n > 11 {
			t.Errorf("%d compactions failed in ten seconds, want one a second", n)
		}
		if n := strings.Count(log.String(), "background work failed"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}

		files.broken.Store(false)
		time.Sleep(2 * backgroundPause)
		if m := db.store.pdb.Metrics(); m.Levels[0].Sublevels > 1 {
			t.Errorf("not compacted once that is possible:\n%s", m)
		}
		noError(t, db.Check())
	})
}
