package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// stepPass reads the next page of a pass if it is time, and reports whether it did.
func (s *Sweeper) stepPass(ctx context.Context, now time.Time) bool {
	s.mu.Lock()
	p := &s.mu.pass
	if p.at.IsZero() || now.Before(p.at) {
		s.mu.Unlock()
		return false
	}

	if p.began.IsZero() {
		p.began, p.found, p.full = now, false, false
		s.active.Store(false)
	}
	began, fifo, after := p.began, p.fifo, p.after
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, s.d.options.RequestTimeout)
	defer cancel()
	queues, err := s.d.list(ctx, fifo, after)
	upcoming := make([]fdbpq.Upcoming, len(queues)) // nothing of a damaged queue
	if err == nil {
		err = s.readUpcoming(ctx, queues, func(i int, a fdbpq.Upcoming, err error) {
			if upcoming[i] = a; err != nil {
				s.d.options.Warn("a queue cannot be swept", "queue", queues[i].Name, "error", err)
			}
		})
	}
	if err != nil {
		s.warn(ctx, err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case p.began != began: // a new pass is planned
	case errors.Is(err, fdbpq.ErrCorrupt):
		p.at = time.Now().Add(damagedPause)
	case err != nil:
		p.at = time.Now().Add(sweepEvery)
	default:
		s.notePageLocked(queues, upcoming)
	}

	return true
}

// notePageLocked adds tasks for a page of the list.
func (s *Sweeper) notePageLocked(queues []fdbpq.QueueName, upcoming []fdbpq.Upcoming) {
	p := &s.mu.pass
	for i, queue := range queues {
		p.after = queue.Name
		p.found = p.found || !upcoming[i].Due.IsZero() || !upcoming[i].Over.IsZero()
		s.tellSource(queue, upcoming[i], false)
		if s.d.options.Owns(KindOf(queue), queue.Name) {
			s.addLocked(queue, upcoming[i])
		}
	}

	switch {
	case len(queues) == listPage:
	case !p.fifo:
		p.fifo, p.after = true, ""
	default:
		*p = listPass{last: p.began, found: p.found, full: p.full}
		s.planNextLocked()
	}
}

// readUpcoming calls note for each queue, with its index and its Upcoming, or why it cannot be
// read.
func (s *Sweeper) readUpcoming(
	ctx context.Context, queues []fdbpq.QueueName, note func(i int, a fdbpq.Upcoming, err error),
) error {
	var targets []fdbpq.Target
	var places []int // in queues
	for i, name := range queues {
		target, err := s.d.target(name)
		if err != nil { // no request can use that name
			note(i, fdbpq.Upcoming{}, err)
			continue
		}
		targets, places = append(targets, target), append(places, i)
	}

	read := func(targets []fdbpq.Target) ([]fdbpq.Upcoming, error) {
		return kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]fdbpq.Upcoming, error) {
			return fdbpq.ReadUpcoming(r, targets, s.now())
		})
	}
	upcoming, err := read(targets)
	if err != nil && !isDamage(err) {
		return err
	}

	// If one of them is damaged, read each by itself.
	for n, i := range places {
		a, damage := fdbpq.Upcoming{}, err
		if err == nil {
			a = upcoming[n]
		} else if alone, err := read(targets[n : n+1]); err == nil {
			a, damage = alone[0], nil
		} else if damage = err; !isDamage(err) {
			return err
		}
		note(i, a, damage)
	}

	return nil
}

// sweep reads the queues of tasks and sweeps those where something is due. It reports whether there
// may be more to do at once.
func (s *Sweeper) sweep(ctx context.Context, tasks []task) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, s.d.options.RequestTimeout)
	defer cancel()

	now := s.now()
	due, err := s.keepDue(ctx, tasks, now)
	switch {
	case err != nil:
		s.warn(ctx, err)
		for _, t := range tasks {
			t.at = now.Add(sweepEvery)
			s.addTask(t)
		}
		return false

	case len(due) > 0:
		s.putBack(ctx, due, s.runSweeps(ctx, due), now)
		return true
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.agenda.isDue(now)
}

// isDamage reports whether an error is about what a queue has stored, so that others may succeed.
func isDamage(err error) bool {
	return errors.Is(err, kv.ErrCorrupt) || errors.Is(err, fdbpq.ErrCorrupt) ||
		errors.Is(err, kv.ErrTooLarge)
}

// putBackDamaged postpones a task whose queue cannot be swept.
func (s *Sweeper) putBackDamaged(t task, err error, now time.Time) {
	s.d.options.Warn("a queue cannot be swept", "queue", t.queue.Name, "error", err)
	t.at = now.Add(damagedPause)
	s.addTask(t)
}

// Sweep sweeps queues once and waits for it, so that later reads find everything due there, unless
// that is very much. It returns the first error.
func (s *Sweeper) Sweep(ctx context.Context, queues []fdbpq.QueueName) error {
	tasks := make([]task, len(queues))
	for i, queue := range queues {
		tasks[i].queue = queue
	}

	var err error
	for _, r := range s.runSweeps(ctx, tasks) {
		err = cmp.Or(err, r.Err)
	}
	return err
}

// runSweeps has the lanes sweep the queues of tasks, and returns the results.
func (s *Sweeper) runSweeps(ctx context.Context, tasks []task) []fdbpq.Result {
	results := make([]fdbpq.Result, len(tasks))
	calls := make([]*call, len(tasks))
	for i, t := range tasks {
		q, err := s.d.queue(t.queue)
		if err == nil {
			calls[i] = newCall()
			r := &Request{Queue: q, Replier: calls[i], exclusive: t.exclusive}
			r.Received = time.Now()
			err = q.lane.runAgain(r, []fdbpq.Op{{Kind: fdbpq.OpSweep, Queue: q.Target}})
		}
		if results[i].Err = err; err == nil {
			s.sweeps.Add(1)
		}
	}

	// All of them are in the lanes now, so that they share batches.
	for i, c := range calls {
		if results[i].Err != nil {
			continue
		}
		if swept, err := c.wait(ctx); err != nil {
			results[i].Err = err
		} else {
			results[i] = swept[0]
		}
	}

	return results
}

// keepDue returns the tasks whose queues have something due by now. It postpones the others until
// something falls due.
func (s *Sweeper) keepDue(
	ctx context.Context, tasks []task, now time.Time,
) (left []task, err error) {
	queues := make([]fdbpq.QueueName, len(tasks))
	for i, t := range tasks {
		queues[i] = t.queue
	}

	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	err = s.readUpcoming(ctx, queues, func(i int, a fdbpq.Upcoming, err error) {
		switch t := tasks[i]; {
		case err != nil:
			s.putBackDamaged(t, err, now)
		case due(a.Due) || due(a.Over):
			left = append(left, t)
		default:
			s.mu.Lock()
			s.addLocked(t.queue, a)
			s.mu.Unlock()
		}
	})
	return left, err
}

// putBack puts tasks back after a sweep, with the time of the next one.
func (s *Sweeper) putBack(ctx context.Context, tasks []task, swept []fdbpq.Result, now time.Time) {
	var failed error
	for i, t := range tasks {
		r := &swept[i]
		t.exclusive = false

		// Queues may be too large only together. One that is too large by itself is damaged.
		switch {
		case isDamage(r.Err) && !(errors.Is(r.Err, kv.ErrTooLarge) && !tasks[i].exclusive):
			s.putBackDamaged(t, r.Err, now)
			continue
		case errors.Is(r.Err, kv.ErrTooLarge):
			t.exclusive = true
		case r.Err != nil:
			failed = cmp.Or(failed, r.Err)
			t.at = now.Add(sweepEvery)
		case r.Swept.More && r.Swept.Done:
			t.at = now // behind queues that have been due for longer
		case r.Swept.More: // there was no room beside other queues
			t.exclusive = true
		default:
			t.at = now.Add(sweepEvery) // to find out what comes next
		}

		s.addTask(t)
	}

	if failed != nil {
		s.warn(ctx, failed)
	}
}

// Run sweeps until ctx ends. The store must be open. Call it at most once.
func (s *Sweeper) Run(ctx context.Context) {
	s.planPass(time.Now())
	s.next = time.Now()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.woken:
		}

		timer.Stop()
		if wait, any := s.step(ctx); any {
			timer.Reset(wait)
		}
	}
}

// step does a small part of the work, and returns how long to wait before the next part; false if
// there is none until something changes.
func (s *Sweeper) step(ctx context.Context) (wait time.Duration, any bool) {
	began := time.Now()
	if wait := s.pause.Sub(began); wait > 0 {
		return wait, true
	}

	s.mu.Lock()
	if s.mu.behind {
		s.mu.behind, s.next = false, began
	}
	s.mu.Unlock()

	worked := s.stepPass(ctx, began)
	if !began.Before(s.next) {
		s.mu.Lock()
		tasks := s.mu.agenda.takeDue(s.now(), sweepPage)
		s.mu.Unlock()
		if len(tasks) > 0 {
			worked = true
			if !s.sweep(ctx, tasks) {
				s.next = time.Now().Add(sweepEvery)
			}
		} else {
			s.next = began.Add(sweepEvery)
		}
	}

	// Requests have the store for as long as this step took.
	if worked {
		pause := max(retirePause, time.Since(began))
		s.pause = time.Now().Add(pause)
		return pause, true
	}

	return s.untilNext()
}

// untilNext returns how long there is nothing to do; false if until something changes.
func (s *Sweeper) untilNext() (wait time.Duration, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	next := s.mu.pass.at

	// The clock by which tasks fall due may be set, so they have no timer: see sweepEvery.
	if len(s.mu.agenda.heap) > 0 && (next.IsZero() || s.next.Before(next)) {
		next = s.next
	}
	return max(0, time.Until(next)), !next.IsZero()
}
