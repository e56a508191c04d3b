package pebblekv

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// smallDisk is a disk with little room for files in the folder of a store.
type smallDisk struct {
	vfs.FS
	capacity int64
}

func (d *smallDisk) GetDiskUsage(dir string) (vfs.DiskUsage, error) {
	names, err := d.List(dir)
	free := d.capacity

	for _, name := range names {
		if info, err := d.Stat(d.PathJoin(dir, name)); err == nil { // or it was removed meanwhile
			free -= info.Size()
		}
	}

	return vfs.DiskUsage{AvailBytes: uint64(max(free, 0)), TotalBytes: uint64(d.capacity)}, err
}

// fullDisk is a store that has filled its disk with keys.
type fullDisk struct {
	*DB
	t     *testing.T
	clock clock
	value []byte
	keys  int
}

func newFullDisk(t *testing.T, size int) *fullDisk {
	t.Helper()
	d := &fullDisk{t: t, value: make([]byte, size)}
	rand.NewChaCha8([32]byte{}).Read(d.value)
	// Room for several memtables and tables, with some to spare for compactions.
	files := &smallDisk{FS: vfs.NewMem(), capacity: 40 << 20}
	d.DB = openTest(t, files, Options{MinFreeSpace: 12 << 20, now: d.clock.now})

	for d.push() == nil {
	}
	return d
}

// run commits one transaction.
func (d *fullDisk) run(shrinks bool, work func(kv.Transaction)) error {
	d.t.Helper()
	d.clock.advance(spaceInterval)
	tx, err := d.Begin(d.t.Context(), kv.BeginOptions{Shrinks: shrinks})
	must(d.t, err)

	work(tx)
	return errOf(tx.Commit().Get())
}

func (d *fullDisk) key(n int) []byte { return fmt.Appendf(nil, "k%08d", n) }

// push adds keys, 50 KB at once.
func (d *fullDisk) push() error {
	d.t.Helper()
	n := d.keys

	err := d.run(false, func(tx kv.Transaction) {
		for range max(50_000/len(d.value), 1) {
			tx.Set(d.key(n), d.value)
			n++
		}
	})

	if err == nil {
		d.keys = n
	}

	return err
}

// recovers pushes until that succeeds.
func (d *fullDisk) recovers() { d.retry(d.push) }

// retry does something until it succeeds. Compactions need space before they free some.
func (d *fullDisk) retry(something func() error) {
	d.t.Helper()
	began := time.Now()

	for err := something(); err != nil; err = something() {
		if time.Since(began) > time.Minute {
			d.t.Fatalf("still refused: %v\n%s", err, d.store.pdb.Metrics())
		}
		runtime.Gosched()
	}
}

// After a full disk pushes succeed again once a queue was purged, without a restart: removals leave
// the memtable, although nothing fills that.
func TestFullDiskThenPurge(t *testing.T) {
	for _, size := range []int{200, 5000, 50_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			d := newFullDisk(t, size)

			must(t, d.run(true, func(tx kv.Transaction) {
				tx.ClearRange(kv.Range{Begin: d.key(0), End: d.key(d.keys)})
			}))

			d.recovers()
		})
	}
}

// After a full disk pushes succeed again once all items were popped.
func TestFullDiskThenPops(t *testing.T) {
	d := newFullDisk(t, 200)

	for n := 0; n < d.keys; n += 500 {
		d.retry(func() error {
			return d.run(true, func(tx kv.Transaction) {
				for i := n; i < min(n+500, d.keys); i++ {
					tx.Clear(d.key(i))
				}
			})
		})
	}

	d.recovers()
}

// Pushes that are refused flush at most once a second, and only after removals.
func TestFlushesOfFullDisk(t *testing.T) {
	var clock clock
	files := vfs.NewMem()
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 99, TotalBytes: 1000})
	db := openTest(t, files, Options{MinFreeSpace: 100, now: clock.now})

	for i, step := range []struct {
		removes bool          // something, before the push
		after   time.Duration // until the push
		flushes bool
	}{
		{removes: false, after: time.Hour, flushes: false},
		{removes: true, after: 0, flushes: true},
		{removes: true, after: 0, flushes: false},
		{removes: false, after: reclaimInterval, flushes: true},
		{removes: false, after: reclaimInterval, flushes: false},
	} {
		if step.removes {
			tx := begin(t, db)
			tx.Clear([]byte("key"))
			mustCommit(t, tx)
		}

		clock.advance(step.after)
		before := db.store.nextFlush

		wantErr(t, "a push", set(db, "key", "value"), kv.ErrUnavailable)

		if flushed := db.store.nextFlush != before; flushed != step.flushes {
			t.Errorf("step %d: flushed: %t", i, flushed)
		}
	}
}

// Removals are flushed even while pops are refused, because nothing else would free their space,
// but no longer once too little is free for the flush itself.
func TestFlushWhilePopsAreRefused(t *testing.T) {
	// Of 100 bytes that are kept free, pops leave 25, and flushes 12.
	for free, flushes := range map[uint64]bool{24: true, 11: false} {
		var clock clock
		files := vfs.NewMem()
		files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 99, TotalBytes: 1000})
		db := openTest(t, files, Options{MinFreeSpace: 100, now: clock.now})
		tx := begin(t, db)
		tx.Clear([]byte("key"))
		mustCommit(t, tx)
		before := db.store.nextFlush

		files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 1000})
		clock.advance(time.Hour)
		tx = begin(t, db)
		tx.Clear([]byte("other"))

		wantErr(t, "a pop", errOf(tx.Commit().Get()), kv.ErrUnavailable)

		if flushed := db.store.nextFlush != before; flushed != flushes {
			t.Errorf("with %d bytes free: flushed: %t", free, flushed)
		}
	}
}

// Tables that were replaced are removed although nothing is committed any more.
func TestReplacedTablesAreRemoved(t *testing.T) {
	db := openTest(t, vfs.NewMem(), Options{})
	fill(t, db)
	must(t, db.store.pdb.Compact(t.Context(), []byte("0"), []byte("9"), false))

	for began := time.Now(); db.store.pdb.Metrics().Table.ZombieCount > 0; runtime.Gosched() {
		if time.Since(began) > time.Minute {
			t.Fatalf("tables are kept:\n%s", db.store.pdb.Metrics())
		}
	}
	wantFilled(t, db)
}
