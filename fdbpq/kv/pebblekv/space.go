package pebblekv

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// spaceInterval is how often the free space of the disk is looked up.
	spaceInterval = 100 * time.Millisecond
	// shrinkReserve: transactions that shrink the store may use all but one
	// part in shrinkReserve of the space kept free, because to remove
	// something has to be logged first.
	shrinkReserve = 4
)

// space keeps a part of the disk free, so that it is us who refuse a write and
// not the disk. It is safe for concurrent use.
type space struct {
	fs   vfs.FS
	dir  string
	min  uint64 // bytes to keep free
	now  func() time.Time
	mu   sync.Mutex
	next time.Time // when to look again
	free uint64
	err  error
}

// check returns an error wrapping kv.ErrUnavailable if there is not enough free
// space for a transaction that makes the store larger, or for one that does not.
func (s *space) check(grows bool) error {
	if s == nil {
		return nil
	}
	need := s.min
	if !grows {
		need /= shrinkReserve
	}
	free, err := s.look()
	if err != nil {
		return nil // Not all file systems tell. A disk that is full will.
	}
	if free < need {
		return fmt.Errorf("%w: disk full: %d bytes free, %d needed", kv.ErrUnavailable, free, need)
	}
	return nil
}

func (s *space) look() (free uint64, err error) {
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
