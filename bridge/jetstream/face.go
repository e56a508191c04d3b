// Package jetstream lets programs that were written for JetStream's pull consumers use the queues.
//
// # What it does
//
// A queue is a stream. Its subject is where pushes to the queue go, and its domain is the prefix of
// the queue's subjects. A pull is a lease that waits, and an acknowledgement ends the lease. So
// everything that holds for leases holds here: fences, old places, limits, dead letters.
//
// Every queue exists, as it does for all other requests. STREAM.INFO of an unused queue shows an
// empty stream, and STREAM.CREATE succeeds, without doing anything, if it describes the stream that
// the queue is. An emptied queue leaves the list of queues after a while, and a worker that starts
// the next day must not hear that its stream is gone. STREAM.NAMES and STREAM.LIST show the queues
// of the list.
//
// Each queue has the consumers min and max, which take items from that end; a FIFO queue has only
// min. Other consumers are records beside the settings of the queue.
//
// The face uses a leaf node connection (package leaf), because NATS lets no ordinary client send a
// message with JetStream's reply subjects.
//
// # Reading the code
//
//	serve        takes messages: acknowledgements, pulls, and calls of the API
//	core         what they share: running and forwarding requests, answers
//	outstanding  what consumers have outstanding
//	pull         turns a pull into requests to the dispatcher; ends.go has how pulls end
//	deliver      sends the items of a pull to its inbox
//	calls        the table of API calls; streams, consumers and records run them
//	consumer     what the face knows of a consumer, and its cache
//	subjects     the names of domains, and the subjects of messages
package jetstream

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// Face is the JetStream face of a bridge. Its methods may be called by any goroutine.
type Face struct {
	*pulls
	*tasks
	forwarded string // begins the subjects of messages that other bridges forwarded
	leaf      *leaf.Conn
	cache     consumerCache

	state atomic.Pointer[leaf.State] // nil before the first attempt to connect
}

// New returns a Face. It listens once Run has connected it. It fails as leaf.New does, and if a
// prefix cannot be a domain.
func New(c Config) (*Face, error) {
	f, err := newFace(c)
	if err != nil {
		return nil, err
	}

	forwarded := leaf.Subscription{Subject: f.forwarded + ">"}
	c.Leaf.Subjects = append(f.domains.subscriptions(c.Group), forwarded)
	c.Leaf.Receive, c.Leaf.Changed = f.receive, f.changed
	c.Leaf.InterestGone = f.interestGone
	if f.leaf, err = leaf.New(c.Leaf); err != nil {
		return nil, err
	}

	f.out = f.leaf
	return f, nil
}

// newFace returns a Face without a connection.
func newFace(c Config) (*Face, error) {
	d, err := newDomains(c.Domains, c.Identity)
	if err != nil {
		return nil, err
	}

	shared := &core{config: c, domains: d, idle: make(chan struct{}, 1)}
	f := &Face{tasks: newTasks(c.RequestTimeout), pulls: &pulls{
		outstanding: outstanding{core: shared, byConsumer: map[consumerKey]*ackPending{}},
		inboxes:     map[string]map[*pull]bool{},
	}}
	f.used = f.touch
	f.forwarded = f.forwardTo(c.Self)
	f.cache.streams = map[stream]cachedConsumers{}
	return f, nil
}

// Run connects, and reconnects whenever the connection is lost, until ctx ends. It returns when all
// goroutines of the face have ended. Call it once.
func (f *Face) Run(ctx context.Context) error {
	err := f.leaf.Run(ctx)
	f.tasks.end(ctx)
	return err
}

// Stop stops listening, ends the pulls that wait, and answers the calls that have arrived, until
// ctx ends. The connection stays until the context of Run ends.
func (f *Face) Stop(ctx context.Context) error {
	// After Drain no further pulls come, so none is left behind.
	err := f.leaf.Drain(ctx)

	f.endPulls()
	f.tasks.end(ctx)
	if errors.Is(err, leaf.ErrOffline) {
		return nil // nothing more comes
	}
	return err
}

// Flush returns when everything that arrived before Stop is answered, and the server has received
// the answers. Calls must not be concurrent. Errors: leaf.ErrOffline, or the context's.
func (f *Face) Flush(ctx context.Context) error {
	for f.requests.Load() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-f.idle:
		}
	}

	return f.leaf.Flush(ctx)
}

// Ready returns nil if the face is connected and gets requests, otherwise why it does not.
func (f *Face) Ready() error {
	switch s := f.state.Load(); {
	case s != nil && s.Connected:
		return f.domains.taken(s.Domain)
	case s != nil && s.Err != nil:
		return s.Err
	}

	return leaf.ErrOffline
}

// OwnersChanged says that Config.Owner may give other answers than before. It does not wait.
func (f *Face) OwnersChanged() {
	f.runTask(math.MaxInt, func(context.Context) { f.endForeign() })
}

// changed is called when the connection has changed.
func (f *Face) changed(s leaf.State) {
	f.state.Store(&s)
	if !s.Connected {
		f.dropPulls()
	}

	if err := f.Ready(); s.Connected && err != nil {
		f.config.Logger.Error("JetStream's programs are not served", "reason", err)
	}
	switch {
	case s.Connected:
		f.config.Logger.Info("leaf node connected",
			"address", s.Address, "server", s.Server, "account", s.Account)
	case s.Err != nil:
		f.config.Warn("no leaf node connection", "address", s.Address, "error", s.Err)
	}
}

// Up to maxTasks tasks run at a time, and up to maxWaitingTasks wait.
const maxTasks, maxWaitingTasks = 16, 1000

// tasks runs calls of the API, and what else waits for the store.
type tasks struct {
	slots   chan struct{} // an element for each task that runs
	ctx     context.Context
	cancel  context.CancelFunc
	timeout time.Duration // of each

	mu struct {
		sync.Mutex
		pending int // tasks that wait or run
		ended   bool
	}
	running sync.WaitGroup
}

func newTasks(timeout time.Duration) *tasks {
	t := &tasks{slots: make(chan struct{}, maxTasks), timeout: timeout}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// later runs a task when there is a slot for it. It returns false if too many wait, or the face has
// ended.
func (t *tasks) later(run func(ctx context.Context)) bool {
	return t.runTask(maxTasks+maxWaitingTasks, run)
}

// runTask is later with another limit.
func (t *tasks) runTask(limit int, run func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.mu.ended || t.mu.pending >= limit {
		return false
	}

	t.mu.pending++
	t.running.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		defer cancel()
		t.slots <- struct{}{}
		run(ctx)
		<-t.slots

		t.mu.Lock()
		t.mu.pending--
		t.mu.Unlock()
	})
	return true
}

// end waits for the tasks. When ctx ends it cancels them. No further ones begin.
func (t *tasks) end(ctx context.Context) {
	t.mu.Lock()
	t.mu.ended = true
	t.mu.Unlock()

	defer context.AfterFunc(ctx, t.cancel)()
	t.running.Wait()
	t.cancel()
}
