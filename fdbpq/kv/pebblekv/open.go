package pebblekv

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// open opens the folder as a new store.
func (db *DB) open() (*openedStore, error) {
	o := db.options

	// If something that was acknowledged is missing, the folder stays as it is.
	if err := checkFiles(o.FS, db.dir); err != nil {
		return nil, err
	}

	logs := &replayedLogs{FS: o.FS}
	marked, err := checkCommits(db.dir, o, db.lock, logs)
	if err != nil {
		return nil, err
	}
	if err := db.wantRoomFor(logs); err != nil {
		return nil, err
	}

	disk, err := newDisk(db.dir, o)
	if err != nil {
		return nil, err
	}

	s := &openedStore{
		disk:       disk,
		background: &background{disk: disk, now: o.now},
		syncer: &syncer{
			disk:     disk,
			commits:  make(chan *pendingCommit, commitQueue),
			replaced: make(chan struct{}, 1),
			stopped:  make(chan struct{}),
		},
		gapIndex:  newGapIndex(gapIndexSize),
		folder:    db.folder,
		damage:    &db.damage,
		counters:  newCounterCache(min(int(o.CacheSize/2), maxCounterCache)),
		maxMemory: maxMemTables * uint64(o.MemTableSize),
		room:      make(chan struct{}, 1),
		live:      make(map[any]func(error)),
	}

	if s.pdb, err = pebble.Open(db.dir, o.tuned(db.lock, s)); err != nil {
		_ = s.closePebble()
		return nil, explainDamage(cmp.Or(disk.err(), err)) // The rest follows from a failed disk.
	}

	disk.opened.Store(true)

	// Pebble has flushed everything it found in its log, synced or not, so all of it is durable,
	// unless the flush failed.
	if err := disk.err(); err != nil {
		_ = s.closePebble() // On a failed disk its result means nothing.
		return nil, err
	}

	mark, err := s.beginOpening(marked)
	if err = cmp.Or(disk.err(), err); err != nil {
		mark.close()
		_ = s.closePebble()
		return nil, err
	}

	durable, err := newView(s.pdb, s.applied)
	if err != nil {
		mark.close()
		return nil, errors.Join(err, s.closePebble())
	}

	s.startSyncer(mark, durable)
	return s, nil
}

// beginOpening continues the numbers of the commits, and gives this opening its id: first in the
// mark, then in a commit. Without a mark it keeps the id of the opening before.
func (s *openedStore) beginOpening(marked commitNumbers) (*commitMark, error) {
	// The mark bypasses the diskFS: a mark that cannot be written is no failure of the disk.
	open := func(n commitNumbers) *commitMark {
		return openCommitMark(s.disk.Unwrap(), s.disk.dir, n, s.disk.logger)
	}

	// If a table cannot be read, the store may have more commits than can be found, or an id that
	// cannot. Then the mark counts.
	found, err := findCommits(s.pdb)
	if err != nil {
		_ = s.readError(err) // It notes the damage.
		s.applied, s.opening = marked.newest, marked.opening
		return open(marked), nil
	}

	n := commitNumbers{newest: found.newest, inTables: found.inTables, first: found.newest + 1}
	n.opening = 1 + rand.Uint64N(math.MaxUint64)
	if len(found.openings) > 0 {
		n.before = found.openings[0]
	}

	s.applied, s.opening = n.newest, n.before
	mark := open(n)
	if mark.file == nil {
		return mark, nil
	}

	// Each key by itself: a cleared range would hide keys of another history from the check.
	batch := s.pdb.NewBatch()
	for _, opening := range found.openings {
		key := binary.BigEndian.AppendUint64([]byte(commitKeys), opening)
		_ = batch.Delete(key, nil) // Without an index it never fails.
	}
	numberCommit(batch, n.opening, n.first)
	if err := s.pdb.Apply(batch, pebble.Sync); err != nil {
		return mark, err
	}

	s.applied, s.opening = n.first, n.opening
	if s.disk.err() == nil {
		mark.setNewest(s.applied)
	}
	return mark, batch.Close()
}

// startSyncer starts the syncer. All commits so far are durable.
func (s *openedStore) startSyncer(mark *commitMark, durable *view) {
	s.gapIndex.publishCommitted(s.applied, s.applied, nil)

	y := s.syncer
	y.pdb = s.pdb
	y.mark = mark
	y.durable = durable
	y.applying.Store(s.applied)
	y.synced.Store(s.applied)
	go y.run()
}

// abortAll ends all transactions and backups with an error, and fails any that begin later.
func (s *openedStore) abortAll(reason error) {
	s.mu.Lock()
	s.ended = reason
	aborts := slices.Collect(maps.Values(s.live))
	s.mu.Unlock()

	// Each of them unregisters itself.
	for _, abort := range aborts {
		abort(reason)
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

// openOverhead is what opening the folder writes besides what the logs hold, in bytes.
const openOverhead = 64 << 10

// wantRoomFor returns an error wrapping kv.ErrUnavailable if less is free than Pebble needs to turn
// the logs into tables when it opens the folder. An attempt on a disk that fills up meanwhile would
// leave tables there, so that room that is made in steps is used up by the attempts.
func (db *DB) wantRoomFor(logs *replayedLogs) error {
	db.logsNeed = 0
	size := logs.fileSize()
	if size == 0 || db.space.want(size+openOverhead) == nil {
		return nil
	}

	need := logs.size() + openOverhead
	err := db.space.want(need)
	if err != nil {
		db.logsNeed = need
	}
	return err
}
