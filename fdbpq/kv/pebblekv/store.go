package pebblekv

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// store is one opening of the folder. After a disk failure the DB opens the folder
// again, as a new store.
type store struct {
	disk     *disk
	pdb      *pebble.DB
	gapIndex *gapIndex

	folder *folder // of the DB
	damage *damage

	// These belong to whoever holds DB.writer.
	applied     uint64 // number of the newest commit, which is the version
	counters    counterCache
	spareWrites []write

	synced atomic.Uint64 // version that is durable
	mark   *commitMark

	backingUp sync.Mutex // held during a backup

	commits chan *commit  // to the syncer, in the order they were applied
	idle    chan struct{} // closed when the syncer has ended

	// maxMemory is how many bytes of memtables may wait to be flushed. Counting
	// memtables would not do: Pebble starts with small ones and flushes none of
	// them until they are worth a table.
	maxMemory uint64

	rotated atomic.Bool   // a memtable was started since waitRoom looked
	room    chan struct{} // has one element after a flush or compaction
	flushed chan struct{} // has one element after a flush

	mu      sync.Mutex
	ended   error // why no transaction can begin any more, or nil
	durable *view
	open    map[aborter]struct{} // transactions
}

// aborter is a transaction.
type aborter interface {
	// abort ends it unless it has ended. Later calls fail with the error.
	abort(error)
}

// commitQueue is how many commits can wait for the syncer.
const commitQueue = 1024

// openStore opens the folder, whose lock is held.
func (db *DB) openStore() (*store, error) {
	dir, o := db.dir, db.options
	if err := checkMarker(o.FS, dir); err != nil {
		return nil, err
	}
	marked, err := db.checkCommits()
	if err != nil {
		return nil, err
	}
	disk, err := newDisk(dir, o)
	if err != nil {
		return nil, err
	}
	s := &store{
		disk:      disk,
		folder:    db.folder,
		damage:    &db.damage,
		counters:  make(counterCache),
		commits:   make(chan *commit, commitQueue),
		idle:      make(chan struct{}),
		maxMemory: maxMemTables * uint64(o.MemTableSize),
		room:      make(chan struct{}, 1),
		flushed:   make(chan struct{}, 1),
		open:      make(map[aborter]struct{}),
	}
	if !o.noGapIndex {
		s.gapIndex = newGapIndex(gapIndexSize)
	}
	s.pdb, err = pebble.Open(dir, o.pebbleOptions(s, db.lock))
	if err != nil {
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
	go s.sync()
	return s, nil
}

// beginAt continues the numbers of the commits, after those in the store and in its mark,
// which may have more if a table cannot be read.
func (s *store) beginAt(marked commitNumbers, iter *pebble.Iterator) {
	found, err := findCommits(s.pdb)
	if err != nil {
		_ = s.readError(err) // which notes the damage
		found = marked
	}
	s.applied = found.newest
	s.synced.Store(s.applied)
	s.gapIndex.committed(s.applied, s.applied, nil)
	s.durable = newView(iter, s.applied)

	files := s.disk.Unwrap()
	s.mark = openCommitMark(files, s.disk.dir, found, s.disk.logger)
	_ = files.Remove(files.PathJoin(s.disk.dir, commitMarkName+".manifest")) // of an earlier version
}

// abortAll ends all transactions with an error, and those that try to begin later.
func (s *store) abortAll(reason error) {
	s.mu.Lock()
	s.ended = reason
	open := make([]aborter, 0, len(s.open))
	for tx := range s.open {
		open = append(open, tx)
	}
	s.mu.Unlock()
	for _, tx := range open {
		tx.abort(reason)
	}
}

// close ends all transactions with an error, waits for commits in progress, and
// closes the folder. It is called once, by a holder of DB.writer.
func (s *store) close(reason error) error {
	s.abortAll(reason)
	// No transaction is left to commit.
	close(s.commits)
	<-s.idle
	s.backingUp.Lock() // abortAll has told it to end
	s.mu.Lock()
	s.durable.unref()
	s.mu.Unlock()
	return s.closePebble()
}

// closePebble stops everything that writes to the folder.
func (s *store) closePebble() error {
	s.disk.release()
	if s.mark != nil {
		s.mark.close()
	}
	if s.pdb == nil {
		return nil
	}
	return s.pdb.Close()
}

// begin registers a transaction, so that close can end it.
func (s *store) begin(tx aborter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.open[tx] = struct{}{}
	return nil
}

// beginRead is begin for a read-only transaction, which gets a reference to the
// durable view.
func (s *store) beginRead(tx *readTransaction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.open[tx] = struct{}{}
	tx.view = s.durable
	tx.view.refs.Add(1)
	return nil
}

func (s *store) end(tx aborter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, tx)
}

// err returns an error wrapping kv.ErrUnavailable if the disk has failed.
func (s *store) err() error {
	if err := s.disk.err(); err != nil {
		return failure(err)
	}
	return nil
}

// waitRoom waits while flushes and compactions lag too far behind the writers.
// Pebble would wait in the middle of a commit, where no context can end the wait and
// a failed disk would block it indefinitely. The metrics are read only once for each
// memtable, because reading them is slow.
func (s *store) waitRoom(ctx context.Context, closing <-chan struct{}) error {
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
			s.rotated.Store(true)
			return ctx.Err()
		}
	}
}

// noteFlush tells the syncer and a writer that waits.
func (s *store) noteFlush() {
	select {
	case s.flushed <- struct{}{}:
	default:
	}
	s.madeRoom()
}

func (s *store) madeRoom() {
	select {
	case s.room <- struct{}{}:
	default:
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
