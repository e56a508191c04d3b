package jetstream

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// New returns a Face that listens once Run has connected it.
func New(c Config) (*Face, error) {
	f, err := newFace(c)
	if err != nil {
		return nil, err
	}

	c.Leaf.Subjects = append(f.domains.subscriptions(c.Group), leaf.Subscription{Subject: f.inbox + ">"})
	c.Leaf.Receive, c.Leaf.Changed, c.Leaf.InterestGone, c.Leaf.InterestFull = f.receive, f.changed, f.interestGone, f.interestFull
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
	f := &Face{config: c, domains: d, slots: make(chan struct{}, maxCalls)}
	f.inbox = f.inboxOf(c.Self)
	f.pending = newOutstanding()
	f.acks = acks{f: f, collected: map[together]*settled{}, delay: ackDelay, most: max(1, c.MaxPending/ackShare)}
	f.cache.streams = map[stream]*cachedConsumers{}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// receive takes a message. It must not wait, because the connection reads nothing meanwhile.
func (f *Face) receive(m *leaf.Message) {
	subject, forwarded := strings.CutPrefix(m.Subject, f.inbox)
	m.Subject = subject
	if len(m.Header) > 0 { // which is for NATS: a request that waits must not keep its memory
		m.Header, m.Payload = nil, bytes.Clone(m.Payload)
	}
	if strings.HasPrefix(m.Subject, ackPrefix) {
		f.ack(m, forwarded)
		return
	}
	if m.Reply != "" && !f.mayReply(m.Reply) {
		f.config.Warn("a request for JetStream was dropped: its reply subject belongs to NATS or to this service", "subject", wire.Shorten(m.Subject))
		return
	}
	switch r, ok := f.domains.parse(m.Subject, m.Payload); {
	case !ok: // the server sends nothing else
	case !forwarded && r.row != nil && r.row.least > 0 && len(r.args) > 0 && f.forward(stream{r.kind, r.args[0]}, m):
	case r.row == nil || r.row.name != countedPull:
		f.call(r, m.Reply)
	case m.Reply == "": // nobody would receive anything
	case r.check() != nil:
		f.noConsumer(m)
	default:
		f.next(r.stream, r.args[0], m)
	}
}

// Run connects, and connects again whenever the connection is lost, until ctx ends. It returns when
// all goroutines of the face have ended.
func (f *Face) Run(ctx context.Context) error {
	err := f.leaf.Run(ctx)
	f.endCalls(ctx)
	return err
}

// Stop makes the face listen no longer, ends the pulls that wait, and answers calls that have
// arrived, until ctx ends. The connection stays until that of Run ends.
func (f *Face) Stop(ctx context.Context) error {
	err := f.leaf.Drain(ctx)

	f.acks.runAll()
	f.endPulls()
	f.endCalls(ctx)
	if errors.Is(err, leaf.ErrOffline) {
		return nil // nothing more comes
	}
	return err
}

// Flush returns when all that had arrived before Stop is answered, and the server has received what was
// sent.
func (f *Face) Flush(ctx context.Context) error {
	for f.busy() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	return f.leaf.Flush(ctx)
}

// endCalls waits for the calls of the API, and cancels them when ctx ends.
func (f *Face) endCalls(ctx context.Context) {
	f.mu.Lock()
	f.mu.ended = true
	f.mu.Unlock()

	defer context.AfterFunc(ctx, f.cancel)()
	f.calls.Wait()
	f.cancel()
}

// Ready returns nil if the face is connected, and otherwise why it is not.
func (f *Face) Ready() error {
	switch s := f.state.Load(); {
	case s != nil && s.Connected:
		return nil
	case s != nil && s.Err != nil:
		return s.Err
	}
	return leaf.ErrOffline
}

// Connected reports whether the face is connected.
func (f *Face) Connected() bool { return f.Ready() == nil }

// Stats returns the counters of the connection.
func (f *Face) Stats() leaf.Stats { return f.leaf.Stats() }

// changed is told what becomes of the connection.
func (f *Face) changed(s leaf.State) {
	f.state.Store(&s)
	if !s.Connected {
		f.dropPulls() // those who asked ask again
	}
	switch {
	case s.Connected:
		f.config.Logger.Info("leaf node connected", "address", s.Address, "server", s.Server, "account", s.Account)
		f.config.Connected()
	case s.Err != nil:
		f.config.Warn("no leaf node connection", "address", s.Address, "error", s.Err)
	}
}

// interestFull is told that NATS has more subscriptions than the connection can note.
func (f *Face) interestFull() {
	f.config.Warn("NATS has more subscriptions than can be noted here: items for JetStream clients that are gone come again after ack_wait only")
}
