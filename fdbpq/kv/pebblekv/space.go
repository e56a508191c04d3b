package pebblekv

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// spaceInterval is the shortest time between two queries of the free space.
	spaceInterval = 100 * time.Millisecond
	// shrinkDivisor: transactions that shrink the store may use the space kept free
	// down to one shrinkDivisor'th of it, because removals are logged too, and a
	// removal may come with bookkeeping that is larger than the removed keys.
	shrinkDivisor = 4
)

// spaceGuard keeps part of the disk free, so that the store refuses a write before the
// disk does. It is safe for concurrent use.
type spaceGuard struct {
	fs  vfs.FS
	dir string
	min uint64 // bytes to keep free
	now func() time.Time

	mu   sync.Mutex
	next time.Time // when to query again
	free uint64
	err  error
}

// check returns an error wrapping kv.ErrUnavailable if there is too little free space
// for a transaction that makes the store larger, or for one that does not.
func (s *spaceGuard) check(grows bool) error {
	if s == nil {
		return nil
	}
	need := s.min
	if !grows {
		need /= shrinkDivisor
	}

	free, err := s.query()
	if err != nil {
		return nil // Some file systems do not tell. A full disk will.
	}
	if free < need {
		return fmt.Errorf("%w: disk full: %d bytes free, %d needed", kv.ErrUnavailable, free, need)
	}
	return nil
}

// query returns the free space, as it was up to a spaceInterval ago.
func (s *spaceGuard) query() (free uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); !now.Before(s.next) {
		s.next = now.Add(spaceInterval)
		var usage vfs.DiskUsage
		usage, s.err = s.fs.GetDiskUsage(s.dir)
		s.free = usage.AvailBytes
	}
	return s.free, s.err
}
