package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// idleWait is how long one request waits for a job.
const idleWait = 5 * time.Minute

// lease leases a job, and waits for one. It returns nil if the worker stops.
func (s *source) lease() *heldJob {
	var p pause
	for s.stopping.Err() == nil {
		h, err := s.tryLease()
		switch {
		case h != nil: // even with an error, which the next request meets again
			return h
		case errors.Is(err, ErrEmpty):
			p = pause{}
		case isHopeless(err):
			s.fail(err)
		case s.stopping.Err() != nil && errors.Is(err, ErrNotSent):
		case s.killed.Err() == nil:
			s.warnSeldom("cannot lease a job", "error", err)
			p.wait(s.stopping)
		}
	}
	return nil
}

// tryLease makes one attempt to lease a job. If there is none, it waits for one.
func (s *source) tryLease() (*heldJob, error) {
	// Only one loop of a queue waits at a time.
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	case <-s.stopping.Done():
		return nil, ErrEmpty
	}

	if err := s.awaitConnected(); err != nil {
		return nil, err
	}

	return s.leaseOnce(context.Background(),
		Expires(idleWait), IdleHeartbeat(s.heartbeat))
}

// awaitConnected waits for the connection, but not too long, so that the worker logs an outage.
func (s *source) awaitConnected() error {
	ctx, cancel := context.WithTimeout(s.stopping, s.patience())
	defer cancel()
	return s.queue.client.awaitConnection(ctx, s.queue.name)
}

// leaseOnce sends a request for a job and returns when it has ended, even if the worker stops: a
// request that is given up may still get a job. So the worker has the bridge end the wait when the
// worker stops, and when the connection is back, because it may lead to another bridge now.
func (s *source) leaseOnce(
	ctx context.Context, options ...LeaseOption,
) (h *heldJob, err error) {
	o := leaseOptions(0, append(options, AckWait(s.o.AckWait), Holder(s.holder)))
	p, err := s.queue.newPop(s.verb)
	if err != nil {
		return nil, err
	}

	nc := s.queue.client.nc
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)

	p.stop, p.reconnected = s.stopping, reconnected

	// Leases begin later. The bridge sent each heartbeat at least an interval after the one before.
	// When the worker reads it says little: the worker may have stood still.
	began := time.Now()
	p.onHeartbeat = func() { began = began.Add(o.IdleHeartbeat) }

	err = s.queue.client.sendAndReceive(ctx, p, o, func(r *received) error {
		d, err := s.queue.delivery(r)
		if err != nil {
			return err
		}

		if time.Since(began) >= cmp.Or(d.AckWait, s.leaseLength()) {
			err = s.sendAck(func(ctx context.Context) (err error) {
				began = time.Now() // the lease restarts later
				_, err = d.Extend(ctx)
				return err
			})
			if err != nil { // somebody else may have the job
				return err
			}
		}

		h = s.hold(d, began)
		return nil
	})
	return h, err
}
