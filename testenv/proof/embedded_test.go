package proof_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
)

// quiet drops the log, because the failures are intended.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// startBridge starts a bridge in this process.
func (r *rig) startBridge(url string, db kv.Database, timeout time.Duration) *testenv.Bridge {
	return r.env.StartBridge(func(o *bridge.Options) {
		*o = bridgeOptions(url, r.leafURL(), db, timeout, r.clock(), r.limits)
		o.Logger = quiet()
	})
}

// stopBridge ends a bridge, whose connection may just have been cut. On a busy machine NATS may not
// answer within the time that a shutdown waits for it.
func (r *rig) stopBridge(b *testenv.Bridge) {
	err := b.Stop()
	if err != nil && !testenv.Unconfirmed.MatchString(err.Error()) &&
		!strings.Contains(err.Error(), "replies not sent because NATS is unreachable") {
		r.t.Error(err)
	}
}

// startMem starts two or four bridges on one store in memory with every kind of fault.
func startMem(r *rig) {
	startBridges(r, map[faultkv.Fault]float64{
		faultkv.Delay:             0.1,
		faultkv.Outage:            0.005,
		faultkv.TooOld:            0.01,
		faultkv.Throttled:         0.01,
		faultkv.Conflict:          0.05,
		faultkv.UnknownLost:       0.03,
		faultkv.UnknownMade:       0.03,
		faultkv.UnknownBeforeNext: 0.03,
		faultkv.UnknownDuringNext: 0.03,
	})
}

// startBridges starts two or four bridges on one store in memory with some faults.
func startBridges(r *rig, rates map[faultkv.Fault]float64) {
	// A bridge that hears nothing from the other one about a pop answers in its place.
	r.mortal = !r.strangers
	mem := memkv.New(memkv.Options{History: 1000})
	db := faultkv.New(mem,
		faultkv.Options{Seed: r.random.Uint64(), Rates: rates, MaxDelay: 3 * time.Millisecond})
	toNATS := r.lineOfBridges()
	start := func() *testenv.Bridge {
		return r.startBridge(toNATS.url(), db, r.requestTimeout(100*time.Millisecond))
	}
	var bridges []*testenv.Bridge
	r.bridges = 2 + 2*r.random.IntN(2)

	for range r.bridges {
		bridges = append(bridges, start())
	}

	r.faults = append(r.faults,
		fault{"store away", func() {
			db.SetOutage(true)
			r.hold(400 * time.Millisecond)
			db.SetOutage(false)
		}},
		fault{"bridge stopped and another started", func() {
			r.stopBridge(bridges[0])
			bridges = append(bridges[1:], start())
		}},
	)

	r.stop = func() kv.Database {
		for _, b := range bridges {
			r.stopBridge(b)
		}

		db.Land()
		for kind, n := range db.Counts() {
			r.tally.add("store: "+kind.String(), n)
		}

		return mem
	}
}

// startKill starts a process on a folder.
func startKill(r *rig) { startOn(r, r.t.TempDir(), 0) }

// startOn starts a process on this folder, which is killed and paused.
func startOn(r *rig, folder string, minFree int64) *service {
	r.oneByOne, r.mortal = true, true
	toNATS := r.lineOfBridges()

	s := newService(
		r.t,
		serviceConfig{
			NATS:           toNATS.url(),
			Leaf:           r.leafURL(),
			Folder:         folder,
			MinFree:        minFree,
			RequestTimeout: r.requestTimeout(time.Second),
			Limits:         r.limits,
		},
		r.clock,
	)

	kill := fault{"bridge killed (SIGKILL)", func() {
		s.kill()
		s.start()
	}}

	restartNATS := r.faults[0].strike
	r.faults = append(r.faults, kill, kill,
		fault{"bridge paused (SIGSTOP)", func() {
			defer s.pause()()
			r.hold(2 * answerTime)
		}},
		fault{"bridge paused (SIGSTOP) while the NATS server starts again", func() {
			defer s.pause()()
			restartNATS()
			r.hold(answerTime)
		}},
	)
	r.measure = func() resources { return serviceResources(r.t, s) }

	r.stop = func() kv.Database {
		s.stop()
		db := openFolder(r.t, folder, vfs.Default)
		r.t.Cleanup(func() { _ = db.Close() })
		return db
	}

	return s
}

func openFolder(t *testing.T, folder string, fs vfs.FS) *pebblekv.DB {
	t.Helper()
	db, err := pebblekv.Open(folder,
		pebblekv.Options{FS: fs, Logger: quiet(), CacheSize: 8 << 20, MemTableSize: 1 << 20})
	must(t, err)
	return db
}

// badDisk is a disk that is in trouble now and then.
type badDisk struct {
	vfs.FS
	mu struct {
		sync.Mutex
		trouble
		random *rand.Rand
		counts map[string]int // of operations in trouble
	}
}

// trouble is what a disk does to some of its operations.
type trouble struct {
	name string
	of   func(errorfs.OpKind) bool
	rate float64 // the share of them
	slow time.Duration
	err  error // nil if they are only slow
	full bool
}

func (d *badDisk) set(t trouble) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.trouble = t
}

// MaybeError implements errorfs.Injector.
func (d *badDisk) MaybeError(op errorfs.Op) error {
	d.mu.Lock()
	t := d.mu.trouble
	hit := t.rate > 0 && t.of(op.Kind) && d.mu.random.Float64() < t.rate
	if hit {
		d.mu.counts[t.name]++
	}
	d.mu.Unlock()

	if !hit {
		return nil
	}
	if t.slow > 0 {
		<-time.After(t.slow)
	}
	return t.err
}

// ReuseForWrite implements vfs.FS. The errorfs forgets about files that are reused.
func (d *badDisk) ReuseForWrite(
	from, to string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, category)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(f, d), nil
}

func isRead(k errorfs.OpKind) bool { return k.ReadOrWrite() == errorfs.OpIsRead }

func isWrite(k errorfs.OpKind) bool { return k.ReadOrWrite() == errorfs.OpIsWrite }

func isSync(k errorfs.OpKind) bool {
	return k == errorfs.OpFileSync || k == errorfs.OpFileSyncData || k == errorfs.OpFileSyncTo
}

// String implements errorfs.Injector.
func (d *badDisk) String() string { return "bad disk" }

// GetDiskUsage implements vfs.FS.
func (d *badDisk) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	full := d.mu.full
	d.mu.Unlock()
	usage, err := d.FS.GetDiskUsage(path)

	if full {
		usage.AvailBytes = 0
	}

	return usage, err
}

// startDisk starts a bridge on a disk that fails.
func startDisk(r *rig) {
	r.oneByOne, r.unreadable = true, true
	disk := &badDisk{}
	disk.mu.counts = map[string]int{}
	disk.mu.random = rand.New(rand.NewPCG(r.random.Uint64(), 3))
	disk.FS = errorfs.Wrap(vfs.Default, disk)
	folder := r.t.TempDir()
	db := openFolder(r.t, folder, disk)
	r.t.Cleanup(func() { _ = db.Close() })
	b := r.startBridge(r.env.NATS.URL(), db, 200*time.Millisecond)

	for _, t := range []trouble{
		{name: "every write fails (EIO)", of: isWrite, rate: 1, err: syscall.EIO},
		{name: "some writes fail (EIO)", of: isWrite, rate: 0.02, err: syscall.EIO},
		{name: "every sync fails (EIO)", of: isSync, rate: 1, err: syscall.EIO},
		{name: "some syncs fail (EIO)", of: isSync, rate: 0.1, err: syscall.EIO},
		{name: "every read fails (EIO)", of: isRead, rate: 1, err: syscall.EIO},
		{name: "some reads fail (EIO)", of: isRead, rate: 0.1, err: syscall.EIO},
		{name: "writes slow", of: isWrite, rate: 1, slow: 20 * time.Millisecond},
		{name: "some syncs hang", of: isSync, rate: 0.1, slow: answerTime},
		{name: "full (ENOSPC)", of: isWrite, rate: 1, err: syscall.ENOSPC, full: true},
		{name: "nearly full", full: true},
	} {
		r.faults = append(r.faults, fault{"disk: " + t.name, func() {
			disk.set(t)
			r.hold(400 * time.Millisecond)
			disk.set(trouble{})
		}})
	}

	r.stop = func() kv.Database {
		r.stopBridge(b)
		for name, n := range disk.mu.counts {
			r.tally.add("operations of the disk: "+name, n)
		}

		// A table that could not be read makes the store not ready until it is opened again.
		must(r.t, db.Close())
		db = openFolder(r.t, folder, vfs.Default)
		return db
	}
}

// startPower starts a bridge on a machine that loses power: unsynced data is gone, or a
// random part of it is.
func startPower(r *rig) {
	r.oneByOne, r.mortal = true, true
	random := rand.New(rand.NewPCG(r.random.Uint64(), 4))
	disk := crashfs.New()
	toNATS := newProxy(r.t, r.env.NATS.URL())
	db := openFolder(r.t, "store", disk)
	r.t.Cleanup(func() { _ = db.Close() })
	b := r.startBridge(toNATS.url(), db, time.Second)

	// The memory of this process has the disk in it, twice where it is synced.
	r.measure = func() resources {
		held := own(r.t)()
		held.memory = 0
		return held
	}

	cut := func(percent int) fault {
		return fault{
			fmt.Sprintf("power cut, %d %% of the unsynced data is there", percent),
			func() {
				// What the bridge says after this reaches nobody.
				toNATS.refuse(true)
				r.toLeaf.refuse(true)
				after := disk.CrashClone(
					vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
				_ = b.Stop() // it cannot say goodbye
				_ = db.Close()
				toNATS.refuse(false)
				r.toLeaf.refuse(false)
				disk = after
				db = openFolder(r.t, "store", disk)
				b = r.startBridge(toNATS.url(), db, time.Second)
			},
		}
	}

	r.faults = append(r.faults, cut(0), cut(50), cut(100))
	r.stop = func() kv.Database {
		r.stopBridge(b)
		return db
	}
}
