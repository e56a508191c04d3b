package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
)

const (
	minFreeSpace  = 1 << 20 // bytes that the store needs
	plentyOfSpace = 1 << 40
)

// embedded is a system on an embedded store whose files fail on demand.
type embedded struct {
	*testenv.Env
	dir   string
	db    *pebblekv.DB
	log   syncLog
	fault atomic.Pointer[func(errorfs.Op) error]
	free  atomic.Uint64 // bytes of the disk
}

// usageFS is a file system that reports the given free space.
type usageFS struct {
	vfs.FS
	free *atomic.Uint64
}

func (u usageFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: u.free.Load()}, nil
}

// newEmbedded starts a system on the folder, which may have a store already. wrap,
// unless it is nil, puts something before the store.
func newEmbedded(t *testing.T, dir string, wrap func(kv.Database) kv.Database) *embedded {
	return newEmbeddedWith(t, dir, testenv.Options{Wrap: wrap})
}

// newEmbeddedWith is newEmbedded with other options of the environment.
func newEmbeddedWith(t *testing.T, dir string, o testenv.Options) *embedded {
	e := &embedded{dir: dir}
	e.free.Store(plentyOfSpace)
	logger := e.log.logger()

	files := usageFS{errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fault := e.fault.Load(); fault != nil {
			return (*fault)(op)
		}
		return nil
	})), &e.free}

	var err error
	e.db, err = pebblekv.Open(dir,
		pebblekv.Options{FS: files, Logger: logger, MinFreeSpace: minFreeSpace})
	must(t, err)

	t.Cleanup(func() { _ = e.db.Close() }) // Its files may be gone.
	o.Engine.Open = func(testing.TB) kv.Database { return e.db }
	change := o.Bridge

	o.Bridge = func(o *bridge.Options) {
		o.Logger = logger
		// Nothing here waits for it.
		o.RequestTimeout = 10 * testenv.Patience

		if change != nil {
			change(o)
		}
	}

	e.Env = testenv.New(t, o)
	return e
}

// failFiles makes operations on files with that suffix fail as the system would.
func (e *embedded) failFiles(suffix string, errno syscall.Errno, kinds ...errorfs.OpKind) {
	fault := func(op errorfs.Op) error {
		for _, kind := range kinds {
			if op.Kind == kind && strings.HasSuffix(op.Path, suffix) {
				return &fs.PathError{Op: "test", Path: op.Path, Err: errno}
			}
		}
		return nil
	}
	e.fault.Store(&fault)
}

func (e *embedded) repair() { e.fault.Store(nil) }

// newStuckEmbedded is newEmbedded with a store that is stuck until the test frees it.
func newStuckEmbedded(t *testing.T, dir string) (*embedded, stuck) {
	t.Helper()
	s := stuck{entered: make(chan struct{}, 100), free: make(chan struct{})}
	e := newEmbedded(t, dir, func(db kv.Database) kv.Database {
		s.Database = db
		return s
	})

	return e, s
}

// wantNoPaths checks that text does not reveal where the store is.
func (e *embedded) wantNoPaths(t *testing.T, text string) {
	t.Helper()
	for _, part := range []string{
		e.dir, "/" + filepath.Base(e.dir), filepath.Base(e.dir) + "/", ".sst", ".log",
	} {
		if strings.Contains(text, part) {
			t.Errorf("%q has %q", text, part)
		}
	}
}

// wantTrouble makes a request while the store has a fault. It has to be refused with the code and
// the reason, and be counted. /readyz has to say the reason too, and the log what is logged. Only
// the log says where the store is.
func (e *embedded) wantTrouble(t *testing.T, code int, subject, reason, logged string) {
	t.Helper()
	series := fmt.Sprintf(`pq_errors_total{code="%d",operation="%s"}`, code, map[string]string{
		"pq.jobs.push": "push", "pq.jobs.pop.min": "pop-min",
		"pq.jobs.peek.min": "peek-min"}[subject])
	before, err := metric(e.Bridge, series)
	if err != nil {
		t.Error(err)
	}

	refusal := refused(t, e.Env, code, subject, nil, nil)
	if !strings.Contains(refusal.Text, reason) {
		t.Errorf("the refusal is %q, without %q", refusal.Text, reason)
	}
	e.wantNoPaths(t, refusal.Text)
	wantMetric(t, e.Bridge, series, before+1)

	notReady(t, e.Bridge, reason)
	_, reasons, err := e.Bridge.Ready()
	if err != nil {
		t.Error(err)
	}

	e.wantNoPaths(t, strings.Join(reasons, "; "))
	e.wantNoPaths(t, string(e.Request("$SRV.STATS.pqbridge", nil, nil).Data))
	e.log.wantSays(t, logged)
}

// wantWell checks that everything works again.
func (e *embedded) wantWell(t *testing.T) {
	t.Helper()
	e.Bridge.WaitReady()
	push(t, e.Env, "pq.jobs.push", nil, "well")
}

// When less than the required space is free, pushes are refused and pops are not. /readyz says so,
// even if nobody pushes any more, until there is space again.
func TestNearlyFullDisk(t *testing.T) {
	t.Parallel()

	e := newEmbedded(t, t.TempDir(), nil)
	push(t, e.Env, "pq.jobs.push", nil, "x")
	e.free.Store(minFreeSpace - 1)

	// The store checks the space now and then.
	testenv.Eventually(t, func() error {
		err := replyError(e.Request("pq.jobs.push", nil, nil).Header)
		if !errors.Is(err, kv.ErrUnavailable) {
			return fmt.Errorf("pushed with %v", err)
		}

		return nil
	})
	e.wantTrouble(t, 503, "pq.jobs.push", "disk full: 1048575 bytes free, 1048576 needed",
		"disk full")

	if err := replyError(e.Request("pq.jobs.pop.min", nil, nil).Header); err != nil {
		t.Errorf("pop: %v", err)
	}

	notReady(t, e.Bridge, "disk full")
	e.free.Store(plentyOfSpace)
	e.wantWell(t)
}

// The outcome of a write that failed is unknown. From then on every request is refused because the
// disk is full, until it no longer is.
func TestFullDisk(t *testing.T) {
	t.Parallel()

	e := newEmbedded(t, t.TempDir(), nil)
	push(t, e.Env, "pq.jobs.push", nil, "x")
	e.failFiles("", syscall.ENOSPC, errorfs.OpFileWrite, errorfs.OpCreate)

	err := refused(t, e.Env, 503, "pq.jobs.push", nil, nil)
	if !err.Unknown || !strings.Contains(err.Text, "disk full") {
		t.Errorf("the push whose write failed: %v", err)
	}

	for range 3 { // it stays so
		e.wantTrouble(t, 503, "pq.jobs.push", "disk full", e.dir)
		e.wantTrouble(t, 503, "pq.jobs.pop.min", "disk full", e.dir)
	}

	e.repair()
	e.wantWell(t)
}

// A store whose folder is deleted refuses every request, and serves again once the folder is back.
func TestFolderTakenAway(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "thefolder")
	e := newEmbedded(t, dir, nil)
	push(t, e.Env, "pq.jobs.push", nil, "x")
	must(t, os.Rename(dir, dir+".away"))

	notReady(t, e.Bridge, "deleted or replaced") // before any request
	for _, subject := range []string{"pq.jobs.push", "pq.jobs.pop.min", "pq.jobs.peek.min"} {
		e.wantTrouble(t, 503, subject, "deleted or replaced", dir)
	}
	must(t, os.Rename(dir+".away", dir))

	e.wantWell(t)
	wantLen(t, e.Env, "pq", "jobs", 2)
}

// newTables makes a store whose items, in the queue "jobs", are in tables and not only in the log.
// It returns the files of the tables.
func newTables(t *testing.T, dir string) []string {
	t.Helper()
	e := newEmbedded(t, dir, nil)
	for range 20 { // The list of queues, which /readyz reads, is in another block.
		push(t, e.Env, "pq.jobs.push", nil, strings.Repeat("x", 50_000))
	}
	e.Bridge.MustStop()

	for range 2 { // What is in the log goes to a table when it is opened again.
		must(t, e.db.Close())
		var err error
		e.db, err = pebblekv.Open(dir, pebblekv.Options{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
	}
	must(t, e.db.Close())
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal("no table", err)
	}

	return tables
}

// If a table cannot be read or is damaged, requests that need it get 500, which is no reason to try
// again. The log has an error that names the table.
func TestUnreadableTable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"read error", "damaged"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "thefolder")
			tables := newTables(t, dir)

			// The store is stuck, so that the bridge reads no items at its start.
			e, s := newStuckEmbedded(t, dir)

			for _, table := range tables {
				if name == "damaged" {
					spoil(t, table)
				}
			}

			if name == "read error" {
				e.failFiles(".sst", syscall.EIO, errorfs.OpFileReadAt, errorfs.OpOpen)
			}

			close(s.free)
			for _, subject := range []string{"pq.jobs.pop.min", "pq.jobs.peek.min"} {
				e.wantTrouble(t, 500, subject, "stored data cannot be read",
					filepath.Base(tables[0]))
			}
			if n := strings.Count(e.log.String(), "level=ERROR"); n == 0 {
				t.Error("nothing was logged as an error")
			}
		})
	}
}

// A request that meets damaged data fails alone, even in one batch with requests to another queue,
// which all succeed.
func TestDamageOfOneQueue(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	tables := newTables(t, dir)
	e, s := newStuckEmbedded(t, dir)

	for _, table := range tables {
		spoil(t, table)
	}

	replies := []*nats.Subscription{ask(t, e.Conn, "pq.other.push", "x")}
	const n = 20

	for range n {
		replies = append(replies, ask(t, e.Conn, "pq.jobs.pop.min", ""))
		replies = append(replies, ask(t, e.Conn, "pq.other.push", "x"))
	}
	wantMetric(t, e.Bridge, "pq_pending_requests", 1+2*n)

	close(s.free)
	for i, r := range replies {
		err := replyError(next(t, r).Header)
		if damaged := i%2 == 1; errors.Is(err, kv.ErrCorrupt) != damaged || err != nil && !damaged {
			t.Errorf("request %d: %v", i, err)
		}
	}
	wantLen(t, e.Env, "pq", "other", n+1)
	wantMetric(t, e.Bridge, "pq_pending_requests", 0)
	wantMetric(t, e.Bridge, "pq_pending_bytes", 0)
}

// spoil overwrites the first half of a table, which has its items.
func spoil(t *testing.T, table string) {
	t.Helper()
	data, err := os.ReadFile(table)
	must(t, err)

	for i := range len(data) / 2 {
		data[i] ^= 0xff
	}

	f, err := os.OpenFile(table, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	must(t, err)
}

// /readyz writes nothing unless the last write failed. Then it writes until one succeeds, and the
// bridge is ready again.
func TestReadyWritesNothing(t *testing.T) {
	var begun atomic.Int64
	var current atomic.Pointer[error]

	counts := hooked{begin: func(context.Context) error {
		begun.Add(1)
		if err := current.Load(); err != nil {
			return *err
		}

		return nil
	}}

	e := start(t, testenv.Options{
		Wrap: counts.wrap,
		Bridge: func(o *bridge.Options) {
			o.RequestTimeout = 200 * time.Millisecond
			o.HTTPTimeout = testenv.Patience
		},
	})

	// writesOfReady asks /readyz, and returns how many transactions that began.
	writesOfReady := func(want bool) int64 {
		t.Helper()
		before := begun.Load()
		if ready, reasons, err := e.Bridge.Ready(); err != nil || ready != want {
			t.Errorf("ready: %t, %q, %v", ready, reasons, err)
		}

		return begun.Load() - before
	}

	// Only the sweep of old receipts begins by itself.
	waitUntil(t, "a sweep", func() bool { return begun.Load() >= 2 })
	same(t, "transactions of a healthy bridge", writesOfReady(true), 0)

	// failWrites makes transactions fail with an error, and waits until a batch has.
	failWrites := func(err error) {
		t.Helper()
		current.Store(&err)

		// One that waits too long for its turn is refused as well, and no batch fails.
		waitUntil(t, "a failed batch", func() bool {
			before := begun.Load()
			return !refused(t, e, 503, "pq.jobs.push", nil, nil).Unknown && begun.Load() > before
		})
	}

	failWrites(kv.ErrThrottled) // until the request's time is over
	current.Store(nil)
	writesOfReady(true)

	const none = "no more transactions after the probe"
	waitUntil(t, none, func() bool { return writesOfReady(true) == 0 })

	failWrites(kv.ErrUnavailable)
	if n := writesOfReady(false); n == 0 {
		t.Error("no write was tried")
	}

	current.Store(nil)
	if n := writesOfReady(true); n == 0 {
		t.Error("/readyz says ready although nothing was written since the failure")
	}
	waitUntil(t, none, func() bool { return writesOfReady(true) == 0 })
}
