package pebblekv

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// commit is the future of a commit that waits for its sync.
type commit struct {
	ctx   context.Context
	batch *pebble.Batch // nil if nothing was written
	view  *view         // the state after it, nil if nothing was written

	done chan struct{} // closed by the syncer
	err  error         // set before done is closed

	gaveUp error // what Get returned when ctx ended
}

// Get implements kv.Future.
func (c *commit) Get() (struct{}, error) {
	if c.gaveUp != nil {
		return struct{}{}, c.gaveUp
	}
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

// apply makes the writes of batch visible to the next write transaction, passes them
// to the syncer and returns their future. The caller holds DB.writer.
func (s *store) apply(ctx context.Context, batch *pebble.Batch, found *gapSet) (*commit, error) {
	numberCommit(batch, s.applied+1)
	if err := s.pdb.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		s.disk.fail(err)
		return nil, unknown(err)
	}
	s.applied++
	s.gapIndex.committed(s.applied, s.synced.Load(), found)
	c := &commit{ctx: ctx, batch: batch, done: make(chan struct{})}
	iter, err := s.pdb.NewIter(nil)
	if err != nil {
		// Later views hold what this one does.
		s.disk.fail(err)
	} else {
		c.view = newView(iter, s.applied)
	}
	s.commits <- c
	return c, nil
}

// afterAll returns a future that is ready once everything applied so far is durable.
// The caller holds DB.writer.
func (s *store) afterAll(ctx context.Context) kv.Future[struct{}] {
	if s.synced.Load() == s.applied {
		return kv.Ready(struct{}{}, nil)
	}
	c := &commit{ctx: ctx, done: make(chan struct{})}
	s.commits <- c
	return c
}

// sync is the syncer: it waits for the syncs of the commits in order, whether or not
// anybody waits for their futures.
func (s *store) sync() {
	defer close(s.idle)
	for {
		select {
		case c, open := <-s.commits:
			if !open {
				return
			}
			if c.batch == nil {
				c.err = s.err()
			} else {
				s.syncBatch(c)
			}
			close(c.done)
		case <-s.flushed:
			s.markFlush()
		}
	}
}

func (s *store) syncBatch(c *commit) {
	err := c.batch.SyncWait()
	// Pebble does not know about a failed disk.
	if failed := s.disk.err(); failed != nil {
		err = failed
	}
	_ = c.batch.Close() // It never fails.
	if err != nil {
		s.disk.fail(err)
		c.err = unknown(err)
		if c.view != nil {
			c.view.unref()
		}
		return
	}
	s.mark.setNewest(c.view.version)

	s.mu.Lock()
	old := s.durable
	s.durable = c.view
	s.mu.Unlock()
	s.synced.Store(c.view.version)
	old.unref()
}

// markFlush marks what tables hold after a flush. On a failed disk they may not.
func (s *store) markFlush() {
	number, err := newestCommit(s.pdb, true)
	if err == nil && s.disk.err() == nil {
		s.mark.setInTables(commitNumbers{newest: s.synced.Load(), inTables: number})
	}
}
