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
		*o = bridgeOptions(url, r.leafURL(), db, timeout, r.wrongBy(), r.limits)
		o.Logger = quiet()
	})
}

// stopBridge ends a bridge, whose connection may just have been cut. On a busy machine NATS may not
// answer within the time that a shutdown waits for it.
func (r *rig) stopBridge(b *testenv.Bridge) {
	err := b.Stop()
	if err != nil && !testenv.Unconfirmed.MatchString(err.Error()) &&
		!strings.Contains(err.Error(), "replies could not be sent") {
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
	toNATS := newProxy(r.t, r.env.NATS.URL())
	r.fromBridges = toNATS
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
		fault{"connections of bridges cut", toNATS.cut},
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
func startKill(r *rig) {
	r.oneByOne, r.mortal = true, true
	folder := r.t.TempDir()
	toNATS := newProxy(r.t, r.env.NATS.URL())
	r.fromBridges = toNATS

	s := newService(
		r.t,
		serviceConfig{
			NATS:           toNATS.url(),
			Leaf:           r.leafURL(),
			Folder:         folder,
			RequestTimeout: r.requestTimeout(time.Second),
			Limits:         r.limits,
		},
		r.wrongBy,
	)

	kill := fault{"bridge killed (SIGKILL)", func() {
		s.kill()
		s.start()
	}}

	r.faults = append(r.faults, kill, fault{"connections of bridges cut", toNATS.cut}, kill)
	r.measure = func() resources { return serviceResources(r.t, s) }

	r.stop = func() kv.Database {
		s.stop()
		db := openFolder(r.t, folder, vfs.Default)
		r.t.Cleanup(func() { _ = db.Close() })
		return db
	}
}

func openFolder(t *testing.T, folder string, fs vfs.FS) *pebblekv.DB {
	t.Helper()
	db, err := pebblekv.Open(folder,
		pebblekv.Options{FS: fs, Logger: quiet(), CacheSize: 8 << 20, MemTableSize: 1 << 20})
	must(t, err)
	return db
}

// badDisk is a disk whose writes fail, or that is full.
type badDisk struct {
	vfs.FS
	mu struct {
		sync.Mutex
		random *rand.Rand
		rate   float64 // share of writes that fail
		err    error   // the error of those writes
		full   bool
		failed int
	}
}

func (d *badDisk) set(rate float64, err error, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.rate, d.mu.err, d.mu.full = rate, err, full
}

// MaybeError implements errorfs.Injector.
func (d *badDisk) MaybeError(op errorfs.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && d.mu.random.Float64() < d.mu.rate {
		d.mu.failed++
		return d.mu.err
	}

	return nil
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
	r.oneByOne = true
	disk := &badDisk{}
	disk.mu.random = rand.New(rand.NewPCG(r.random.Uint64(), 3))
	disk.FS = errorfs.Wrap(vfs.Default, disk)
	db := openFolder(r.t, r.t.TempDir(), disk)
	r.t.Cleanup(func() { _ = db.Close() })
	b := r.startBridge(r.env.NATS.URL(), db, 200*time.Millisecond)

	while := func(rate float64, err error, full bool) func() {
		return func() {
			disk.set(rate, err, full)
			r.hold(400 * time.Millisecond)
			disk.set(0, nil, false)
		}
	}

	r.faults = append(r.faults,
		fault{"disk: every write fails (EIO)", while(1, syscall.EIO, false)},
		fault{"disk: some writes fail (EIO)", while(0.02, syscall.EIO, false)},
		fault{"disk full (ENOSPC)", while(1, syscall.ENOSPC, true)},
		fault{"disk nearly full", while(0, nil, true)},
	)

	r.stop = func() kv.Database {
		r.stopBridge(b)
		r.tally.add("disk: single writes that failed", disk.mu.failed)
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
