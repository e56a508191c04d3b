package pebblekv

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// readAll returns the pairs of a damagedStore. opened is false if it cannot be opened because of
// err.
func readAll(db *DB, err error) (pairs []kv.KeyValue, opened bool, _ error) {
	if err != nil {
		return nil, false, err
	}

	all := kv.Range{Begin: []byte("0"), End: []byte("9")}
	read := func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(all, kv.RangeOptions{}).Get()
	}
	pairs, err = kv.ReadTransact(context.Background(), db, read)
	return pairs, true, errors.Join(err, db.Close())
}

// Whichever bit of whichever file is flipped, and wherever any file is cut off, the store is not
// opened, or what needs the damaged part fails, or all that was acknowledged is there as it was.
func TestFlippedBits(t *testing.T) {
	s := newDamagedStore(t)
	for range 3 {
		s.writeSizes(20, 0, 10, 300)
		must(t, s.db.store.pdb.Flush())
	}
	s.writeSizes(20, 0, 10, 300)
	s.files = s.killed() // with which no compaction goes on

	want, _, err := readAll(openQuiet(s.killed()))
	must(t, err)
	if len(want) != len(s.keys) {
		t.Fatalf("%d of %d pairs", len(want), len(s.keys))
	}

	counts := map[string]int{}
	spoil := func(name, kind string, damage func(content []byte, at int) []byte) {
		files := s.killed()
		path := files.PathJoin(testDir, name)
		content, err := files.UnsafeGetFileDataBuffer(path)
		must(t, err)
		if len(content) == 0 {
			return
		}
		at := s.rng.IntN(len(content))
		writeFile(t, files, path, damage(content, at))

		pairs, opened, err := readAll(openQuiet(files))
		outcome := "whole"
		switch {
		case err != nil && !opened:
			outcome = "not opened"
			if !strings.Contains(err.Error(), testDir) {
				t.Errorf("%s, %s at %d of %d: %v", name, kind, at, len(content), err)
			}
		case err != nil:
			outcome = "not read"
			wantErr(t, name, err, kv.ErrCorrupt)
		case !reflect.DeepEqual(pairs, want):
			t.Errorf("%s, %s at %d of %d: other pairs", name, kind, at, len(content))
		}
		base, _, _ := strings.Cut(strings.TrimLeft(name, "0123456789"), "-")
		counts[filepath.Base(base)+" "+kind+": "+outcome]++
	}

	for _, name := range list(t, s.files) {
		for range harness.RaceTimes(harness.Times(5, 200), 2) {
			spoil(name, "flipped", func(content []byte, at int) []byte {
				content[at] ^= 1 << s.rng.IntN(8)
				return content
			})
			spoil(name, "cut off", func(content []byte, at int) []byte { return content[:at] })
		}
	}

	t.Log(counts)
}
