package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// noLengths keeps a look at the metrics from reading the store.
const noLengths = "PQ_METRIC_QUEUES=-1"

// atRest watches the service for the time of an operation while nobody asks for anything: the
// batches of operations that it runs, and its share of one processor.
func (r *rig) atRest(ctx context.Context, s *service) ([]Figure, error) {
	const batches = "pq_batch_requests_count"
	before, err := s.metric(batches)
	if err != nil {
		return nil, err
	}
	used, begin := s.Used(), time.Now()

	if err := sleep(ctx, r.Duration); err != nil {
		return nil, err
	}

	cpu := s.Used().CPU - used.CPU
	after, err := s.metric(batches)
	return []Figure{
		{Name: "transactions at rest", Value: after - before},
		inPercent("CPU at rest", cpu.Seconds()/time.Since(begin).Seconds()),
	}, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// waiters watches a service while pops wait in one queue, each number of them in a service
// of its own.
func (r *rig) waiters(ctx context.Context, report *Report) error {
	for i, n := range r.Waiters {
		r.Progress(i, len(r.Waiters), fmt.Sprintf("%d waiters", n))
		w := &row{name: fmt.Sprintf("%d waiting pops", n), out: newOutcome()}
		if err := r.watchWaiters(ctx, i, n, w); err != nil {
			return fmt.Errorf("%d waiters: %w", n, err)
		}
		report.Rows = append(report.Rows, w.result(0))
	}
	return nil
}

func (r *rig) watchWaiters(ctx context.Context, i, n int, w *row) (err error) {
	s, err := r.startService(ctx, fmt.Sprintf("-waiters-%d", i), noLengths, "PQ_MAX_WAITERS="+strconv.Itoa(n))
	if err != nil {
		return err
	}
	defer s.end(&err)
	subject, err := s.subject(queueName, subjects.PopMin)
	if err != nil {
		return err
	}
	before := s.Used().Resident

	if err := r.park(ctx, s, subject, n); err != nil {
		return err
	}
	if w.extra, err = r.atRest(ctx, s); err != nil {
		return err
	}
	each := float64(s.Used().Resident-before) / float64(n)
	w.extra = append(w.extra, Figure{Name: "memory each", Value: each, Unit: "B"})
	return nil
}

// park sends n pops that wait, and returns when all do.
func (r *rig) park(ctx context.Context, s *service, subject string, n int) error {
	inbox := r.conn.NewInbox() + "."
	var reply atomic.Pointer[nats.Msg] // to any of them
	if _, err := r.conn.Subscribe(inbox+"*", func(m *nats.Msg) { reply.Store(m) }); err != nil {
		return err
	}

	options := subjects.PopOptions{Expires: subjects.MaxExpires}.Encode()
	const atOnce = 4096 // less than the requests that may be pending
	for sent := 0; sent < n; {
		for next := min(n, sent+atOnce); sent < next; sent++ {
			if err := r.conn.PublishRequest(subject, inbox+strconv.Itoa(sent), options); err != nil {
				return err
			}
		}

		arrived, cancel := context.WithTimeout(ctx, grace)
		err := s.Await(arrived, func() error {
			if reply.Load() != nil {
				return nil
			}
			waiting, err := s.metric("pq_waiters")
			if err == nil && int(waiting) < sent {
				err = fmt.Errorf("%v of %d pops wait", waiting, sent)
			}
			return err
		})
		cancel()
		if m := reply.Load(); m != nil {
			err = fmt.Errorf("a pop was answered: %q: %w", m.Data, replyError(m))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
