package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// idleWait is how long a request waits for a job.
const idleWait = 5 * time.Minute

// lease leases up to n jobs, and waits for the first. It returns none if the worker stops.
func (s *source) lease(n int) []*heldJob {
	var p pause
	for s.stopping.Err() == nil {
		list, err := s.tryLease(n)
		switch {
		case len(list) > 0:
			return list
		case errors.Is(err, ErrEmpty):
			p = pause{}
		case isHopeless(err):
			s.fail(err)
		case s.stopping.Err() != nil && errors.Is(err, ErrNotSent):
		case s.killed.Err() == nil:
			s.log.Warn("cannot lease a job", "error", err)
			p.wait(s.stopping)
		}
	}
	return nil
}

// tryLease makes one attempt to lease up to n jobs: those that are there, or the first that comes.
func (s *source) tryLease(n int) ([]*heldJob, error) {
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	case <-s.stopping.Done():
		return nil, ErrEmpty
	}
	if err := s.awaitConnected(); err != nil {
		return nil, err
	}

	if n > 1 {
		list, err := s.leaseOnce(s.leaseOptions(min(n, subjects.MaxPopBatch)))
		if len(list) > 0 || !isAny(err, ErrEmpty, ErrOverloaded) { // at max_leased it is overloaded: wait for that, too
			return list, err
		}
	}
	return s.leaseOnce(s.leaseOptions(0, Expires(idleWait), IdleHeartbeat(s.heartbeat)))
}

// awaitConnected waits for the connection, but not so long that nobody is told.
func (s *source) awaitConnected() error {
	c := s.queue.client
	if c.nc == nil {
		return notSent(s.queue.name, nats.ErrInvalidConnection)
	}
	ctx, cancel := context.WithTimeout(s.stopping, s.patience())
	defer cancel()
	return c.awaitConnection(ctx, s.queue.name)
}

// leaseOnce sends a request for jobs, and returns when that has ended, also when the worker stops:
// a request that is given up may still get a job. So the worker has the bridge end a wait when it
// stops, and also when the connection is back, since that may lead to another bridge.
func (s *source) leaseOnce(o subjects.PopOptions) (list []*heldJob, err error) {
	p, err := s.queue.newPop(s.verb)
	if err != nil {
		return nil, err
	}
	nc := s.queue.client.nc
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)

	p.stop, p.reconnected = s.stopping, reconnected
	heard := time.Now() // leases begin after the bridge was last heard
	p.onHeartbeat = func() { heard = time.Now() }

	ctx := context.Background()
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.patience())
		defer cancel()
	}
	err = s.queue.client.fetchPop(ctx, p, o, func(r *received) error {
		d, err := s.queue.delivery(r)
		if err != nil {
			return err
		}

		// If heartbeats are missing, this process or the reply was held up: the lease may be old.
		began := time.Now()
		if o.Expires == 0 || began.After(heard.Add(s.heartbeat)) {
			began = heard
		}
		list = append(list, s.hold(d, began))
		return nil
	})
	return list, err
}
