package dispatch

import "github.com/pqbridge/pqbridge/fdbpq"

// submit is Dispatcher.Submit.
func (l *lane) submit(r *Request, ops []fdbpq.Op) error {
	if r.Wait != nil {
		l.d.waiters.Add(1)
		if err := l.d.checkWaiters(); err != nil {
			l.d.waiters.Add(-1)
			return err
		}
		if l.d.options.Waits != nil {
			l.d.options.Waits()
		}
	}

	if err := l.d.load.admit(r.Size); err != nil {
		l.d.releaseWaiter(r)
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if l.mu.closed {
		l.d.release(r)
		return errClosed
	}

	l.pushLocked(&l.mu.backlog, r, ops)
	if r.Lazy && !l.mu.lazy.isSet() {
		l.timers.set(&l.mu.lazy, l.timers.now()+lazyTime)
	}
	if l.enoughLocked() {
		l.mu.changed.Signal()
	}
	return nil
}

// runAgain appends a request to the backlog again, regardless of the load limits.
func (l *lane) runAgain(r *Request, ops []fdbpq.Op) error {
	return l.requeueIn(&l.mu.backlog, r, ops)
}

// requeueIn appends a request to a backlog, regardless of the load limits.
func (l *lane) requeueIn(to *backlog, r *Request, ops []fdbpq.Op) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.mu.ended {
		return errClosed
	}

	l.d.load.add(r.Size)
	if r.Wait != nil {
		l.d.waiters.Add(1)
	}
	l.pushLocked(to, r, ops)
	l.mu.changed.Signal()
	return nil
}

// pushLocked appends a copy of a request to a backlog, with the time by which its batch must begin.
func (l *lane) pushLocked(to *backlog, r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.exclusive = r.exclusive || r.Each

	queued.turnBy = r.Received.Add(l.turnTime())
	if r.Wait != nil {
		if last := r.Wait.Until.Add(l.lateTime() - l.pageTime()); last.Before(queued.turnBy) {
			queued.turnBy = last
		}
	}

	to.push(&queued, ops)
	l.watchOverdueLocked(l.timers.since(queued.turnBy))
}
