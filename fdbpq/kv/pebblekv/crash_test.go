package pebblekv

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// crashers is how many counters are counted up at the same time. Each is kept
// twice, to see whether transactions are whole.
const crashers = 4

type crashLoad struct {
	db    *DB
	files *crashfs.FS
	acked [crashers]atomic.Uint64 // whose commit was reported
	shown [crashers]atomic.Uint64 // that a reader has seen
	steps chan struct{}           // one element for each commit
}

func crashKey(counter, copy int) []byte { return fmt.Appendf(nil, "%d/%d", counter, copy) }

// count counts one counter up until stop. It does not wait for each commit.
func (l *crashLoad) count(stop <-chan struct{}, counter int, filler []byte) error {
	var pending []kv.Future[struct{}]
	wait := func(left int) error {
		for ; len(pending) > left; pending = pending[1:] {
			if _, err := pending[0].Get(); err != nil {
				return err
			}
			l.acked[counter].Add(1)
		}
		return nil
	}

	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return wait(0)
		case l.steps <- struct{}{}:
		}

		tx, err := l.db.Begin(context.Background(), kv.BeginOptions{})
		if err != nil {
			return err
		}

		value := binary.BigEndian.AppendUint64(nil, n)
		tx.Set(crashKey(counter, 0), value)
		tx.Set(fmt.Appendf(nil, "filler/%d/%d", counter, n), filler)
		tx.Clear(fmt.Appendf(nil, "filler/%d/%d", counter, n-10))
		tx.Set(crashKey(counter, 1), value)
		pending = append(pending, tx.Commit())

		if err := wait(int(n) % 4); err != nil {
			return err
		}
	}
}

// look takes note of what readers see until stop.
func (l *crashLoad) look(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}

		values, err := readCounters(l.db)
		if err != nil {
			return err
		}

		for i, n := range values {
			l.shown[i].Store(n)
		}
	}
}

func readCounters(db *DB) (values [crashers]uint64, err error) {
	tx, err := db.BeginRead(context.Background())
	if err != nil {
		return values, err
	}
	defer tx.Cancel()
	for i := range values {
		var copies [2]uint64
		for j := range copies {
			value, err := tx.Get(crashKey(i, j)).Get()
			if err != nil {
				return values, err
			}

			if value != nil {
				copies[j] = binary.BigEndian.Uint64(value)
			}
		}

		if copies[0] != copies[1] {
			return values, fmt.Errorf("counter %d is %d and %d: half a transaction",
				i, copies[0], copies[1])
		}

		values[i] = copies[0]
	}

	return values, nil
}

// crash cuts the power at a random moment and checks the store afterwards.
func (l *crashLoad) crash(t *testing.T, rng *rand.Rand) {
	t.Helper()
	for range rng.IntN(100) {
		<-l.steps
	}

	least := l.least() // before the power cut, not after it
	left := l.files.CrashClone(
		vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng})
	db := openTest(t, left, Options{MemTableSize: minMemTableSize})
	values := l.check(t, db, least)

	// Whatever a reader sees then survives the next one.
	left = left.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)

	again, err := readCounters(openTest(t, left, Options{}))
	if err != nil || again != values {
		t.Errorf("after a second power cut %v, %v, was shown as %v", again, err, values)
	}
}

// least has the counts acknowledged or shown so far.
func (l *crashLoad) least() (values [crashers]uint64) {
	for i := range values {
		values[i] = max(l.acked[i].Load(), l.shown[i].Load())
	}
	return values
}

// check checks that a copy of the store has at least these counts, and only whole transactions.
func (l *crashLoad) check(t *testing.T, db *DB, least [crashers]uint64) (values [crashers]uint64) {
	t.Helper()
	values, err := readCounters(db)
	noError(t, err)

	for i := range values {
		if values[i] < least[i] {
			t.Errorf("counter %d is %d in the copy, was acknowledged or shown as %d",
				i, values[i], least[i])
		}
	}

	return values
}

// start counts and reads until end. Somebody must receive the steps.
func (l *crashLoad) start(t *testing.T, rng *rand.Rand) (end func()) {
	filler := make([]byte, 10_000) // so that there are flushes and compactions
	for i := 0; i < len(filler); i += 4 {
		binary.LittleEndian.PutUint32(filler[i:], rng.Uint32())
	}

	stop := make(chan struct{})
	var running sync.WaitGroup

	for i := range crashers {
		running.Go(func() { noError(t, l.count(stop, i, filler)) })
	}

	running.Go(func() { noError(t, l.look(stop)) })

	end = sync.OnceFunc(func() {
		close(stop)
		running.Wait()
		close(l.steps)
	})

	t.Cleanup(end)
	return end
}

// After a power cut under load, everything that was acknowledged or shown to readers is there, and
// transactions are whole.
func TestPowerCut(t *testing.T) {
	rng := seeded(t)
	l := &crashLoad{files: crashfs.New(), steps: make(chan struct{})}
	l.db = openTest(t, l.files, Options{MemTableSize: minMemTableSize})
	l.start(t, rng)

	for range harness.RaceTimes(harness.Times(8, 100), 5) {
		l.crash(t, rng)
	}
}
