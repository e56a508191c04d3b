package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// sweep looks at the queues of tasks and sweeps those where something is due. It reports whether
// there may be more to do at once.
func (s *Sweeper) sweep(outer context.Context, tasks []task) (more bool) {
	ctx, cancel := context.WithTimeout(outer, s.d.options.RequestTimeout)
	defer cancel()

	err := s.keepDue(ctx, &tasks)
	now := s.d.now()
	if err == nil && len(tasks) > 0 {
		s.putBack(ctx, tasks, s.runSweeps(ctx, tasks), now)
		return true
	}

	switch {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.agenda.isDue(now)
	case isDamage(err) && len(tasks) > 1:
		return s.sweepSingly(outer, tasks)
	case isDamage(err):
		s.putBackDamaged(tasks[0], err, now)
	default:
		s.warn(ctx, err)
		for _, t := range tasks {
			t.at = now.Add(sweepEvery)
			s.addTask(t)
		}
	}
	return false
}

// sweepSingly sweeps the queues of tasks each by itself.
func (s *Sweeper) sweepSingly(ctx context.Context, tasks []task) (more bool) {
	for i := range tasks {
		if s.sweep(ctx, tasks[i:i+1:i+1]) {
			more = true
		}
	}
	return more
}

// isDamage reports whether an error is about what is stored, which others need not share.
func isDamage(err error) bool {
	return errors.Is(err, kv.ErrCorrupt) || errors.Is(err, fdbpq.ErrCorrupt) || errors.Is(err, kv.ErrTooLarge)
}

// putBackDamaged puts a task back whose queue cannot be swept.
func (s *Sweeper) putBackDamaged(t task, err error, now time.Time) {
	s.d.options.Warn("a queue cannot be swept", "queue", t.queue.Name, "error", err)
	t.at = now.Add(damagedPause)
	s.addTask(t)
}

// Sweep sweeps queues once, so that whoever reads then finds what is due there, unless that is very
// much.
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

// runSweeps has the lanes sweep the queues of tasks, and returns how that ended.
func (s *Sweeper) runSweeps(ctx context.Context, tasks []task) []fdbpq.Result {
	results := make([]fdbpq.Result, len(tasks))
	calls := make([]*call, len(tasks))
	for i, t := range tasks {
		q, err := s.d.queue(t.queue)
		if err == nil {
			calls[i] = newCall()
			r := &Request{Queue: q, Replier: calls[i], Received: time.Now(), alone: t.alone}
			err = q.lane.requeue(r, []fdbpq.Op{{Kind: fdbpq.OpSweep, Queue: q.Target}})
		}
		if results[i].Err = err; err == nil {
			s.sweeps.Add(1)
		}
	}

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

// keepDue keeps the tasks whose queues have something due. It puts the others back for when
// something falls due.
func (s *Sweeper) keepDue(ctx context.Context, tasks *[]task) error {
	var queues []fdbpq.Target
	for _, t := range *tasks {
		q, err := s.target(t.queue)
		if err != nil {
			return fmt.Errorf("%w: %w", fdbpq.ErrCorrupt, err) // not of a queue that was listed or written
		}
		queues = append(queues, q)
	}

	aheads, err := kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]fdbpq.Ahead, error) {
		return fdbpq.ReadAhead(r, queues)
	})
	if err != nil {
		return err
	}

	now := s.d.now()
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	var left []task
	for i, t := range *tasks {
		a := aheads[i]
		switch {
		case due(a.Due) || due(a.Over):
			left = append(left, t)
		case a == fdbpq.Ahead{}:
			if t.swept {
				_, _ = s.d.queue(t.queue) // the retirer looks whether it is empty
			}
		default:
			s.mu.Lock()
			s.addLocked(t.queue, a, t.found)
			s.mu.Unlock()
		}
	}
	*tasks = left
	return nil
}

// putBack puts tasks back after a sweep.
func (s *Sweeper) putBack(ctx context.Context, tasks []task, swept []fdbpq.Result, now time.Time) {
	var failed error
	for i, t := range tasks {
		r := &swept[i]
		t.swept, t.alone = true, false
		switch {
		case isDamage(r.Err) && !(errors.Is(r.Err, kv.ErrTooLarge) && !tasks[i].alone):
			s.putBackDamaged(t, r.Err, now)
			continue
		case errors.Is(r.Err, kv.ErrTooLarge):
			t.alone = true
		case r.Err != nil:
			failed = cmp.Or(failed, r.Err)
			t.at = now.Add(sweepEvery)
		case r.Swept.More && r.Swept.Done:
			t.at = now // behind those that have been due for longer
		case r.Swept.More: // there was no room beside others
			t.alone = true
		default:
			t.at = now.Add(sweepEvery) // to find out what comes next
		}

		s.addTask(t)
	}
	if failed != nil {
		s.warn(ctx, failed)
	}
}
