package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// damagedStore is a store whose copies, as kill -9 leaves them, are damaged.
type damagedStore struct {
	t     *testing.T
	rng   *rand.Rand
	files *crashfs.FS
	db    *DB
	keys  []string // that are acknowledged
}

func newDamagedStore(t *testing.T) *damagedStore {
	s := &damagedStore{t: t, rng: seeded(t), files: crashfs.New()}
	s.db = openTest(t, s.files, Options{MemTableSize: minMemTableSize})
	return s
}

// write writes n transactions with values of all sizes. Some share a sync.
func (s *damagedStore) write(n int) { s.writeSizes(n, 0, 10, 300, 5000, 50_000) }

// logPart is a part of a log.
type logPart struct {
	path     string
	from, to int64 // offsets in bytes
}

// writeSmall writes a few small transactions into one log, and returns where: for each that is
// flipped Pebble tries all bits of the transaction, which takes seconds for a large one.
func (s *damagedStore) writeSmall() logPart {
	s.t.Helper()
	for {
		path, from := s.newest()
		s.writeSizes(5, 10, 300)

		if now, to := s.newest(); now == path {
			return logPart{path, from, to}
		}
	}
}

// writeSizes writes n transactions, each with a random value of one of the sizes in bytes.
func (s *damagedStore) writeSizes(n int, sizes ...int) {
	s.t.Helper()
	var pending []kv.Future[struct{}]

	await := func() {
		for _, p := range pending {
			_, err := p.Get()
			must(s.t, err)
		}
		pending = pending[:0]
	}

	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], s.rng.Uint64())
	filler := rand.NewChaCha8(seed)

	for range n {
		tx := begin(s.t, s.db)
		key := fmt.Sprintf("%06d", len(s.keys))
		value := make([]byte, sizes[s.rng.IntN(len(sizes))])
		_, _ = filler.Read(value)
		tx.Set([]byte(key), value)
		s.keys = append(s.keys, key)
		pending = append(pending, tx.Commit())

		if s.rng.IntN(3) == 0 {
			await()
		}
	}

	await()
}

// newest returns the path of the newest log, and how many bytes were written to it and synced.
func (s *damagedStore) newest() (path string, length int64) {
	s.t.Helper()
	logs := s.logs()
	newest := logs[len(logs)-1]
	written, _ := s.db.store.disk.logs.Load(filepath.Base(newest))

	return newest, written.(*atomic.Int64).Load()
}

// logs returns the paths of the logs, oldest first.
func (s *damagedStore) logs() []string {
	s.t.Helper()
	names := list(s.t, s.files)
	var logs []string

	for _, name := range names {
		if _, _, isLog := wal.ParseLogFilename(name); isLog {
			logs = append(logs, s.files.PathJoin(testDir, name))
		}
	}

	slices.Sort(logs)
	return logs
}

// killed returns a copy of the files as kill -9 leaves them.
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
	must(t, err)

	for i := offset; i < min(offset+16, int64(len(data))); i++ {
		data[i] ^= 0xff
	}
}

// cut cuts a file off.
func cut(t *testing.T, files rawFiles, path string, length int64) {
	t.Helper()
	old, err := files.UnsafeGetFileDataBuffer(path)
	must(t, err)
	f, err := files.Create(path, logCategory)
	if err == nil {
		_, err = f.Write(old[:length])
	}
	must(t, errors.Join(err, f.Close()))
}

// wantRefused checks that a store is not opened because it is damaged, and left as it is.
func wantRefused(t *testing.T, files vfs.FS, what string) {
	t.Helper()
	before := list(t, files)

	db, err := openQuiet(files)
	if err == nil {
		_ = db.Close()
		t.Errorf("%s: the store was opened", what)
		return
	}

	wantRefusal(t, err, what)

	after, err := files.List(testDir)
	slices.Sort(before)
	slices.Sort(after)

	if err != nil || !slices.Equal(before, after) {
		t.Errorf("%s: the folder had %q, and now %q, %v", what, before, after, err)
	}
}

// wantRefusal checks that an error says that the store is damaged, where it is, and that there may
// be a backup.
func wantRefusal(t *testing.T, err error, what string) {
	t.Helper()
	// With a damaged manifest, old tables may look like tables of another history.
	known := errors.Is(err, errDamaged) || errors.Is(err, errMixed)
	if !known || !strings.Contains(err.Error(), testDir) ||
		!strings.Contains(err.Error(), "backup") {
		t.Errorf("%s: the error is %q", what, err)
	}
}

// wantWhole checks that all acknowledged keys are there.
func (s *damagedStore) wantWhole(files vfs.FS, what string) {
	s.t.Helper()
	db := openTest(s.t, files, Options{})
	tx := beginRead(s.t, db)
	defer tx.Cancel()

	pairs, err := tx.GetRange(kv.Range{Begin: []byte("0"), End: []byte("9")}, kv.RangeOptions{}).
		Get()
	if err != nil || len(pairs) < len(s.keys) {
		s.t.Errorf("%s: %d of %d keys are there, %v", what, len(pairs), len(s.keys), err)
	}
}

// offsets returns places before end: the first, the last and random ones. With little time there
// are fewer of each.
func (s *damagedStore) offsets(end int64) []int64 {
	offsets := []int64{0, end - 1, 1, end - 16, end - 17}[:harness.RaceTimes(5, 2)]
	for range harness.RaceTimes(harness.Times(5, 50), 1) {
		offsets = append(offsets, s.rng.Int64N(end))
	}

	return offsets
}

// Wherever the newest log is damaged or cut off, or if it is gone, the store is not opened without
// its acknowledged commits. A log whose end was never synced is no damage.
func TestDamagedLog(t *testing.T) {
	// So many transactions make the newest log the one that the name says.
	for name, transactions := range map[string]int{
		"first log":  10,
		"later log":  100,
		"reused log": 400,
		"closed log": 400,
	} {
		t.Run(name, func(t *testing.T) {
			s := newDamagedStore(t)
			s.write(transactions)
			small := s.writeSmall()
			path, length := small.path, small.to

			if name == "closed log" {
				mustClose(t, s.db)
			}

			// Damage is refused.
			for _, offset := range s.offsets(length) {
				files := s.killed()
				cut(t, files, path, offset)
				wantRefused(t, files, fmt.Sprintf("cut off at %d of %d", offset, length))
			}
			s.wantFlipsRefused(small)

			if harness.Nightly {
				s.wantFlipsRefused(logPart{path, 0, length})
			}

			files := s.killed()
			remove(t, files, path)
			wantRefused(t, files, "log removed")

			// Without damage the store has all that was acknowledged.
			s.wantWhole(s.killed(), "not damaged")
			files = s.killed()
			cut(t, files, path, length)
			s.wantWhole(files, "cut off where it was synced")
		})
	}
}

// wantFlipsRefused flips bytes here and there in a part of a log, each time in another copy of the
// store, and checks that none of the copies is opened.
func (s *damagedStore) wantFlipsRefused(in logPart) {
	s.t.Helper()
	for range harness.RaceTimes(3, 1) {
		files := s.killed()
		offset := in.from + s.rng.Int64N(in.to-in.from)
		flip(s.t, files, in.path, offset)

		wantRefused(s.t, files,
			fmt.Sprintf("16 bytes of %s flipped at %d of %d", in.path, offset, in.to))
	}
}

// A store is not opened if one of the older logs that it still needs is damaged.
func TestDamagedOlderLog(t *testing.T) {
	s := &damagedStore{t: t, rng: seeded(t), files: crashfs.New()}
	flushed := make(chan struct{})

	held := (&hookFS{FS: s.files}).onCreate(func(name string, _ vfs.DiskWriteCategory) error {
		if isTable(name) {
			<-flushed // until then all logs are needed
		}
		return nil
	})

	s.db = openTest(t, held, Options{MemTableSize: minMemTableSize})
	defer close(flushed)
	places := map[string]logPart{} // the last part of small transactions in each log

	for len(s.logs()) < 3 { // two older ones and the newest
		small := s.writeSmall()
		places[small.path] = small
		s.write(1) // begins one log at most
	}

	logs := s.logs()
	for _, path := range logs[:len(logs)-1] {
		if places[path].to == 0 {
			t.Fatalf("%s was not begun by this store", path)
		}
		s.wantFlipsRefused(places[path])
	}
}

// The error of a damaged store names a file, and once that is removed, the store is opened without
// the damaged part, and can be written to.
func TestGiveUpDamage(t *testing.T) {
	s := newDamagedStore(t)
	s.write(200)
	path, length := s.newest()
	files := s.killed()
	cut(t, files, path, length/2)

	_, err := openQuiet(files)
	if !errors.Is(err, errDamaged) {
		t.Fatal(err)
	}

	_, mark, found := strings.Cut(err.Error(), "and remove ")
	if !found {
		t.Fatal(err)
	}

	remove(t, files, mark)
	db := openTest(t, files, Options{})
	mustSet(t, db, "key", "value")
}

var errInjected = errors.New("injected")
