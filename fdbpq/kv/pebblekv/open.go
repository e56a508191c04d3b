package pebblekv

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// opener opens the folder, and opens it again after its disk has failed. It has the store in use.
type opener struct {
	dir     string
	options Options
	lock    *pebble.Lock
	folder  *folderGuard // nil if the folder is not one of the operating system
	damage  damage
	space   *spaceGuard // nil if nothing is kept free

	writer *writerSlot
	retry  time.Time // when to try to reopen the folder; only the writer uses it

	mu    sync.Mutex
	store *openedStore // nil while the folder cannot be reopened
	down  error        // why store is nil
}

// open opens the folder as a new store.
func (p *opener) open() (*openedStore, error) {
	o := p.options

	// If something that was acknowledged is missing, the folder stays as it is.
	if err := checkMarker(o.FS, p.dir); err != nil {
		return nil, err
	}

	marked, err := checkCommits(p.dir, o, p.lock)
	if err != nil {
		return nil, err
	}

	disk, err := newDisk(p.dir, o)
	if err != nil {
		return nil, err
	}

	s := &openedStore{
		disk: disk,
		syncer: &syncer{
			disk:    disk,
			commits: make(chan *pendingCommit, commitQueue),
			flushed: make(chan struct{}, 1),
			stopped: make(chan struct{}),
		},
		gapIndex:  newGapIndex(gapIndexSize),
		folder:    p.folder,
		damage:    &p.damage,
		counters:  make(counterCache),
		maxMemory: maxMemTables * uint64(o.MemTableSize),
		room:      make(chan struct{}, 1),
		live:      make(map[aborter]struct{}),
	}

	if s.pdb, err = pebble.Open(p.dir, o.tuned(disk, p.lock, s.events())); err != nil {
		_ = s.closePebble()
		if cause := disk.err(); cause != nil {
			err = cause // The rest follows from it.
		}
		return nil, explainDamage(err)
	}

	disk.opened.Store(true)

	// Pebble has flushed what it found in its log, even what was never synced, so all of it is
	// durable. Unless the flush failed.
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
			signal(s.syncer.flushed)
			signal(s.room)
		},
		CompactionEnd: func(pebble.CompactionInfo) { signal(s.room) },
	}
}

// signal puts an element into a channel of capacity one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// beginAt continues the numbers of the commits, and starts the syncer. If a table cannot be read,
// the store may have more commits than can be found. Then the marked numbers count.
func (s *openedStore) beginAt(marked commitNumbers, iter *pebble.Iterator) {
	found, err := findCommits(s.pdb)
	if err != nil {
		_ = s.readError(err) // It notes the damage.
		found = marked
	}

	s.applied = found.newest
	s.gapIndex.publishCommitted(s.applied, s.applied, nil)

	// The mark bypasses the diskFS: a mark that cannot be written is no failure of the disk.
	y := s.syncer
	y.pdb = s.pdb
	y.mark = openCommitMark(s.disk.Unwrap(), s.disk.dir, found, s.disk.logger)
	y.durable = &view{iter: iter, version: s.applied}
	y.durable.refs.Store(1)
	y.synced.Store(s.applied)
	go y.run()
}

// abortAll ends all transactions and backups with an error, and those that try to begin later.
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

// close ends all transactions with an error, waits for commits in progress, and closes the folder.
// It is called once, by a holder of the writer slot.
func (s *openedStore) close(reason error) error {
	s.abortAll(reason)
	s.syncer.stop()    // No transaction is left to commit.
	s.backingUp.Lock() // abortAll has told the backup to end.
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
