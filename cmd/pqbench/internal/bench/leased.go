package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// leased leases many items to nobody, waits until the last lease is over, and times how
// they come back: all of them, in order. One client does everything, so that the order in
// which it pushed is known.
func (r *rig) leased(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "-leased")
	if err != nil {
		return err
	}
	defer s.end(&err)
	q := client.New(r.conn, client.WithGrammar(s.grammar)).PriorityQueue(r.Queue)
	r.Progress(0, 3, "push")
	if err := r.pushNumbered(ctx, s); err != nil {
		return err
	}
	r.Progress(1, 3, "lease")
	begin := time.Now()
	wait := time.Second + time.Duration(r.Leased)*time.Second/leaseRate
	var until time.Time // the end of the last lease
	for n := 0; n < r.Leased; {
		deliveries, err := q.LeaseMinBatch(ctx, subjects.MaxPopBatch, client.AckWait(wait))
		if err != nil {
			return err
		}
		n += len(deliveries)
		until = deliveries[len(deliveries)-1].Until
	}
	row := &LeasedRow{Items: r.Leased, Lease: time.Since(begin)}
	if row.Lease >= wait {
		return fmt.Errorf("it took %v to lease %d items, longer than each lease", row.Lease, r.Leased)
	}
	r.Progress(2, 3, "wait for the end of the leases")
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	if err := r.popNumbered(ctx, q, row); err != nil {
		return err
	}
	report.Leased = row
	return nil
}

const (
	// leaseRate is how many items a second can be leased at least.
	leaseRate = 10_000
	// returnTime is how long a pop is tried again while items come back.
	returnTime = 2 * time.Minute
)

// pushNumbered pushes items that begin with their numbers, with priorities in turn.
func (r *rig) pushNumbered(ctx context.Context, s *service) error {
	subject, err := s.subject(r.Queue, subjects.PushBatch)
	if err != nil {
		return err
	}
	value := make([]byte, max(r.Payload, 8))
	for n := 0; n < r.Leased; {
		var frames []byte
		for end := min(n+subjects.MaxPopBatch, r.Leased); n < end; n++ {
			binary.BigEndian.PutUint64(value, uint64(n))
			frames = subjects.AppendFrame(frames, subjects.Frame{Priority: int64(n % r.Priorities), Value: value})
		}
		reply, err := r.ask(ctx, subject, frames)
		if err == nil {
			err = replyError(reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) ask(ctx context.Context, subject string, payload []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return r.conn.RequestWithContext(ctx, subject, payload)
}

// popNumbered pops all items and checks their order.
func (r *rig) popNumbered(ctx context.Context, q *client.PriorityQueue, row *LeasedRow) error {
	begin := time.Now()
	number, priority := 0, 0 // of the next item
	for n := 0; n < r.Leased; {
		items, err := q.PopMinBatch(ctx, subjects.MaxPopBatch)
		if errors.Is(err, client.ErrUnavailable) && len(items) == 0 && time.Since(begin) < returnTime {
			row.Retries++ // more comes back than the service does in the time of one request
			continue
		}
		if err != nil {
			return fmt.Errorf("after %d items: %w", n, err)
		}
		if n == 0 {
			row.First = time.Since(begin)
		}
		for _, item := range items {
			if number >= r.Leased {
				priority++
				number = priority
			}
			if got := binary.BigEndian.Uint64(item.Value); got != uint64(number) {
				return fmt.Errorf("item %d came back after %d items, where item %d belongs", got, n, number)
			}
			number += r.Priorities
			n++
		}
	}
	row.Last = time.Since(begin)
	return nil
}
