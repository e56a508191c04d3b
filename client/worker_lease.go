package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// idleWait is how long a request waits for a job.
	idleWait = 5 * time.Minute
	// idleHeartbeat is how often the bridge confirms that. A worker that hears nothing for twice that long gives the
	// request up.
	idleHeartbeat = 5 * time.Second

	// A bridge of an earlier version cannot end a wait. So Stop takes as long as one wait, or the job that comes
	// would be leased to nobody.
	olderWait      = 2 * time.Second
	olderHeartbeat = time.Second
)

// lease leases up to n jobs, and waits for the first. It returns none if the worker stops.
func (w *Worker) lease(n int) []*lease {
	var p pause
	for w.stopping.Err() == nil {
		list, err := w.leaseNow(n)
		switch {
		case len(list) > 0:
			return list
		case errors.Is(err, ErrEmpty):
			p = pause{}
		case hopeless(err):
			w.fail(err)
		case w.stopping.Err() != nil && errors.Is(err, ErrNotSent):
		case w.killed.Err() == nil:
			w.log.Warn("cannot lease a job", "error", err)
			p.take(w.stopping)
		}
	}
	return nil
}

// leaseNow leases up to n jobs of those that are there, or waits for one.
func (w *Worker) leaseNow(n int) ([]*lease, error) {
	select {
	case w.waits <- struct{}{}:
		defer func() { <-w.waits }()
	case <-w.stopping.Done():
		return nil, ErrEmpty
	}
	if err := w.awaitConnection(); err != nil {
		return nil, err
	}
	if n > 1 {
		o := leaseOptions([]LeaseOption{AckWait(w.o.AckWait)})
		o.Batch = min(n, subjects.MaxPopBatch)
		list, err := w.fetch(o)
		if len(list) > 0 || !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrOverloaded) { // the second at max_leased: wait for that, too
			return list, err
		}
	}
	return w.fetch(leaseOptions([]LeaseOption{AckWait(w.o.AckWait), Expires(idleWait), IdleHeartbeat(w.heartbeat)}))
}

// awaitConnection waits for the connection, but not so long that nobody is told.
func (w *Worker) awaitConnection() error {
	c, m := w.queue.client, &nats.Msg{Subject: w.queue.name}
	if c.nc == nil {
		return unsent(m, nats.ErrInvalidConnection)
	}
	ctx, cancel := context.WithTimeout(w.stopping, w.patience())
	defer cancel()
	return c.awaitConnection(ctx, m)
}

// fetch sends a request for jobs. It returns when that has ended, also when the worker stops: a request that is given up may
// still get a job. So it has the bridge end a wait when the worker stops; and also when the connection is back, since that bridge
// may be another one.
func (w *Worker) fetch(o subjects.PopOptions) (begun []*lease, err error) {
	p, err := w.queue.newPop(w.verb)
	if err != nil {
		return nil, err
	}
	nc := w.queue.client.nc
	again := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(again)
	p.end, p.again = w.stopping, again
	p.older = func(o subjects.PopOptions) subjects.PopOptions {
		if o.Expires > 0 {
			o.Expires, o.IdleHeartbeat = olderWait, olderHeartbeat
		}
		return o
	}
	heard := time.Now() // the leases began later
	p.beat = func() { heard = time.Now() }

	ctx := context.Background()
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.patience())
		defer cancel()
	}
	err = w.queue.client.fetch(ctx, p, o, func(m *nats.Msg) error {
		d, err := w.queue.delivery(m)
		if err != nil {
			return err
		}
		began := time.Now()
		if o.Expires == 0 || began.After(heard.Add(w.heartbeat)) { // this process was suspended, or the reply was
			began = heard
		}
		begun = append(begun, w.begin(d, began))
		return nil
	})
	return begun, err
}
