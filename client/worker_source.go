package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// source is a queue of a worker.
type source struct {
	*Worker
	queue   *handle
	verb    subjects.Verb // that leases
	log     *slog.Logger
	ackWait time.Duration // length of its leases
	holder  Holder        // name that it takes them with

	waits chan struct{} // has room for one: of the idle loops, one waits for a job
	acks  sharedAcks
	share share // if there are several sources

	maxDeliver atomic.Int64
	asked      atomic.Int64 // when the settings were last requested, in nanoseconds
	unanswered atomic.Int32 // requests for settings since the last reply
}

func (w *Worker) newSource(weighted WeightedQueue) *source {
	q := weighted.queue
	s := &source{
		Worker:  w,
		queue:   q,
		verb:    q.popVerb(),
		log:     w.o.Logger.With("queue", q.name),
		ackWait: w.o.AckWait,
		holder:  cmp.Or(w.o.Holder, DefaultHolder(q.client.nc)),
		waits:   make(chan struct{}, 1),
		share:   share{weight: float64(weighted.weight)},
	}

	if w.o.Max {
		s.verb = subjects.PopMax
	}
	return s
}

// leaseOptions are those of a lease of up to n jobs; 0 leases one without a batch.
func (s *source) leaseOptions(n int, more ...LeaseOption) subjects.PopOptions {
	return leaseOptions(n, append(more, AckWait(s.ackWait), s.holder))
}

// patience is how long to wait for the reply to an acknowledgement. It leaves time for another
// attempt before the lease ends. If it were too short, a slow reply would count as lost, and the
// job that comes with it would be leased to nobody, at the cost of a delivery.
func (s *source) patience() time.Duration {
	return min(max(s.ackWait/3, lateReply), s.queue.client.timeout)
}

// do calls the Work, and says what becomes of the job if it has failed.
func (s *source) do(h *heldJob) *workFailure {
	s.refreshSettings()
	ctx, done := h.limit(s.o.JobTimeout)
	defer done()

	failed := s.work.callSafely(ctx, &Job{
		Item:       h.Item,
		Queue:      s.queue.name,
		Deliveries: h.Deliveries,
		MaxDeliver: s.maxDeliver.Load(),
	})
	if failed != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		failed.timeOut()
	}
	return failed
}

const (
	// settingsAge is the age after which a busy worker reads the settings again.
	settingsAge = time.Minute

	// settingsTime is how long Run waits for settings that it can do without.
	settingsTime = time.Second

	// maxUnanswered is the number of requests without a reply after which a worker no longer asks.
	// NATS does not answer clients that lack the right.
	maxUnanswered = 2
)

// findSettings asks for the settings of the queue. Without a WorkerOptions.AckWait it retries until
// they say how long leases are.
func (s *source) findSettings() error {
	if s.ackWait != 0 {
		_, _ = s.askSettings(settingsTime) // only for Job.MaxDeliver
		return nil
	}

	s.ackWait = settings.DefaultLease
	for p := new(pause); s.stopping.Err() == nil; p.wait(s.stopping) {
		set, err := s.askSettings(s.patience())
		switch {
		case err == nil:
			s.ackWait = set.LeaseWait()
			return nil
		case s.stopping.Err() != nil:
			return nil
		case isHopeless(err):
			return err
		}

		s.log.Warn("cannot read the settings of the queue", "error", err)

		if s.unanswered.Load() == maxUnanswered {
			s.log.Warn("the settings of the queue cannot be read, so leases have the default "+
				"length: does this client have the right to read them?", "ack_wait", s.ackWait)
			return nil
		}
	}
	return nil
}

// refreshSettings asks for the settings again if they are old, without waiting for the reply. It is
// called when a job begins, so that idle workers cost nothing.
func (s *source) refreshSettings() {
	last, now := s.asked.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) < s.settingsAge || s.unanswered.Load() >= maxUnanswered ||
		!s.asked.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	s.background.Go(func() { _, _ = s.askSettings(s.patience()) })
}

// askSettings makes one attempt to read the settings. If it fails, the next job tries again.
func (s *source) askSettings(timeout time.Duration) (Settings, error) {
	ctx, cancel := context.WithTimeout(s.stopping, timeout)
	defer cancel()
	s.asked.Store(time.Now().UnixNano())
	set, err := s.queue.Settings(ctx)

	if err == nil {
		s.unanswered.Store(0)
		s.maxDeliver.Store(set.MaxDeliver)
		return set, nil
	}

	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSent) {
		s.unanswered.Add(1)
	}
	if s.stopping.Err() == nil {
		s.log.Debug("cannot read the settings of the queue", "error", err)
	}

	s.asked.Store(0)
	return Settings{}, err
}

// turn is a job that is done but not yet acknowledged.
type turn struct {
	*heldJob
	next *heldJob // the job leased in its place, or nil

	unacked bool // the shared request did not acknowledge it
	unknown bool // but may have

	// batch tells a waiting turn what happens to it. It receives the turns to send, itself first,
	// if it makes the next request; it is closed once another turn has sent this one.
	batch chan []*turn
}

// sharedAcks lets jobs that end while requests are under way share the next request.
type sharedAcks struct {
	mu      sync.Mutex
	busy    int     // requests under way that are not slow, up to maxUnderWay
	waiting []*turn // for the next request

	slow time.Duration // after which a request is slow
}
