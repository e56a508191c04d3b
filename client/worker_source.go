package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
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

// do calls the Work, and says what becomes of the job if it has failed.
func (s *source) do(h *heldJob) *workFailure {
	ctx, done := h.limit(s.o.JobTimeout)
	defer done()
	returned := false
	defer func() {
		if !returned { // Work has called runtime.Goexit, which ends this goroutine
			s.settleFailed(h, &workFailure{text: "Work called runtime.Goexit", delay: Backoff})
			s.background.Go(s.doJobs)
		}
	}()

	failed := s.work.callSafely(ctx, &Job{
		Item:       h.Item,
		Queue:      s.queue.name,
		Deliveries: h.Deliveries,
		MaxDeliver: h.MaxDeliver,
		result:     &h.result,
		progress:   h.tellProgress,
	})
	returned = true
	if failed != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		failed.timeOut()
	}
	return failed
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

// pendingAck is a job that is done but not yet acknowledged.
type pendingAck struct {
	*heldJob
	lease bool     // a job in its place
	next  *heldJob // that job, or nil

	err     error // the shared request did not acknowledge it
	unknown bool  // but may have

	// batch tells one that waits what happens to it. It receives all that the next request
	// acknowledges, itself first, if it makes that request; it is closed once another has made it.
	batch chan []*pendingAck
}

// sharedAcks lets jobs that end while requests are under way share the next request.
type sharedAcks struct {
	mu      sync.Mutex
	busy    int           // requests under way that are not slow, up to maxUnderWay
	waiting []*pendingAck // for the next request

	slow time.Duration // after which a request is slow
}
