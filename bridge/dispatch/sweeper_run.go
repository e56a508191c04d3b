package dispatch

import (
	"context"
	"time"
)

// Run sweeps until ctx ends. The store must be open.
func (s *Sweeper) Run(ctx context.Context) {
	s.mu.Lock()
	s.mu.pass = listPass{at: time.Now()}
	s.mu.Unlock()
	s.next = time.Now()

	watch := newClockWatch(s.d.now)
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
		if watch.parted() {
			s.next = time.Now() // what is on the agenda may be due
		}
		if wait, any := s.step(ctx); any {
			timer.Reset(min(wait, watchEvery))
		}
	}
}

// Round makes a pass through the list and does what is to be done by now, without waiting for the
// next time at which Run would, or in between. It may be called while Run runs.
func (s *Sweeper) Round(ctx context.Context) {
	s.mu.Lock()
	s.mu.pass = listPass{at: time.Now()}
	s.mu.Unlock()
	for ctx.Err() == nil && s.stepPass(ctx, time.Now()) {
	}
	for tasks := s.takeTasks(); len(tasks) > 0 && ctx.Err() == nil; tasks = s.takeTasks() {
		s.sweep(ctx, tasks)
	}
}

// step does a small part of the work, and returns how long to wait before the next; false if there
// is none until something changes.
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
		tasks := s.takeTasks()
		if len(tasks) > 0 {
			worked = true
			if !s.sweep(ctx, tasks) {
				s.next = time.Now().Add(sweepEvery)
			}
		} else {
			s.next = began.Add(sweepEvery)
		}
	}

	if worked {
		pause := max(retirePause, time.Since(began))
		s.pause = time.Now().Add(pause)
		return pause, true
	}
	return s.untilNext()
}

// untilNext returns how long nothing has to be done.
func (s *Sweeper) untilNext() (wait time.Duration, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.mu.pass.at
	// The clock of the agenda may be set, so the next time is not that of its first task.
	if len(s.mu.agenda.heap) > 0 && (next.IsZero() || s.next.Before(next)) {
		next = s.next
	}
	return max(0, time.Until(next)), !next.IsZero()
}
