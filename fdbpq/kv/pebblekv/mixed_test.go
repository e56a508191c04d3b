package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// contents returns the files of the folder dir, by name.
func contents(t *testing.T, files vfs.FS, dir string) map[string]string {
	t.Helper()
	names, err := files.List(dir)
	must(t, err)
	all := make(map[string]string)

	for _, name := range names {
		f, err := files.Open(files.PathJoin(dir, name))
		must(t, err)
		content, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))

		all[name] = string(content)
	}

	return all
}

// put writes files into testDir, as cp does.
func put(t *testing.T, files vfs.FS, all map[string]string) {
	t.Helper()
	must(t, files.MkdirAll(testDir, ownerFolder))
	for name, content := range all {
		writeFile(t, files, files.PathJoin(testDir, name), []byte(content))
	}
}

// backUp returns the files of a backup.
func backUp(t *testing.T, files vfs.FS, db *DB) map[string]string {
	t.Helper()
	must(t, db.Backup(t.Context(), "copy"))
	backup := contents(t, files, "copy")
	must(t, files.RemoveAll("copy"))

	return backup
}

// stopped closes a store and returns its files.
func stopped(t *testing.T, files vfs.FS, db *DB) map[string]string {
	t.Helper()
	mustClose(t, db)
	return contents(t, files, testDir)
}

// newFolder returns a folder with files.
func newFolder(t *testing.T, all map[string]string) *crashfs.FS {
	t.Helper()
	files := crashfs.New()
	put(t, files, all)
	return files
}

// wantMixed checks that a folder is refused as a mix of histories, and left as it is.
func wantMixed(t *testing.T, files vfs.FS) {
	t.Helper()
	before := contents(t, files, testDir)

	db, err := openQuiet(files)
	if err == nil {
		_ = db.Close()
		t.Fatal("the mix was opened")
	}

	mixed := errors.Is(err, errMixed) || strings.Contains(err.Error(), "batch seqnum")
	if !mixed || !strings.Contains(err.Error(), "into an empty ") {
		t.Errorf("the error is %q", err)
	}

	delete(before, "LOCK")
	after := contents(t, files, testDir)
	delete(after, "LOCK")

	if !maps.Equal(before, after) {
		t.Error("the folder was changed")
	}
}

// A folder with files of two histories is refused and left as it is, however they came together.
// Into an empty folder the same files go without complaint.
func TestMixedHistories(t *testing.T) {
	write := func(t *testing.T, db *DB, n int) {
		for range n {
			mustSet(t, db, "key", fmt.Sprint(rand.Uint64()))
		}
	}

	// Files have numbers, and Pebble replays only logs with higher ones than its newest tables
	// have.
	flush := func(t *testing.T, db *DB, n int) {
		for range n {
			write(t, db, 1)
			must(t, db.store.pdb.Flush())
		}
	}

	reopen := func(t *testing.T, files vfs.FS, db *DB) *DB {
		mustClose(t, db)
		return openTest(t, files, Options{})
	}

	// Each returns files that are copied over a folder, and the files of that folder.
	type files = map[string]string
	for name, histories := range map[string]func(*testing.T, *crashfs.FS, *DB) (over, under files){
		"older backup over newer store": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			backup := backUp(t, fs, db)
			flush(t, db, 20)
			write(t, db, 1)
			return backup, stopped(t, fs, db)
		},
		"backup over reopened store": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			backup := backUp(t, fs, db)
			for range 3 {
				db = reopen(t, fs, db)
				write(t, db, 3)
			}

			return backup, stopped(t, fs, db)
		},
		"newer backup over older in use": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			old := newFolder(t, backUp(t, fs, db))
			write(t, db, 10)
			backup := backUp(t, fs, db)
			served := openTest(t, old, Options{})
			flush(t, served, 20)
			write(t, served, 5)

			return backup, stopped(t, old, served)
		},
		"backup with more commits since": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			copied := newFolder(t, backUp(t, fs, db))
			flush(t, db, 20)
			write(t, db, 1)
			served := openTest(t, copied, Options{})

			for range 3 {
				write(t, served, 50)
				served = reopen(t, copied, served)
			}

			return stopped(t, copied, served), stopped(t, fs, db)
		},
		"cold copy over newer store": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			cold := stopped(t, fs, db)
			db = openTest(t, fs, Options{})
			write(t, db, 2)
			return cold, stopped(t, fs, db)
		},
		"store over newer cold copy": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			cold := newFolder(t, stopped(t, fs, db))
			copied := openTest(t, cold, Options{})
			write(t, copied, 2)
			return contents(t, fs, testDir), stopped(t, cold, copied)
		},
		"backup without its log": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			over := backUp(t, fs, db)
			maps.DeleteFunc(over, func(name, _ string) bool {
				return isLog(name) || name == commitMarkName
			})

			mark := contents(t, fs, testDir)[commitMarkName]
			flush(t, db, 3)
			write(t, db, 1)
			under := stopped(t, fs, db)
			under[commitMarkName] = mark // as a power cut may leave it

			return over, under
		},
		"another store": func(t *testing.T, fs *crashfs.FS, db *DB) (_, _ files) {
			other := crashfs.New()
			served := openTest(t, other, Options{})
			flush(t, served, 20)
			write(t, served, 3)

			return stopped(t, fs, db), stopped(t, other, served)
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := crashfs.New()
			db := openTest(t, files, Options{})
			write(t, db, 20)
			over, under := histories(t, files, db)

			mixed := newFolder(t, under)
			put(t, mixed, over)
			wantMixed(t, mixed)

			mustClose(t, openTest(t, newFolder(t, over), Options{}))
			mustClose(t, openTest(t, newFolder(t, under), Options{}))
		})
	}
}

// savedStore is a folder, with what the store in it has.
type savedStore struct {
	files map[string]string
	pairs string
}

func saved(t *testing.T, all map[string]string) savedStore {
	t.Helper()
	db := openTest(t, newFolder(t, all), Options{})
	return savedStore{all, pairsOf(t, db)}
}

func pairsOf(t *testing.T, db *DB) string {
	t.Helper()
	read := func(r kv.Reader) (string, error) {
		pairs, err := r.GetRange(kv.Range{Begin: []byte("0"), End: []byte("9")}, kv.RangeOptions{}).
			Get()
		return fmt.Sprintf("%q", pairs), err
	}

	pairs, err := kv.ReadTransact(context.Background(), db, read)
	must(t, err)
	return pairs
}

// Whichever files of one history are copied over another one, and even if the copying ends halfway,
// the folder is refused, or it has exactly what one of the two had.
func TestPartlyCopiedHistories(t *testing.T) {
	refusals, opened := 0, 0
	for range harness.RaceTimes(harness.Times(15, 80), 3) {
		s := newDamagedStore(t)
		step := func() {
			s.write(1 + s.rng.IntN(10))
			switch s.rng.IntN(4) {
			case 0:
				must(t, s.db.store.pdb.Flush())
			case 1:
				mustClose(t, s.db)
				s.db = openTest(t, s.files, Options{})
			}
		}

		// Backups of a store and of itself served from backups.
		var all []savedStore
		for range 4 {
			for range s.rng.IntN(6) {
				step()
			}

			all = append(all, saved(t, backUp(t, s.files, s.db)))
			if s.rng.IntN(2) == 0 {
				mustClose(t, s.db)
				all = append(all, saved(t, contents(t, s.files, testDir)))
				served := all[s.rng.IntN(len(all))]
				s.files = newFolder(t, served.files)
				s.db = openTest(t, s.files, Options{})
				s.keys = s.keys[:0]
				step()
			}
		}

		mustClose(t, s.db)

		for range 20 {
			over, under := all[s.rng.IntN(len(all))], all[s.rng.IntN(len(all))]
			copied := maps.Clone(over.files)
			names := slices.Sorted(maps.Keys(copied))
			what := "all"

			if s.rng.IntN(2) == 0 {
				what = "some"
				s.rng.Shuffle(len(names),
					func(i, j int) { names[i], names[j] = names[j], names[i] })

				for _, name := range names[s.rng.IntN(len(names)):] {
					delete(copied, name)
				}
			}

			mixed := newFolder(t, under.files)
			put(t, mixed, copied)
			db, err := openQuiet(mixed)
			if err != nil {
				if !errors.Is(err, errMixed) && !errors.Is(err, errDamaged) {
					t.Errorf("refused with %v", err)
				}

				refusals++
				continue
			}

			opened++
			if pairs := pairsOf(t, db); pairs != over.pairs && pairs != under.pairs {
				t.Errorf("with %s files copied, the store has neither the pairs of one nor the "+
					"pairs of the other", what)
			}

			mustClose(t, db)
		}
	}

	t.Logf("%d refused, %d opened", refusals, opened)
}

// A damaged file of settings is named, because nothing is missing without it.
func TestDamagedOptions(t *testing.T) {
	s := newDamagedStore(t)
	s.write(20)
	mustClose(t, s.db)
	var path string

	for _, name := range list(t, s.files) {
		if strings.HasPrefix(name, "OPTIONS-") {
			path = s.files.PathJoin(testDir, name)
		}
	}

	content, err := s.files.UnsafeGetFileDataBuffer(path)
	must(t, err)

	text := string(content)
	for what, damaged := range map[string]string{
		"zeros":    strings.Repeat("\x00", len(text)),
		"cut off":  text[:strings.IndexByte(text, '=')],
		"comparer": strings.Replace(text, "comparer=leveldb", "comparer=xxxxxxx", 1),
	} {
		files := s.killed()
		writeFile(t, files, path, []byte(damaged))

		_, err := openQuiet(files)
		if err == nil || errors.Is(err, errDamaged) ||
			!strings.Contains(err.Error(), "remove "+path) {
			t.Errorf("%s: %v", what, err)
		}

		remove(t, files, path)
		s.wantWhole(files, what+", and removed")
	}
}
