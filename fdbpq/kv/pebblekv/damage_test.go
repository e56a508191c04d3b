package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// damagedStore is a store that was killed, to be damaged.
type damagedStore struct {
	t     *testing.T
	rng   *rand.Rand
	files *crashfs.FS
	db    *DB
	keys  []string // that are acknowledged
}

func newDamagedStore(t *testing.T) *damagedStore { return newDamagedStoreOf(t, 4<<20) }

func newDamagedStoreOf(t *testing.T, memTableSize int64) *damagedStore {
	s := &damagedStore{t: t, rng: seeded(t), files: crashfs.New()}
	s.db = openTest(t, s.files, Options{MemTableSize: memTableSize})
	return s
}

// write writes so many transactions of all sizes, some of which share a sync.
func (s *damagedStore) write(n int) {
	s.t.Helper()
	var pending []kv.Future[struct{}]
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], s.rng.Uint64())
	filler := rand.NewChaCha8(seed)
	for range n {
		tx := begin(s.t, s.db)
		key := fmt.Sprintf("%06d", len(s.keys))
		value := make([]byte, []int{0, 10, 300, 5000, 50_000}[s.rng.IntN(5)])
		_, _ = filler.Read(value)
		tx.Set([]byte(key), value)
		s.keys = append(s.keys, key)
		pending = append(pending, tx.Commit())
		if s.rng.IntN(3) == 0 {
			for _, p := range pending {
				if _, err := p.Get(); err != nil {
					s.t.Fatal(err)
				}
			}
			pending = pending[:0]
		}
	}
	for _, p := range pending {
		if _, err := p.Get(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// newest returns the newest log and how far it is synced.
func (s *damagedStore) newest() position {
	s.t.Helper()
	p, err := readLogMark(s.files, testDir)
	if err != nil || p == (position{}) {
		s.t.Fatalf("the mark is %v, %v", p, err)
	}
	return p
}

func (s *damagedStore) path(p position) string {
	return s.files.PathJoin(testDir, fmt.Sprintf("%06d.log", p.log))
}

// killed is what is left of the store after kill -9.
func (s *damagedStore) killed() *crashfs.FS {
	return s.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: s.rng})
}

// rawFiles is a crashfs.FS or vfs.MemFS.
type rawFiles interface {
	vfs.FS
	UnsafeGetFileDataBuffer(fullname string) ([]byte, error)
}

// flip flips 16 bytes of a file, fewer at its end.
func flip(t *testing.T, files rawFiles, path string, offset int64) {
	t.Helper()
	data, err := files.UnsafeGetFileDataBuffer(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := offset; i < min(offset+16, int64(len(data))); i++ {
		data[i] ^= 0xff
	}
}

// cut cuts a file off.
func cut(t *testing.T, files rawFiles, path string, length int64) {
	t.Helper()
	old, err := files.UnsafeGetFileDataBuffer(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := files.Create(path, logCategory)
	if err == nil {
		_, err = f.Write(old[:length])
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// refused checks that a store is not opened because of a log.
func refused(t *testing.T, files vfs.FS, path, what string) {
	t.Helper()
	db, err := Open(testDir, Options{FS: files, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_ = db.Close()
		t.Errorf("%s: the store was opened", what)
		return
	}
	for _, want := range []string{path, "backup"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %q, without %q", what, err, want)
		}
	}
}

// whole checks that all acknowledged keys are there.
func (s *damagedStore) whole(files vfs.FS, what string) {
	s.t.Helper()
	db := openTest(s.t, files, Options{})
	tx := beginRead(s.t, db)
	defer tx.Cancel()
	pairs, err := tx.GetRange(kv.Range{Begin: []byte("0"), End: []byte("9")}, kv.RangeOptions{}).Get()
	if err != nil || len(pairs) < len(s.keys) {
		s.t.Errorf("%s: %d of %d keys, %v", what, len(pairs), len(s.keys), err)
	}
}

// offsets returns places before end: the first, the last and random ones.
func (s *damagedStore) offsets(end int64) []int64 {
	offsets := []int64{0, end - 1, 1, end - 16, end - 17}[:race.Times(5, 2)]
	for range race.Times(60, 1) {
		offsets = append(offsets, s.rng.Int64N(end))
	}
	return offsets
}

// Wherever the newest log is damaged or cut off, the store is not opened without
// what was acknowledged. A log whose end was never synced is no damage.
func TestDamagedLog(t *testing.T) {
	for _, name := range []string{"first log", "later log", "reused log", "closed log"} {
		t.Run(name, func(t *testing.T) {
			s := newDamagedStoreOf(t, minMemTableSize) // each copy has all of its files
			switch name {
			case "first log":
				s.write(10)
			case "later log":
				s.write(100)
			default:
				s.write(400)
			}
			if name == "closed log" {
				if err := s.db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			at := s.newest()
			path := s.path(at)
			for _, offset := range s.offsets(at.offset) {
				files := s.killed()
				flip(t, files, path, offset)
				refused(t, files, path, fmt.Sprintf("16 bytes flipped at %d of %d", offset, at.offset))
				files = s.killed()
				cut(t, files, path, offset)
				refused(t, files, path, fmt.Sprintf("cut off at %d of %d", offset, at.offset))
			}
			files := s.killed()
			if err := files.Remove(path); err != nil {
				t.Fatal(err)
			}
			refused(t, files, logMarkPath(files, testDir), "log removed")

			s.whole(s.killed(), "not damaged")
			files = s.killed()
			cut(t, files, path, at.offset)
			s.whole(files, "cut off where it was synced")
		})
	}
}

// Older logs that are still needed are not passed over either.
func TestDamagedOlderLog(t *testing.T) {
	s := newDamagedStore(t)
	for len(logSizes(t, s.files)) < 3 {
		s.write(10)
	}
	names, err := logNames(s.files, testDir)
	if err != nil {
		t.Fatal(err)
	}
	for log, name := range names {
		if log == s.newest().log {
			continue
		}
		path := s.files.PathJoin(testDir, name)
		found, err := scanLog(s.files, path, log)
		if err != nil || !found.closed {
			t.Fatalf("%s: %+v, %v", path, found, err)
		}
		for range race.Times(3, 1) { // Pebble looks long for what was flipped.
			files := s.killed()
			offset := s.rng.Int64N(found.readable - plainHeader)
			flip(t, files, path, offset)
			refused(t, files, path, fmt.Sprintf("16 bytes flipped at %d of %d", offset, found.readable))
		}
	}
}

// A power cut may take the mark with it. Then what later blocks of the log say was
// synced counts.
func TestDamagedLogAfterPowerCut(t *testing.T) {
	s := newDamagedStore(t)
	s.write(200)
	at := s.newest()
	for s.write(1); s.newest().log != at.log; s.write(1) {
		at = s.newest() // The last transaction was alone in its log.
	}
	path := s.path(at)
	cutPower := func() *crashfs.FS { return s.files.CrashClone(vfs.CrashCloneCfg{}) }
	if p, err := readLogMark(cutPower(), testDir); err != nil || p != (position{}) {
		t.Fatalf("the mark survived: %v, %v", p, err)
	}
	last := at.offset / logBlock * logBlock // No damage reaches into the last block.
	for _, offset := range s.offsets(last - 15) {
		files := cutPower()
		flip(t, files, path, offset)
		refused(t, files, path, fmt.Sprintf("16 bytes flipped at %d of %d", offset, last))
	}
	s.whole(cutPower(), "not damaged")
}

// The message says how to go on without what is damaged.
func TestGiveUpDamage(t *testing.T) {
	s := newDamagedStore(t)
	s.write(200)
	at := s.newest()
	files := s.killed()
	flip(t, files, s.path(at), at.offset/2)
	_, err := Open(testDir, Options{FS: files, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, errDamaged) {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(err.Error(), "truncate ")
	var length int64
	var path, mark string
	if _, err := fmt.Sscanf(command, "-s %d %s && rm %s", &length, &path, &mark); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	cut(t, files, path, length)
	if err := files.Remove(mark); err != nil {
		t.Fatal(err)
	}
	db := openTest(t, files, Options{})
	if err := set(db, "key", "value"); err != nil {
		t.Error(err)
	}
}

// Without its marker a folder with tables or logs is not taken for a new one.
func TestMarkerMissing(t *testing.T) {
	s := newDamagedStore(t)
	s.write(200)
	files := s.killed()
	names, err := files.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.manifest.") {
			if err := files.Remove(files.PathJoin(testDir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if db, err := Open(testDir, Options{FS: files, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, errDamaged) {
		t.Errorf("opened as %v, %v", db, err)
	}
}

func TestQuoted(t *testing.T) {
	for path, want := range map[string]string{
		"/srv/data-1/SYNCED": "/srv/data-1/SYNCED", "/srv/my data": "'/srv/my data'", "it's": `'it'\''s'`,
	} {
		if got := quoted(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Without a mark everything still works.
func TestNoMark(t *testing.T) {
	for name, kind := range map[string]errorfs.OpKind{"open": errorfs.OpOpen, "write": errorfs.OpFileWrite} {
		t.Run(name, func(t *testing.T) {
			files := newFaultyFS(errInjected, func(op errorfs.Op) bool {
				return strings.HasSuffix(op.Path, logMarkName) && op.Kind == kind
			})
			db := openTest(t, files, Options{})
			files.broken.Store(true)
			if err := set(db, "key", "value"); err != nil {
				t.Error(err)
			}
		})
	}
}

var errInjected = errors.New("injected")
