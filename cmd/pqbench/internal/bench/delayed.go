package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// delayed pushes many items that all fall due in the same second, watches the service at rest before,
// and then measures how long others wait while the items come back, until nothing is swept any more.
func (r *rig) delayed(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "-delayed", noLengths)
	if err != nil {
		return err
	}
	defer s.end(&err)
	r.Progress(0, 3, "push")
	before, begin := s.Used().Resident, time.Now()
	rate := delayRate
	if r.cluster != nil {
		rate = delayRateFDB
	}
	due := begin.Add(r.Duration + time.Second + time.Duration(r.Delayed/rate)*time.Second)
	if err := r.pushDelayed(ctx, s, due); err != nil {
		return err
	}
	row := &DelayedRow{Items: r.Delayed, Queues: r.DelayedQueues, Push: time.Since(begin)}
	if left := time.Until(due); left < r.Duration {
		return fmt.Errorf("it took %v to push %d items, and the first fall due in %v", row.Push, r.Delayed, left)
	}
	r.Progress(1, 3, "at rest")
	if row.Rest, err = r.rests(ctx, s); err != nil {
		return err
	}
	row.Memory = s.Used().Resident - before
	r.Progress(2, 3, "wait until the items fall due")
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due) - time.Second):
	}
	if err := r.probes(ctx, s, row, due); err != nil {
		return err
	}
	report.Delayed = row
	return nil
}

const (
	// delayRate is how many items a second can be pushed at least, delayRateFDB to a cluster of one process.
	delayRate    = 10_000
	delayRateFDB = 2500
	// settled is how long nothing is swept once all is back.
	settled = 8 * time.Second
	// probeRetry is how long a probe waits after a 503.
	probeRetry = 10 * time.Millisecond
)

func (r *rig) delayedQueue(i int) string { return fmt.Sprintf("%s-%d", r.Queue, i%r.DelayedQueues) }

// pushDelayed pushes the items, as many to each queue.
func (r *rig) pushDelayed(ctx context.Context, s *service, due time.Time) error {
	headers, err := subjects.AppendHeaders(nil, map[string][]string{subjects.HeaderSchedule: {"@at " + due.UTC().Format(time.RFC3339Nano)}})
	if err != nil {
		return err
	}
	frame := subjects.AppendFrame(nil, subjects.Frame{Headers: headers, Value: make([]byte, r.Payload)})
	var steps []step
	for each := max(r.Delayed/r.DelayedQueues, 1); each > 0; {
		n := min(each, batchItems)
		each -= n
		var frames []byte
		for range n {
			frames = append(frames, frame...)
		}
		for i := range r.DelayedQueues {
			subject, err := s.subject(r.delayedQueue(i), subjects.PushBatch)
			if err != nil {
				return err
			}
			steps = append(steps, step{subject: subject, payload: frames})
		}
	}
	_, err = r.load.run(ctx, steps, limit{steps: len(steps)})
	return err
}

// probes asks the service, one request after the other, until nothing is swept any more: a queue that has
// nothing to do with the items, and all those that have some.
func (r *rig) probes(ctx context.Context, s *service, row *DelayedRow, due time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var probing sync.WaitGroup
	for _, p := range []struct {
		queue   func(int) string
		verb    subjects.Verb
		longest *time.Duration
	}{
		{func(int) string { return r.Queue }, subjects.Push, &row.PushWait},
		{func(int) string { return r.Queue }, subjects.PopMin, &row.PopWait},
		{r.delayedQueue, subjects.Push, &row.DuePushWait},
		{r.delayedQueue, subjects.PopMin, &row.DuePopWait},
	} {
		probing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				subject, err := s.subject(p.queue(i), p.verb)
				if err == nil {
					err = r.probe(ctx, subject, p.longest)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	err := r.untilSwept(ctx, s, row, due)
	cancel(err)
	probing.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// probe makes a request, again while it is answered with 503, and notes the time.
func (r *rig) probe(ctx context.Context, subject string, longest *time.Duration) error {
	begin := time.Now()
	for {
		reply, err := r.conn.Request(subject, []byte{}, grace)
		if err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		*longest = max(*longest, time.Since(begin))
		told := subjects.ErrorFromHeaders(reply.Header)
		switch {
		case told == nil || told.Code == http.StatusNotFound:
			return nil
		case told.Code != http.StatusServiceUnavailable:
			return fmt.Errorf("%s: %w", subject, told)
		case ctx.Err() != nil:
			return nil
		}
		time.Sleep(probeRetry)
	}
}

// untilSwept waits until nothing is swept any more, and notes when the last of it was.
func (r *rig) untilSwept(ctx context.Context, s *service, row *DelayedRow, due time.Time) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	last, at := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		sweeps, err := s.metric("pq_sweeps_total")
		if err != nil {
			return err
		}
		if sweeps > last {
			last, at = sweeps, time.Now()
			row.Back, row.Sweeps = at.Sub(due), int64(sweeps)
		}
		if time.Since(at) > settled && time.Since(due) > 2*settled {
			return nil
		}
	}
}
