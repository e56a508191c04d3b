package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// IDLookup is an item that is looked for by an id: at the place with that id first. If nothing is
// there, the job with that id may have moved, and its alias names the place.
//
// Begin, BeginAlias and Follow each start or await one read. Callers take each step for many items
// before the next, so that all of them together take one round trip, or three if any is not at the
// place of its id.
type IDLookup struct {
	Lookup
	Place codec.ID // where the item is looked for
	Begun bool
	Err   error // ErrCorrupt or one of the store

	alias kv.Future[[]byte] // nil unless nothing is at the place
}

// Begin notes a read of a place.
func (s *IDLookup) Begin(place *codec.ID, read Lookup) {
	*s = IDLookup{Place: *place, Lookup: read, Begun: true}
}

// BeginAlias waits for the item, and starts to read the alias if it is not there.
func (s *IDLookup) BeginAlias(r kv.Reader, l *codec.Layout) {
	if !s.Begun || s.Err != nil {
		return
	}
	exists, err := s.Exists()
	if s.Err = err; err == nil && !exists {
		s.BeginAliasOf(r, l, &s.Place)
	}
}

// BeginAliasOf starts to read the alias of a job.
func (s *IDLookup) BeginAliasOf(r kv.Reader, l *codec.Layout, job *codec.ID) {
	s.alias = r.Get(l.AliasKey(job))
}

// Follow waits for the alias. If there is one, it changes the place, and reports that the item has
// to be read there.
func (s *IDLookup) Follow() bool {
	if s.alias == nil {
		return false
	}

	value, err := s.alias.Get()
	s.alias = nil
	if value == nil || err != nil {
		s.Err = err
		return false
	}

	place, err := codec.ParseAlias(value)
	if s.Err = err; err == nil {
		s.Place = place
	}
	return err == nil
}

// Find returns the item, nil if it is not in the queue. The error is ErrCorrupt or one of the
// store.
func (s *IDLookup) Find() (*codec.Record, error) {
	if s.Err != nil {
		return nil, s.Err
	}
	return s.Anywhere(&s.Place)
}
