package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// delayRate is how many items a second can be pushed at least, delayRateFDB to a cluster of
	// one process.
	delayRate    = 10_000
	delayRateFDB = 2500
	// settled is how long nothing is swept once all is back.
	settled = 8 * time.Second
	// probeRetry is how long a probe waits after a 503.
	probeRetry = 10 * time.Millisecond
)

// delayed pushes many items that all fall due in the same second, watches the service at rest
// before, and then measures how long others wait while the items come back, until nothing is
// swept any more.
func (r *rig) delayed(ctx context.Context, report *Report) (err error) {
	if r.Delayed == 0 {
		return nil
	}
	s, err := r.startService(ctx, "-delayed", noLengths)
	if err != nil {
		return err
	}
	defer s.end(&err)

	r.Progress(0, 3, "push delayed items")
	before := s.Used().Resident
	rate := delayRate
	if r.cluster != nil {
		rate = delayRateFDB
	}
	due := time.Now().Add(r.Duration + time.Second + time.Duration(r.Delayed/rate)*time.Second)
	w := &row{name: fmt.Sprintf("push %d delayed", r.Delayed), who: s.Process}
	if err := r.pushDelayed(ctx, s, w, due); err != nil {
		return err
	}
	if left := time.Until(due); left < r.Duration {
		return fmt.Errorf("it took %v to push %d items, and the first fall due in %v", w.out.elapsed, r.Delayed, left)
	}

	r.Progress(1, 3, "at rest")
	if w.extra, err = r.atRest(ctx, s); err != nil {
		return err
	}
	w.extra = append(w.extra, Figure{Name: "queues", Value: float64(r.DelayedQueues)},
		inMegabytes("memory", s.Used().Resident-before))
	report.Rows = append(report.Rows, w.result(report.rate(rowEcho)))

	r.Progress(2, 3, "wait until the items fall due")
	if err := sleep(ctx, time.Until(due)-time.Second); err != nil {
		return err
	}
	figures, err := r.probes(ctx, s, due)
	report.Rows = append(report.Rows, Row{Name: fmt.Sprintf("%d fall due", r.Delayed), Extra: figures})
	return err
}

func (r *rig) delayedQueue(i int) string { return fmt.Sprintf("%s-%d", queueName, i%r.DelayedQueues) }

// pushDelayed pushes the items, as many to each queue, each request to the next queue.
func (r *rig) pushDelayed(ctx context.Context, s *service, w *row, due time.Time) error {
	schedule := map[string][]string{subjects.HeaderSchedule: {"@at " + due.UTC().Format(time.RFC3339Nano)}}
	headers, err := subjects.AppendHeaders(nil, schedule)
	if err != nil {
		return err
	}
	frame := subjects.AppendFrame(nil, subjects.Frame{Headers: headers, Value: make([]byte, r.Payload)})

	to := make([]string, r.DelayedQueues)
	for i := range to {
		if to[i], err = s.subject(r.delayedQueue(i), subjects.PushBatch); err != nil {
			return err
		}
	}
	for each := max(r.Delayed/r.DelayedQueues, 1); each > 0; each -= batchItems {
		n := min(each, batchItems)
		w.load = r.asking(slices.Repeat(frame, n), to...)
		if err := r.run(ctx, w, limit{steps: len(to)}); err != nil {
			return err
		}
		w.out.items += int64((n - 1) * len(to)) // each request is counted as one
	}
	return nil
}

// probes asks the service, one request after the other, until nothing is swept any more: a queue
// that has nothing to do with the items, and all those that have some. The figures are the longest
// times that somebody waited, tries that were answered with 503 included.
func (r *rig) probes(ctx context.Context, s *service, due time.Time) ([]Figure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	other := func(int) string { return queueName }
	all := []struct {
		name    string
		queue   func(int) string
		verb    subjects.Verb
		longest time.Duration
	}{
		{"longest push", other, subjects.Push, 0},
		{"pop", other, subjects.PopMin, 0},
		{"push to their queues", r.delayedQueue, subjects.Push, 0},
		{"pop from them", r.delayedQueue, subjects.PopMin, 0},
	}
	var probing sync.WaitGroup
	for i := range all {
		p := &all[i]
		probing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				subject, err := s.subject(p.queue(i), p.verb)
				if err == nil {
					err = r.probe(ctx, subject, &p.longest)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}

	swept, err := r.untilSwept(ctx, s, due)
	cancel(err)
	probing.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	var figures []Figure
	for _, p := range all {
		figures = append(figures, inMillis(p.name, p.longest))
	}
	return append(figures, swept...), err
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

// untilSwept waits until nothing is swept any more, and says when the last of it was.
func (r *rig) untilSwept(ctx context.Context, s *service, due time.Time) ([]Figure, error) {
	last, at := 0.0, time.Now()
	back := time.Duration(0)
	for time.Since(at) <= settled || time.Since(due) <= 2*settled {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		sweeps, err := s.metric("pq_sweeps_total")
		if err != nil {
			return nil, err
		}
		if sweeps > last {
			last, at = sweeps, time.Now()
			back = at.Sub(due)
		}
	}
	return []Figure{inMillis("all swept after", back), {Name: "sweeps", Value: last}}, nil
}
