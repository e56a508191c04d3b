package pebblekv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// powerCuts is a file system that takes pictures of what power cuts leave.
type powerCuts struct {
	vfs.FS
	acked atomic.Int64
	cuts  []powerCut
	on    atomic.Bool
	every int64 // a picture before each every'th write
	kept  int   // percent of what is not synced that is in the pictures
	ops   atomic.Int64
}

type powerCut struct {
	files *crashfs.FS
	acked int64
}

// newPowerCuts takes pictures of files in front of every operation that may change
// them, from start on. MaybeError is called by several goroutines of Pebble.
func newPowerCuts(files *crashfs.FS, every int64) *powerCuts {
	p := &powerCuts{every: every}
	taking := make(chan struct{}, 1)
	random := rand.New(rand.NewPCG(1, 2)) // unused with all or nothing

	p.FS = errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !p.on.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || p.ops.Add(1)%p.every != 0 {
			return nil
		}

		taking <- struct{}{}
		acked := p.acked.Load()

		p.cuts = append(p.cuts, powerCut{
			files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: p.kept, RNG: random}),
			acked,
		})

		<-taking
		return nil
	}))

	return p
}

// life opens a store, counts from acked on, with a flush now and then, and closes it.
func (p *powerCuts) life(t *testing.T, steps int64) {
	t.Helper()
	db, err := openQuiet(p.FS)
	must(t, err)

	for range steps {
		mustSet(t, db, "count", fmt.Sprintf("%06d", p.acked.Load()+1))
		p.acked.Add(1)
		must(t, db.store.pdb.Flush())
	}

	mustClose(t, db)
}

// pictures is life with pictures.
func (p *powerCuts) pictures(t *testing.T, steps int64) {
	t.Helper()
	p.on.Store(true)
	defer p.on.Store(false)
	p.life(t, steps)
}

// Wherever the power is cut while manifests begin, grow and take each other's place,
// twice in a row too, the store is opened and nothing acknowledged is lost.
func TestPowerCutOfManifest(t *testing.T) {
	files := crashfs.New()
	p := newPowerCuts(files, int64(harness.RaceTimes(harness.Times(2, 1), 3)))

	for range 2 {
		p.pictures(t, 2)
	}

	second := 0
	for i, cut := range p.cuts {
		again := newPowerCuts(cut.files, 30) // few, because there are many cuts
		again.acked.Store(cut.acked)
		again.ops.Store(int64(i)) // other places each time
		again.pictures(t, 0)

		wantCount(t, cut.files, cut.acked, fmt.Sprintf("power cut %d", i))

		for j, cut := range again.cuts {
			wantCount(t, cut.files, cut.acked, fmt.Sprintf("power cut %d, and again %d", i, j))
			second++
		}
	}

	t.Logf("%d power cuts, and %d during the start after one", len(p.cuts), second)
}

// Wherever the process is killed while it opens a store, the next one opens it.
func TestKilledWhileOpening(t *testing.T) {
	files := crashfs.New()
	p := newPowerCuts(files, 1)
	p.kept = 100

	for range 3 {
		p.pictures(t, 0)
		db := openTest(t, files, Options{})
		mustSet(t, db, "count", fmt.Sprintf("%06d", p.acked.Add(1))) // stays in the log
		mustClose(t, db)
	}

	for i, cut := range p.cuts {
		if cut.acked > 0 {
			wantCount(t, cut.files, cut.acked, fmt.Sprintf("killed at %d", i))
		}
	}
	if logs := logSizes(t, files); len(logs) != 1 {
		t.Errorf("%d logs, want one", len(logs))
	}
}

// A process may end after it made the marker of a new manifest and before that is
// durable. The next one takes the new manifest for the one in force, and a power cut
// may still bring the old one back.
func TestPowerCutAfterUnsyncedMarker(t *testing.T) {
	files := crashfs.New()
	p := newPowerCuts(files, 1)
	p.life(t, 2)
	path, _ := manifest(t, files)

	failing := errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Path != testDir || op.Kind != errorfs.OpFileSync {
			return nil
		}

		if now, err := pebble.Peek(testDir, files); err != nil || now.ManifestFilename != path {
			return errors.Join(errInjected, err)
		}

		return nil
	}))

	if db, err := openQuiet(failing); err == nil {
		_ = db.Close()
		t.Fatal("it was opened though the folder was not synced")
	}
	if now, _ := manifest(t, files); now == path {
		t.Fatal("the marker still names the old manifest")
	}

	wantCount(t, files.CrashClone(vfs.CrashCloneCfg{}), p.acked.Load(),
		"without a start in between")

	p.pictures(t, 1)
	for i, cut := range p.cuts {
		wantCount(t, cut.files, cut.acked, fmt.Sprintf("power cut %d after that", i))
	}
}

func wantCount(t *testing.T, files vfs.FS, least int64, when string) {
	t.Helper()
	db, err := openQuiet(files)
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	defer func() { _ = db.Close() }()
	value, err := get(db, "count")
	if count := fmt.Sprintf("%06d", least); err != nil || least > 0 && value < count {
		t.Errorf("%s: read %q, %v, but %s was acknowledged", when, value, err, count)
	}
}
