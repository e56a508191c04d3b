package pebblekv

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

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
	// iter is never positioned, only cloned, so it is safe for concurrent use. It
	// is cheaper than a snapshot: closing one makes Pebble look for compactions.
	iter    *pebble.Iterator
	version uint64
	refs    atomic.Int32
}

func newView(iter *pebble.Iterator, version uint64) *view {
	v := &view{iter: iter, version: version}
	v.refs.Store(1)
	return v
}

func (v *view) unref() {
	if v.refs.Add(-1) == 0 {
		_ = v.iter.Close() // It reports read errors, and it has read nothing.
	}
}

// commitQueue is how many commits can wait for the syncer.
const commitQueue = 1024

// syncer waits for the syncs of the commits in order, whether or not anybody waits for
// their futures, and moves the durable view and the commit mark on.
type syncer struct {
	pdb  *pebble.DB
	disk *diskFS
	mark *commitMark

	commits chan *pendingCommit // in the order they were applied
	flushed chan struct{}       // has one element after a flush
	ended   chan struct{}       // closed by run

	synced atomic.Uint64 // version that is durable

	mu      sync.Mutex
	durable *view
}

func newSyncer(d *diskFS) *syncer {
	return &syncer{
		disk:    d,
		commits: make(chan *pendingCommit, commitQueue),
		flushed: make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
}

// start makes a view the durable one, and runs the syncer until stop.
func (y *syncer) start(pdb *pebble.DB, mark *commitMark, durable *view) {
	y.pdb, y.mark, y.durable = pdb, mark, durable
	y.synced.Store(durable.version)
	go y.run()
}

// stop waits for the commits in progress. Nothing may be committed or read any more.
func (y *syncer) stop() {
	close(y.commits)
	<-y.ended
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
	defer close(y.ended)
	for {
		select {
		case c, ok := <-y.commits:
			if !ok {
				return
			}
			y.wait(c)
			close(c.done)
		case <-y.flushed:
			y.markFlush()
		}
	}
}

// wait waits until a commit is durable, and sets its result.
func (y *syncer) wait(c *pendingCommit) {
	if c.batch == nil {
		if failed := y.disk.err(); failed != nil {
			c.err = failure(failed)
		}
		return
	}

	err := c.batch.SyncWait()
	// Pebble does not know about a failed disk.
	if failed := y.disk.err(); failed != nil {
		err = failed
	}
	_ = c.batch.Close() // It never fails.

	if err != nil {
		y.disk.fail(err)
		c.err = unknownOutcome(err)
		if c.view != nil {
			c.view.unref()
		}
		return
	}
	y.advance(c.view)
}

// advance makes a view the durable one.
func (y *syncer) advance(next *view) {
	// The mark knows a commit before anybody learns that it is synced.
	y.mark.setNewest(next.version)

	y.mu.Lock()
	old := y.durable
	y.durable = next
	y.mu.Unlock()

	y.synced.Store(next.version)
	old.unref()
}

// noteFlush makes the syncer mark a flush.
func (y *syncer) noteFlush() {
	select {
	case y.flushed <- struct{}{}:
	default:
	}
}

// markFlush marks what tables hold after a flush. On a failed disk they may not.
func (y *syncer) markFlush() {
	number, err := newestCommit(y.pdb, true)
	if err == nil && y.disk.err() == nil {
		y.mark.setInTables(commitNumbers{newest: y.synced.Load(), inTables: number})
	}
}
