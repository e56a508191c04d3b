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
func (w *Worker) lease(n int) []*heldJob {
	var p pause
	for w.stopping.Err() == nil {
		list, err := w.tryLease(n)
		switch {
		case len(list) > 0:
			return list
		case errors.Is(err, ErrEmpty):
			p = pause{}
		case isHopeless(err):
			w.fail(err)
		case w.stopping.Err() != nil && errors.Is(err, ErrNotSent):
		case w.killed.Err() == nil:
			w.log.Warn("cannot lease a job", "error", err)
			p.wait(w.stopping)
		}
	}
	return nil
}

// tryLease makes one attempt to lease up to n jobs: those that are there, or the first that comes.
func (w *Worker) tryLease(n int) ([]*heldJob, error) {
	select {
	case w.waits <- struct{}{}:
		defer func() { <-w.waits }()
	case <-w.stopping.Done():
		return nil, ErrEmpty
	}
	if err := w.awaitConnected(); err != nil {
		return nil, err
	}

	if n > 1 {
		o := leaseOptions(min(n, subjects.MaxPopBatch), []LeaseOption{AckWait(w.o.AckWait)})
		list, err := w.leaseOnce(o)
		if len(list) > 0 || !isAny(err, ErrEmpty, ErrOverloaded) { // at max_leased it is overloaded: wait for that, too
			return list, err
		}
	}
	return w.leaseOnce(leaseOptions(0, []LeaseOption{AckWait(w.o.AckWait), Expires(idleWait), IdleHeartbeat(w.heartbeat)}))
}

// awaitConnected waits for the connection, but not so long that nobody is told.
func (w *Worker) awaitConnected() error {
	c := w.queue.client
	if c.nc == nil {
		return notSent(w.queue.name, nats.ErrInvalidConnection)
	}
	ctx, cancel := context.WithTimeout(w.stopping, w.patience())
	defer cancel()
	return c.awaitConnection(ctx, w.queue.name)
}

// leaseOnce sends a request for jobs, and returns when that has ended, also when the worker stops:
// a request that is given up may still get a job. So the worker has the bridge end a wait when it
// stops, and also when the connection is back, since that may lead to another bridge.
func (w *Worker) leaseOnce(o subjects.PopOptions) (list []*heldJob, err error) {
	p, err := w.queue.newPop(w.verb)
	if err != nil {
		return nil, err
	}
	nc := w.queue.client.nc
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)

	p.stop, p.reconnected = w.stopping, reconnected
	heard := time.Now() // leases begin after the bridge was last heard
	p.onHeartbeat = func() { heard = time.Now() }

	ctx := context.Background()
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.patience())
		defer cancel()
	}
	err = w.queue.client.fetchPop(ctx, p, o, func(m *nats.Msg) error {
		d, err := w.queue.delivery(m)
		if err != nil {
			return err
		}

		// If heartbeats are missing, this process or the reply was held up: the lease may be old.
		began := time.Now()
		if o.Expires == 0 || began.After(heard.Add(w.heartbeat)) {
			began = heard
		}
		list = append(list, w.hold(d, began))
		return nil
	})
	return list, err
}
