package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// listPass is a pass through the list of queues.
type listPass struct {
	at    time.Time // when to go on, or to begin the next; zero if there is no reason for one
	fifo  bool      // how far it has come
	after string
	under bool      // it has begun
	found bool      // something is ahead in one of the queues
	full  bool      // the agenda had no room
	began time.Time // the last one
}

// ownersChanged plans a pass through the list.
func (s *Sweeper) ownersChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pass = listPass{at: time.Now().Add(ownersPause)}
	s.wake()
}

// planPassLocked plans the next pass, if none is planned and there is a reason for one.
func (s *Sweeper) planPassLocked() {
	p := &s.mu.pass
	foreign := s.d.options.DB.Traits().Shared && (p.found || s.active.Load())
	if p.at.IsZero() && (foreign || p.full) {
		p.at = p.began.Add(foreignEvery)
	}
}

// stepPass reads the next page of a pass, if it is time, and reports whether it did.
func (s *Sweeper) stepPass(ctx context.Context, now time.Time) bool {
	s.mu.Lock()
	p := s.mu.pass
	if p.at.IsZero() || now.Before(p.at) {
		s.mu.Unlock()
		return false
	}
	if !p.under {
		p = listPass{at: p.at, under: true, began: now}
		s.active.Store(false)
	}
	s.mu.pass = p
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, s.d.options.RequestTimeout)
	defer cancel()
	names, aheads, err := s.readPage(ctx, p.fifo, p.after)
	if err != nil {
		s.warn(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pass.began != p.began || !s.mu.pass.under { // the owners have changed meanwhile
		return true
	}
	if err != nil {
		s.mu.pass.at = time.Now().Add(sweepEvery)
		if errors.Is(err, fdbpq.ErrCorrupt) {
			s.mu.pass.at = time.Now().Add(damagedPause)
		}
		return true
	}
	s.notePageLocked(p.fifo, names, aheads)
	return true
}

// notePageLocked adds tasks for a page of the list.
func (s *Sweeper) notePageLocked(fifo bool, names []string, aheads []fdbpq.Ahead) {
	p, owns := &s.mu.pass, s.d.options.Owns
	for i, name := range names {
		p.after = name
		queue := fdbpq.QueueName{FIFO: fifo, Name: name}
		if (aheads[i] == fdbpq.Ahead{}) {
			continue
		}
		p.found = true
		if owns == nil || owns(kindOf(queue), name) {
			s.addLocked(queue, aheads[i], true)
		}
	}
	switch {
	case len(names) == retirePage:
	case !fifo:
		p.fifo, p.after = true, ""
	default:
		p.under, p.at = false, time.Time{}
		s.planPassLocked()
	}
}

// readPage returns the next names of a list, and what is ahead of their queues: nothing of those that are
// damaged.
func (s *Sweeper) readPage(ctx context.Context, fifo bool, after string) (names []string, aheads []fdbpq.Ahead, err error) {
	k := s.d.options.Keyspace
	list := k.PriorityQueues
	if fifo {
		list = k.Queues
	}
	names, err = kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]string, error) {
		return list(r, after, retirePage).Get()
	})
	if err != nil {
		return nil, nil, err
	}

	aheads = make([]fdbpq.Ahead, len(names))
	var queues []fdbpq.Target
	var places []int // in names
	for i, name := range names {
		q, err := s.target(fdbpq.QueueName{FIFO: fifo, Name: name})
		if err != nil {
			s.d.options.Warn("the list of queues has a name that no queue can have", "name", name, "error", err)
			continue
		}
		queues, places = append(queues, q), append(places, i)
	}
	err = s.readAheads(ctx, queues, func(n int, a fdbpq.Ahead) { aheads[places[n]] = a })
	return names, aheads, err
}
