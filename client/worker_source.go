package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// source is a queue of a worker.
type source struct {
	*Worker
	queue   *Queue
	verb    subjects.Verb // that leases
	log     *slog.Logger
	ackWait atomic.Int64 // length of its leases, as far as it is known, in nanoseconds
	holder  string       // name that it takes them with

	session atomic.Pointer[session] // the present one
	warned  map[string]time.Time    // when warnSeldom last logged each text; see Worker.mu

	waits chan struct{} // has room for one: of the idle loops, one waits for a job
	acks  sharedAcks
	share share // if there are several sources
}

func (w *Worker) newSource(weighted WeightedQueue) *source {
	q := weighted.queue
	s := &source{
		Worker: w,
		queue:  q,
		verb:   subjects.Pop,
		log:    w.o.Logger.With("queue", q.name),
		holder: cmp.Or(w.o.Holder, DefaultHolder(q.client.nc)),
		warned: map[string]time.Time{},
		waits:  make(chan struct{}, 1),
		share:  share{weight: float64(weighted.weight)},
	}
	s.session.Store(newSession())

	s.ackWait.Store(int64(cmp.Or(w.o.AckWait, settings.DefaultLease)))
	s.acks.slow = s.patience() / 4
	if w.o.Max {
		s.verb = subjects.PopMax
	}
	return s
}

// patience is how long to wait for the reply to an acknowledgement. It leaves time for another
// attempt before the lease ends. If it were too short, a slow reply would count as lost, and the
// job that comes with it would be leased to nobody, at the cost of a delivery.
func (s *source) patience() time.Duration {
	return min(max(s.leaseLength()/3, lateReply), s.queue.client.timeout)
}

// leaseLength returns the length of the latest lease, or what it is expected to be.
func (s *source) leaseLength() time.Duration { return time.Duration(s.ackWait.Load()) }

// sendAck makes one attempt to send an acknowledgement. Shutdown does not cut it short.
func (s *source) sendAck(send func(context.Context) error) error {
	ctx, cancel := s.attempt()
	defer cancel()
	return send(ctx)
}

// errReplyLost ends an attempt whose reply was lost with the connection.
var errReplyLost = errors.New("the connection was lost")

// attempt returns the context of one attempt to settle. It ends settleTime after the worker's
// grace, or has that time if it begins later. It also ends when the connection was lost and is
// back, so that the next attempt begins at once.
func (s *source) attempt() (context.Context, context.CancelFunc) {
	parent, timeout := s.overdue, s.patience()
	if parent.Err() != nil {
		parent, timeout = context.Background(), min(timeout, settleTime)
	}
	ctx, cancel := context.WithTimeout(parent, timeout)
	if isAway(s.queue.client.nc) { // it is sent only once the connection is back
		return ctx, cancel
	}

	ctx, lose := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.session.Load(), func() { lose(errReplyLost) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// warnSeldom logs what goes wrong again and again, at most once a minute for each text.
func (s *source) warnSeldom(text string, args ...any) {
	s.mu.Lock()
	last, before := s.warned[text]
	seldom := !before || time.Since(last) >= time.Minute
	if seldom {
		s.warned[text] = time.Now()
	}
	s.mu.Unlock()

	if seldom {
		s.log.Warn(text, args...)
	}
}

// session lasts until a lost connection is back. Replies to requests from before are lost then.
type session struct {
	context.Context
	end context.CancelFunc
}

func newSession() *session {
	ctx, end := context.WithCancel(context.Background())
	return &session{ctx, end}
}

// followConnection ends a session whenever the connection is back, until ctx ends.
func (s *source) followConnection(ctx context.Context) {
	nc := s.queue.client.nc
	back := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(back)
	for {
		select {
		case <-back:
			s.session.Swap(newSession()).end()
		case <-ctx.Done():
			return
		}
	}
}
