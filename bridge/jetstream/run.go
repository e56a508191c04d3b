package jetstream

import (
	"context"
	"errors"
	"math"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

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
	f := &Face{
		tasks: &tasks{slots: make(chan struct{}, maxTasks), timeout: c.RequestTimeout},
		pulls: &pulls{
			outstanding: outstanding{core: shared, byConsumer: map[consumerKey]*ackPending{}},
			inboxes:     map[string]map[*pull]bool{},
		},
	}
	f.tasks.ctx, f.tasks.cancel = context.WithCancel(context.Background())
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
