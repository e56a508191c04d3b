package pebblekv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// openedStore is one opening of the folder. After a disk failure the DB opens the folder again, as
// a new store.
type openedStore struct {
	disk     *diskFS
	pdb      *pebble.DB
	syncer   *syncer // started once the folder is open
	gapIndex *gapIndex

	background *background

	opening uint64 // id of this opening: see commitMark

	folder *folderGuard // of the DB
	damage *damage

	// Only the holder of the writer slot uses these.
	applied     uint64 // the number of the newest commit, which is the version of the store
	counters    counterCache
	spareWrites []write

	removed   bool      // something was removed since the last flush for lack of space
	nextFlush time.Time // when the next of these may be

	backingUp sync.Mutex // held during a backup

	// maxMemory is how many bytes of memtables may wait to be flushed. A limit on their number
	// would not do: Pebble starts with small ones and flushes none before they are worth a table.
	maxMemory uint64

	rotated atomic.Bool   // a memtable was started since waitRoom last looked
	room    chan struct{} // has one element after a flush or compaction

	mu    sync.Mutex
	ended error               // why nothing can begin any more, or nil
	live  map[any]func(error) // how to abort each transaction and backup
}

// register lets abortAll end a transaction or backup: abort makes its later calls fail with an
// error, unless it has ended. It fails if the store has ended.
func (s *openedStore) register(tx any, abort func(error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.live[tx] = abort
	return nil
}

func (s *openedStore) unregister(tx any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, tx)
}

// apply makes the writes of batch visible to the next write transaction and hands them to the
// syncer. It returns the future of the commit. The caller holds the writer slot.
func (s *openedStore) apply(
	ctx context.Context, batch *pebble.Batch, found *gapSet,
) (*pendingCommit, error) {
	numberCommit(batch, s.opening, s.applied+1)
	s.syncer.applying.Store(s.applied + 1)
	if err := s.pdb.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		s.disk.fail(err)
		return nil, unknownOutcome(err)
	}
	s.applied++
	s.gapIndex.publishCommitted(s.applied, s.syncer.synced.Load(), found)

	// Readers move on to this view once the commit is synced.
	c := &pendingCommit{ctx: ctx, batch: batch, done: make(chan struct{})}
	var err error
	if c.view, err = newView(s.pdb, s.applied); err != nil {
		s.disk.fail(err)
	}
	s.syncer.commits <- c
	return c, nil
}

// reclaimInterval is the shortest time between two flushes for lack of space.
const reclaimInterval = time.Second

// reclaim is called while too little of the disk is free. A removal frees space only once the
// memtable is flushed, which Pebble does when it is full. The caller holds the writer slot.
func (s *openedStore) reclaim(space *spaceGuard) {
	now := space.now()
	if s.removed && !now.Before(s.nextFlush) && space.want(space.min/flushDivisor) == nil {
		s.removed, s.nextFlush = false, now.Add(reclaimInterval)
		_, _ = s.pdb.AsyncFlush() // The next commit notices a failed disk.
	}
}

// afterAll returns a future that is ready once everything applied so far is durable. The caller
// holds the writer slot.
func (s *openedStore) afterAll(ctx context.Context) kv.Future[struct{}] {
	if s.syncer.synced.Load() == s.applied {
		return kv.Ready(struct{}{}, nil)
	}
	c := &pendingCommit{ctx: ctx, done: make(chan struct{})}
	s.syncer.commits <- c
	return c
}

// pendingCommit is the future of a commit that waits for its sync.
type pendingCommit struct {
	ctx   context.Context
	batch *pebble.Batch // nil if nothing was written
	view  *view         // the state after it, nil if nothing was written

	done chan struct{} // closed by the syncer
	err  error         // set before done is closed

	gaveUp error // what Get returned when ctx ended
}

func (c *pendingCommit) Get() (struct{}, error) {
	if c.gaveUp != nil {
		return struct{}{}, c.gaveUp
	}

	// A result that is there counts even if ctx has ended.
	select {
	case <-c.done:
		return struct{}{}, c.err
	default:
	}

	select {
	case <-c.done:
		return struct{}{}, c.err
	case <-c.ctx.Done():
		c.gaveUp = c.ctx.Err()
		if c.batch != nil {
			c.gaveUp = fmt.Errorf("%w: %w", kv.ErrCommitUnknown, c.gaveUp)
		}
		return struct{}{}, c.gaveUp
	}
}

// view is the store at a version, for readers.
type view struct {
	// iter is only cloned, never positioned, so it is safe for concurrent use. It is cheaper than
	// a snapshot: closing one makes Pebble look for compactions.
	iter    *pebble.Iterator
	version uint64
	refs    atomic.Int32
}

// newView returns a view of db, with a reference for the caller.
func newView(db *pebble.DB, version uint64) (*view, error) {
	iter, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	v := &view{iter: iter, version: version}
	v.refs.Store(1)
	return v, nil
}

func (v *view) unref() {
	if v.refs.Add(-1) == 0 {
		_ = v.iter.Close() // It reports read errors, and it has read nothing.
	}
}

// commitQueue is how many commits can wait for the syncer.
const commitQueue = 1024

// syncer waits for the syncs of the commits, in order, whether or not anybody waits for their
// futures. After each it moves the durable view and the commit mark on.
type syncer struct {
	pdb  *pebble.DB
	disk *diskFS
	mark *commitMark

	commits  chan *pendingCommit // in the order they were applied
	replaced chan struct{}       // has one element after a flush or compaction
	stopped  chan struct{}       // closed when run returns

	applying atomic.Uint64 // the newest version that may be visible
	synced   atomic.Uint64 // the version that is durable

	mu      sync.Mutex
	durable *view
}

// stop waits for the commits in progress. Nothing may be committed or read any more.
func (y *syncer) stop() {
	close(y.commits)
	<-y.stopped
	y.mark.close()
	y.durable.unref()
}

// durableView returns the durable view with a reference for the caller.
func (y *syncer) durableView() *view {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.durable.refs.Add(1)
	return y.durable
}

func (y *syncer) run() {
	defer close(y.stopped)
	for {
		select {
		case c, ok := <-y.commits:
			if !ok {
				return
			}
			y.waitSync(c)
			close(c.done)
		case <-y.replaced:
			y.markTables()
			y.renewView()
		}
	}
}

// waitSync waits until a commit is durable, and sets its result.
func (y *syncer) waitSync(c *pendingCommit) {
	if c.batch == nil {
		if failed := y.disk.err(); failed != nil {
			c.err = failure(failed)
		}
		return
	}

	err := c.batch.SyncWait()
	err = cmp.Or(y.disk.err(), err) // Pebble is not told about a failed disk.
	_ = c.batch.Close()             // It never fails.

	if err != nil {
		y.disk.fail(err)
		c.err = unknownOutcome(err)
		if c.view != nil {
			c.view.unref()
		}
		return
	}

	// The mark has to know a commit before anybody learns that it is synced.
	y.mark.setNewest(c.view.version)
	y.show(c.view)
}

// renewView lets go of the tables that were replaced since the durable view was made. They take
// space as long as a view has them. Commits under way bring views of their own.
func (y *syncer) renewView() {
	version := y.synced.Load()
	if y.applying.Load() != version {
		return
	}

	// Pebble says that a compaction has ended a moment before iterators see it, and holds its lock
	// meanwhile. A snapshot needs that lock.
	_ = y.pdb.NewSnapshot().Close() // It never fails.

	next, err := newView(y.pdb, version)
	if err != nil {
		return // The next commit notices.
	}

	if y.applying.Load() != version { // It may have a commit that is not durable.
		next.unref()
		return
	}
	y.show(next)
}

// show makes next the durable view.
func (y *syncer) show(next *view) {
	y.mu.Lock()
	old := y.durable
	y.durable = next
	y.mu.Unlock()

	y.synced.Store(next.version)
	old.unref()
}

// markTables marks the newest commit that the tables hold after a flush. On a failed disk they may
// not hold it.
func (y *syncer) markTables() {
	number, _, err := newestCommit(y.pdb, true)
	if err == nil && y.disk.err() == nil && number > y.mark.numbers.inTables {
		y.mark.setInTables(y.synced.Load(), number)
	}
}

// maxSublevels: a writer waits while a read has to look at more tables of the top level.
const maxSublevels = 16

// waitRoom waits while flushes and compactions lag too far behind the writers. Pebble would wait in
// the middle of a commit, where no context can end the wait and a failed disk would block it
// indefinitely.
func (s *openedStore) waitRoom(ctx context.Context, closing <-chan struct{}) error {
	// Reading the metrics is slow, so it is done once for each memtable.
	if !s.rotated.CompareAndSwap(true, false) {
		return nil
	}

	for {
		m := s.pdb.Metrics()
		// Pebble does not compact around damage, and may try a table that cannot be opened, so
		// waiting for that would stop the writers.
		flat := m.Levels[0].Sublevels <= maxSublevels || s.damage.err() != nil ||
			s.background.failing.Load()
		if m.MemTable.Size <= s.maxMemory && flat {
			return nil
		}

		select {
		case <-s.room:
		case <-s.disk.failed:
			return s.err()
		case <-closing:
			return kv.ErrClosed
		case <-ctx.Done():
			s.rotated.Store(true) // The next writer looks again.
			return ctx.Err()
		}
	}
}

// err returns an error wrapping kv.ErrUnavailable if the disk has failed.
func (s *openedStore) err() error {
	if err := s.disk.err(); err != nil {
		return failure(err)
	}
	return nil
}

// readError returns the error for the caller of a read that failed with err. It returns nil if err
// is nil.
func (s *openedStore) readError(err error) error {
	if err == nil {
		return nil
	}

	// If the folder or the disk is gone, the data may be intact.
	if gone := s.folder.check(true); gone != nil {
		s.disk.fail(gone)
	}
	if failed := s.disk.err(); failed != nil {
		return failure(errors.Join(failed, err))
	}
	if passing(err) {
		return failure(err)
	}

	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		// The event listener has noted it.
		err = fmt.Errorf("%s: %w", info.Path, info.Details)
	} else {
		what := err.Error()
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			what = path.Path
		}
		s.damage.note(what, err)
	}

	return kv.WithCause(kv.ErrCorrupt, damagedReason, err)
}
