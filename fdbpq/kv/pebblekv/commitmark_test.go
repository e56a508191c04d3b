package pebblekv

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The mark is exact whenever a commit was acknowledged, in each life of a store.
func TestCommitMarkIsExact(t *testing.T) {
	const each = 20 // commits in a life
	s := newDamagedStore(t)
	for life := range 3 {
		opened := uint64((each+1)*life + 1) // Opening a store is a commit as well.
		for n := range uint64(each) {
			mustSet(t, s.db, "key", "value")
			mark, err := readCommitMark(s.files, testDir)

			want := opened + n + 1
			if err != nil || mark.newest != want || s.db.store.applied != want {
				t.Fatalf("after commit %d the mark is %+v, %v", want, mark, err)
			}
		}

		mustClose(t, s.db)
		before, err := readCommitMark(s.files, testDir)
		must(t, err)

		s.db = openTest(t, s.files, Options{})

		mark, err := readCommitMark(s.files, testDir)
		want := commitNumbers{
			newest:   opened + each + 1,
			inTables: opened + each,
			opening:  s.db.store.opening,
			before:   before.opening,
			first:    opened + each + 1,
		}
		if err != nil || mark != want || mark.opening == mark.before {
			t.Errorf("after it was opened again the mark is %+v, %v, want %+v", mark, err, want)
		}
	}
}

// A power cut after a flush leaves a mark that knows the flush.
func TestCommitMarkIsDurable(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(3)
	s.write(1) // The syncer has synced the mark by then.
	want, err := readCommitMark(s.files, testDir)
	must(t, err)

	files := s.files.CrashClone(vfs.CrashCloneCfg{})
	got, err := readCommitMark(files, testDir)
	if err != nil || got.inTables != want.inTables || got.newest < got.inTables {
		t.Errorf("after a power cut the mark is %+v, %v, before %+v", got, err, want)
	}
}

// Any mark but one that promises too much is fine: an older one, one that is torn, or none.
func TestOtherMarks(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(1)
	older, err := s.files.UnsafeGetFileDataBuffer(commitMarkPath(s.files, testDir))
	must(t, err)

	older = bytes.Clone(older)
	s.flushed(3)

	for what, mark := range map[string][]byte{
		"older": older, "torn": append(bytes.Clone(older[:12]), make([]byte, 16)...),
		"cut off": older[:5], "empty": nil,
	} {
		files := s.killed()
		writeFile(t, files, commitMarkPath(files, testDir), mark)
		s.wantWhole(files, what)
		now, err := readCommitMark(files, testDir)

		n := uint64(len(s.keys)) + 2 // with the two openings
		if err != nil || now.newest != n || now.inTables != n-1 {
			t.Errorf("%s: afterwards it is %+v, %v", what, now, err)
		}
	}

	files := s.killed()
	remove(t, files, commitMarkPath(files, testDir))
	s.wantWhole(files, "none")
}

// Without a mark, everything still works.
func TestWithoutCommitMark(t *testing.T) {
	for name, kind := range map[string]errorfs.OpKind{
		"open": errorfs.OpOpen, "write": errorfs.OpFileWriteAt, "sync": errorfs.OpFileSync,
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Int64
			cause := error(syscall.ENOSPC)

			if name == "open" {
				cause = fs.ErrNotExist // or else it is there, and may say something
			}

			files := newFaultyFS(cause, func(op errorfs.Op) bool {
				fails := strings.HasPrefix(filepath.Base(op.Path), commitMarkName) &&
					op.Kind == kind
				if fails {
					failures.Add(1)
				}

				return fails
			})

			files.broken.Store(true)
			db := openTest(t, files, Options{})
			mustSet(t, db, "000001", "value")
			mustClose(t, db)

			if failures.Load() == 0 {
				t.Error("nothing failed")
			}
			checkAcked(t, openTest(t, files, Options{}), 1)
		})
	}
}

// Whatever is killed or loses its power is opened again; whatever was cut off before that
// is refused, or nothing acknowledged is missing.
func TestVanishedCommits(t *testing.T) {
	s := newDamagedStore(t)
	refusals, opened := 0, 0

	for round := range harness.RaceTimes(harness.Times(12, 100), 4) {
		switch s.rng.IntN(8) {
		case 0:
			must(t, s.db.store.pdb.Flush())
		case 1:
			mustClose(t, s.db)
			s.db = openTest(t, s.files, Options{MemTableSize: minMemTableSize})
		}

		s.write(1 + s.rng.IntN(20))

		s.wantWhole(s.killed(), fmt.Sprintf("round %d: killed", round))
		kept := []int{0, 50, 100}[s.rng.IntN(3)]
		s.wantWhole(s.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: s.rng}),
			fmt.Sprintf("round %d: power cut, %d %% kept", round, kept))

		files := s.killed()
		what := fmt.Sprintf("round %d: %s", round, s.vanish(files))
		db, err := openQuiet(files)
		if err != nil {
			wantRefusal(t, err, what)
			refusals++
			continue
		}

		mustClose(t, db)
		s.wantWhole(files, what)
		opened++
	}

	t.Logf("%d refused, %d opened with nothing missing", refusals, opened)
}

// vanish cuts off, or removes, a random part of a store, and says which.
func (s *damagedStore) vanish(files *crashfs.FS) string {
	s.t.Helper()
	path, _ := s.newest()

	if s.rng.IntN(2) == 0 {
		path, _ = manifest(s.t, files)
	}

	content, err := files.UnsafeGetFileDataBuffer(path)
	must(s.t, err)

	if s.rng.IntN(10) == 0 {
		remove(s.t, files, path)
		return path + " removed"
	}

	length := s.rng.Int64N(int64(len(content)) + 1)
	cut(s.t, files, path, length)
	return fmt.Sprintf("%s cut off at %d of %d", path, length, len(content))
}
