package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// openedStore is one opening of the folder. After a disk failure the DB opens the folder
// again, as a new store.
type openedStore struct {
	disk     *diskFS
	pdb      *pebble.DB
	syncer   *syncer // not started until the folder is open
	gapIndex *gapIndex

	folder *folderGuard // of the DB
	damage *damage

	// These belong to the holder of the writer slot.
	applied     uint64 // number of the newest commit, which is the version
	counters    counterCache
	spareWrites []write

	backingUp sync.Mutex // held during a backup

	// maxMemory is how many bytes of memtables may wait to be flushed. Counting memtables would not
	// do: Pebble starts with small ones and flushes none of them until they are worth a table.
	maxMemory uint64

	rotated atomic.Bool   // a memtable was started since waitRoom looked
	room    chan struct{} // has one element after a flush or compaction

	mu    sync.Mutex
	ended error                // why nothing can begin any more, or nil
	live  map[aborter]struct{} // transactions and backups
}

// aborter is a transaction or a backup.
type aborter interface {
	// abort ends it unless it has ended. Later calls fail with the error.
	abort(error)
}

// openStore opens the folder dir, whose lock is held.
func openStore(dir string, o Options, lock *pebble.Lock, folder *folderGuard, damage *damage) (*openedStore, error) {
	// The folder stays as it is if something that was acknowledged is missing.
	if err := checkMarker(o.FS, dir); err != nil {
		return nil, err
	}
	marked, err := checkCommits(dir, o, lock)
	if err != nil {
		return nil, err
	}

	disk, err := newDisk(dir, o)
	if err != nil {
		return nil, err
	}
	s := &openedStore{
		disk:      disk,
		syncer:    newSyncer(disk),
		gapIndex:  newGapIndex(gapIndexSize),
		folder:    folder,
		damage:    damage,
		counters:  make(counterCache),
		maxMemory: maxMemTables * uint64(o.MemTableSize),
		room:      make(chan struct{}, 1),
		live:      make(map[aborter]struct{}),
	}

	if s.pdb, err = pebble.Open(dir, o.tuned(disk, lock, s.events())); err != nil {
		_ = s.closePebble()
		if cause := disk.err(); cause != nil {
			err = cause // The rest follows from it.
		}
		return nil, explainDamage(err)
	}
	disk.opened.Store(true)

	// Pebble has flushed what it found in its log, so all of that is durable, even
	// what was never synced. Unless the flush failed.
	if err := disk.err(); err != nil {
		_ = s.closePebble() // On a failed disk its result means nothing.
		return nil, err
	}
	iter, err := s.pdb.NewIter(nil)
	if err != nil {
		return nil, errors.Join(err, s.closePebble())
	}
	s.beginAt(marked, iter)
	return s, nil
}

// events are what the store learns from Pebble.
func (s *openedStore) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			s.disk.logger.Warn("pebblekv: background work failed", "error", err.Error())
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) { s.damage.note(i.Path, i.Details) },
		WALCreated:     func(pebble.WALCreateInfo) { s.rotated.Store(true) },
		FlushEnd: func(pebble.FlushInfo) {
			s.syncer.noteFlush()
			s.noteRoom()
		},
		CompactionEnd: func(pebble.CompactionInfo) { s.noteRoom() },
	}
}

// beginAt continues the numbers of the commits, after those in the store and in its mark,
// which may have more if a table cannot be read. It starts the syncer.
func (s *openedStore) beginAt(marked commitNumbers, iter *pebble.Iterator) {
	found, err := findCommits(s.pdb)
	if err != nil {
		_ = s.readError(err) // which notes the damage
		found = marked
	}
	s.applied = found.newest
	s.gapIndex.publishCommitted(s.applied, s.applied, nil)

	// The mark goes past the disk: if it cannot be written, the disk has not failed.
	files := s.disk.Unwrap()
	mark := openCommitMark(files, s.disk.dir, found, s.disk.logger)
	s.syncer.start(s.pdb, mark, newView(iter, s.applied))
}

// abortAll ends all transactions with an error, and those that try to begin later.
func (s *openedStore) abortAll(reason error) {
	s.mu.Lock()
	s.ended = reason
	live := make([]aborter, 0, len(s.live))
	for tx := range s.live {
		live = append(live, tx)
	}
	s.mu.Unlock()

	// Each of them unregisters itself.
	for _, tx := range live {
		tx.abort(reason)
	}
}

// close ends all transactions with an error, waits for commits in progress, and
// closes the folder. It is called once, by a holder of the writer slot.
func (s *openedStore) close(reason error) error {
	s.abortAll(reason)
	s.syncer.stop()    // No transaction is left to commit.
	s.backingUp.Lock() // abortAll has told it to end
	return s.closePebble()
}

// closePebble stops everything that writes to the folder.
func (s *openedStore) closePebble() error {
	s.disk.release()
	if s.pdb == nil {
		return nil
	}
	return s.pdb.Close()
}

// register lets close end a transaction or backup.
func (s *openedStore) register(tx aborter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.live[tx] = struct{}{}
	return nil
}

func (s *openedStore) unregister(tx aborter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, tx)
}

// apply makes the writes of batch visible to the next write transaction, passes them
// to the syncer and returns their future. The caller holds the writer slot.
func (s *openedStore) apply(ctx context.Context, batch *pebble.Batch, found *gapSet) (*pendingCommit, error) {
	numberCommit(batch, s.applied+1)
	if err := s.pdb.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		s.disk.fail(err)
		return nil, unknownOutcome(err)
	}
	s.applied++
	s.gapIndex.publishCommitted(s.applied, s.syncer.synced.Load(), found)

	c := &pendingCommit{ctx: ctx, batch: batch, done: make(chan struct{})}
	iter, err := s.pdb.NewIter(nil)
	if err != nil {
		// Later views hold what this one does.
		s.disk.fail(err)
	} else {
		c.view = newView(iter, s.applied)
	}
	s.syncer.commits <- c
	return c, nil
}

// afterAll returns a future that is ready once everything applied so far is durable.
// The caller holds the writer slot.
func (s *openedStore) afterAll(ctx context.Context) kv.Future[struct{}] {
	if s.syncer.synced.Load() == s.applied {
		return kv.Ready(struct{}{}, nil)
	}
	c := &pendingCommit{ctx: ctx, done: make(chan struct{})}
	s.syncer.commits <- c
	return c
}

// err returns an error wrapping kv.ErrUnavailable if the disk has failed.
func (s *openedStore) err() error {
	if err := s.disk.err(); err != nil {
		return failure(err)
	}
	return nil
}

// readError returns the error for the caller of a read that failed with err, or nil.
func (s *openedStore) readError(err error) error {
	if err == nil {
		return nil
	}

	// A folder or disk that is gone says nothing of the data.
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
		err = fmt.Errorf("%s: %w", info.Path, info.Details) // already noted by the event listener
	} else {
		what := err.Error()
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			what = path.Path
		}
		s.damage.note(what, err)
	}
	return kv.WithCause(kv.ErrCorrupt, damagedReason, err)
}

// waitRoom waits while flushes and compactions lag too far behind the writers. Pebble would wait in
// the middle of a commit, where no context can end the wait and a failed disk would block it
// indefinitely. The metrics are read only once for each memtable, because reading them is slow.
func (s *openedStore) waitRoom(ctx context.Context, closing <-chan struct{}) error {
	if !s.rotated.CompareAndSwap(true, false) {
		return nil
	}

	for {
		m := s.pdb.Metrics()
		// Pebble does not compact around damage, so waiting for that would stop the writers.
		flat := m.Levels[0].Sublevels <= maxSublevels || s.damage.err() != nil
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

// noteRoom wakes a writer that waits for room.
func (s *openedStore) noteRoom() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}
