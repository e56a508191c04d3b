// Package jetstream lets programs that were written for JetStream's pull consumers use the queues.
//
// # What it does
//
// A queue is a stream whose subject is that of its pushes, in a domain that is named as the prefix of
// the queue's subjects. A pull is a lease that waits, and an acknowledgement that of the lease. So
// everything that holds for leases holds here: fences, old places, limits, dead letters.
//
// Every queue exists, as it does for all other requests: STREAM.INFO of one that nobody has used is
// that of an empty stream, and STREAM.CREATE of what a queue is succeeds without doing anything. A
// queue that was emptied is taken off the list after a while, and a worker that starts the day after
// must not hear that its stream is gone. STREAM.NAMES and STREAM.LIST show the queues of the list.
//
// Each queue has the consumers min and max, a FIFO queue min alone, which begin at that end. Others
// are records beside the settings of the queue.
//
// The face speaks over a leaf node connection (package leaf), because NATS lets no ordinary client
// send a message with JetStream's reply subjects.
//
// # Reading the code
//
// serve.go takes messages, from the table of API calls (calls.go) to what they do (streams.go, consumers.go,
// records.go). pull.go turns a pull into requests of the dispatcher, and deliver.go their results into messages
// for its inbox (inbox.go). ack.go runs acknowledgements. accounts.go counts what consumers have outstanding,
// and ends.go ends pulls from outside. subjects.go takes subjects apart.
package jetstream

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// Face is the JetStream face of a bridge. Its methods may be called by any goroutine.
type Face struct {
	*pulls
	*tasks
	forwarded string // begins the subjects of requests that other bridges have forwarded
	leaf      *leaf.Conn
	cache     consumerCache

	state atomic.Pointer[leaf.State] // nil before the first attempt to connect
}

// New returns a Face that listens once Run has connected it.
func New(c Config) (*Face, error) {
	f, err := newFace(c)
	if err != nil {
		return nil, err
	}

	c.Leaf.Subjects = append(f.domains.subscriptions(c.Group), leaf.Subscription{Subject: f.forwarded + ">"})
	c.Leaf.Receive, c.Leaf.Changed, c.Leaf.InterestGone = f.receive, f.changed, f.interestGone
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
	f := &Face{pulls: newPulls(shared), tasks: newTasks(c.RequestTimeout)}
	f.used = f.touch
	f.forwarded = f.forwardTo(c.Self)
	f.cache.streams = map[stream]cachedConsumers{}
	return f, nil
}

// Run connects, and connects again whenever the connection is lost, until ctx ends. It returns when
// all goroutines of the face have ended.
func (f *Face) Run(ctx context.Context) error {
	err := f.leaf.Run(ctx)
	f.tasks.end(ctx)
	return err
}

// Stop makes the face listen no longer, ends the pulls that wait, and answers calls that have
// arrived, until ctx ends. The connection stays until that of Run ends.
func (f *Face) Stop(ctx context.Context) error {
	err := f.leaf.Drain(ctx)

	f.endPulls()
	f.tasks.end(ctx)
	if errors.Is(err, leaf.ErrOffline) {
		return nil // nothing more comes
	}
	return err
}

// Flush returns when all that had arrived before Stop is answered, and the server has received what was
// sent. Calls must not be concurrent.
func (f *Face) Flush(ctx context.Context) error {
	for f.requests.Load() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-f.idle:
		}
	}
	return f.leaf.Flush(ctx)
}

// Ready returns nil if the face is connected and gets requests, and otherwise why not.
func (f *Face) Ready() error {
	switch s := f.state.Load(); {
	case s != nil && s.Connected:
		return f.domains.taken(s.Domain)
	case s != nil && s.Err != nil:
		return s.Err
	}
	return leaf.ErrOffline
}

// OwnersChanged says that Config.Owner has changed. It does not wait.
func (f *Face) OwnersChanged() {
	f.behind(math.MaxInt, func(context.Context) { f.endForeign() })
}

// changed is told what becomes of the connection.
func (f *Face) changed(s leaf.State) {
	f.state.Store(&s)
	if !s.Connected {
		f.dropPulls() // their clients ask again
	}
	if err := f.Ready(); s.Connected && err != nil {
		f.config.Logger.Error("JetStream's programs are not served", "reason", err)
	}
	switch {
	case s.Connected:
		f.config.Logger.Info("leaf node connected", "address", s.Address, "server", s.Server, "account", s.Account)
	case s.Err != nil:
		f.config.Warn("no leaf node connection", "address", s.Address, "error", s.Err)
	}
}
