package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// noLengths keeps a look at the metrics from reading the store.
const noLengths = "PQ_METRIC_QUEUES=-1"

// Rest is what a service does while nobody asks for anything.
type Rest struct {
	CPU          float64 `json:"cpu"`          // share of one processor
	Transactions int64   `json:"transactions"` // batches of operations
}

// rests watches the service for the time of an operation.
func (r *rig) rests(ctx context.Context, s *service) (Rest, error) {
	const batches = "pq_batch_requests_count"
	before, err := s.metric(batches)
	if err != nil {
		return Rest{}, err
	}
	used, begin := s.Used(), time.Now()
	timer := time.NewTimer(r.Duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return Rest{}, context.Cause(ctx)
	case <-timer.C:
	}
	cpu := s.Used().CPU - used.CPU
	after, err := s.metric(batches)
	return Rest{CPU: cpu.Seconds() / time.Since(begin).Seconds(), Transactions: int64(after - before)}, err
}

// idleQueues watches a service whose queues all have a leased item and nothing else.
func (r *rig) idleQueues(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "-idle", noLengths)
	if err != nil {
		return err
	}
	defer s.end(&err)
	r.Progress(0, 1, fmt.Sprintf("%d idle queues", r.IdleQueues))
	var push, lease []step
	options := subjects.PopOptions{Lease: true, AckWait: subjects.MaxAckWait}.Encode()
	for i := range r.IdleQueues {
		w, err := newWork(s, fmt.Sprintf("%s-%d", r.Queue, i), r.Payload, 1)
		if err != nil {
			return err
		}
		push = append(push, w.push[0])
		lease = append(lease, step{subject: w.popMin[0].subject, payload: options})
	}
	for _, steps := range [][]step{push, lease} {
		out, err := r.load.run(ctx, steps, limit{steps: len(steps)})
		if err != nil {
			return err
		}
		if out.dry {
			return errors.New("a queue that should have one item was empty")
		}
	}
	row := &IdleRow{Queues: r.IdleQueues}
	row.Rest, err = r.rests(ctx, s)
	report.Idle = row
	return err
}

// waiters watches a service while pops wait in one queue, each number of them in a service
// of its own.
func (r *rig) waiters(ctx context.Context, report *Report) error {
	for i, n := range r.Waiters {
		r.Progress(i, len(r.Waiters), fmt.Sprintf("%d waiters", n))
		row, err := r.waitersRow(ctx, i, n)
		if err != nil {
			return fmt.Errorf("%d waiters: %w", n, err)
		}
		report.Waiters = append(report.Waiters, row)
	}
	return nil
}

func (r *rig) waitersRow(ctx context.Context, i, n int) (row WaitersRow, err error) {
	s, err := r.startService(ctx, fmt.Sprintf("-waiters-%d", i), noLengths, "PQ_MAX_WAITERS="+strconv.Itoa(n))
	if err != nil {
		return row, err
	}
	defer s.end(&err)
	w, err := newWork(s, r.Queue, 0, 1)
	if err != nil {
		return row, err
	}
	nc, err := nats.Connect(r.url)
	if err != nil {
		return row, err
	}
	defer nc.Close()
	inbox := nc.NewInbox() + "."
	var reply atomic.Pointer[nats.Msg] // to any of them
	if _, err := nc.Subscribe(inbox+"*", func(m *nats.Msg) { reply.Store(m) }); err != nil {
		return row, err
	}
	before := s.Used().Resident
	options := subjects.PopOptions{Expires: subjects.MaxExpires}.Encode()
	const atOnce = 4096 // less than the requests that may be pending
	for sent := 0; sent < n; {
		for next := min(n, sent+atOnce); sent < next; sent++ {
			if err := nc.PublishRequest(w.popMin[0].subject, inbox+strconv.Itoa(sent), options); err != nil {
				return row, err
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
			return row, err
		}
	}
	row.Waiters = n
	if row.Rest, err = r.rests(ctx, s); err != nil {
		return row, err
	}
	row.Each = (s.Used().Resident - before) / int64(n)
	return row, nil
}
