package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// stepPass reads the next page of a pass, if it is time, and reports whether it did.
func (s *Sweeper) stepPass(ctx context.Context, now time.Time) bool {
	s.mu.Lock()
	p := s.mu.pass
	if p.at.IsZero() || now.Before(p.at) {
		s.mu.Unlock()
		return false
	}
	if !p.begun {
		p = listPass{at: p.at, begun: true, began: now}
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
	if s.mu.pass.began != p.began || !s.mu.pass.begun { // the owners have changed meanwhile
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
		p.begun, p.at = false, time.Time{}
		s.planPassLocked()
	}
}

// readPage returns the next names of a list, and what is ahead of their queues: nothing of those
// that are damaged.
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

// readAheads calls note with what is ahead of each queue that can be read.
func (s *Sweeper) readAheads(ctx context.Context, queues []fdbpq.Target, note func(n int, a fdbpq.Ahead)) error {
	read := func(queues []fdbpq.Target) ([]fdbpq.Ahead, error) {
		return kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]fdbpq.Ahead, error) { return fdbpq.ReadAhead(r, queues) })
	}
	aheads, err := read(queues)
	if err != nil && !isDamage(err) {
		return err
	}

	// If one of them is damaged, each is read by itself.
	for n := range queues {
		if err == nil {
			note(n, aheads[n])
			continue
		}
		switch a, err := read(queues[n : n+1]); {
		case err == nil:
			note(n, a[0])
		case isDamage(err):
			s.d.options.Warn("a queue cannot be swept", "error", err)
		default:
			return err
		}
	}
	return nil
}
