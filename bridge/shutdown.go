package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// natsPatience is how long each exchange with NATS may take during a shutdown, or a quarter of the
// shutdown timeout if that is less.
const natsPatience = 2 * time.Second

// shutdown ends everything that Run started, within the shutdown timeout. Each step depends on the
// steps before it. The reason is cause or, if that is nil, the end of ctx. The error joins cause
// and all that could not be finished.
func (b *Bridge) shutdown(ctx context.Context, cause error, started *running) error {
	// From here on /readyz answers 503, so that no more traffic is sent here.
	b.stopping.Store(true)
	summary := &shutdownSummary{
		b: b, cause: cause, began: time.Now(), before: b.answered(),
	}

	timeout := b.options.ShutdownTimeout
	reason := cmp.Or(cause, context.Cause(ctx))
	pending, _ := b.dispatcher.Pending()
	b.options.Logger.Info("shutting down", "reason", reason, "pending", pending, "timeout", timeout)

	// Once the timeout is over, nothing waits for NATS. Requests have all of that time except for
	// what the last exchange with NATS may take.
	total, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(total, b.cable.cut)()
	toNATS := patience{total: total, each: min(natsPatience, timeout/4)}
	requests, cancel := context.WithTimeout(total, timeout-toNATS.each)
	defer cancel()

	// While NATS is away, nothing arrives and nothing can be sent, and attempts to connect would
	// only delay the steps below.
	if !b.online.Load() {
		b.goOffline()
	}

	// No more decisions about whether to serve.
	started.stopServing()
	if toNATS.call(func(context.Context) error { started.serving.Wait(); return nil }) != nil {
		b.goOffline()
		started.serving.Wait()
	}

	silence := b.endDelivery(requests, &toNATS, summary)
	summary.leaf = toNATS.call(b.jetStream.leave)
	b.endRequests(requests, started, summary)
	summary.leaf = cmp.Or(summary.leaf, toNATS.call(b.jetStream.end))

	// Peers answer the pops forwarded to them, but only this bridge can answer for a peer that
	// dies.
	forwarded, cancel := context.WithCancel(requests)
	defer cancel()
	if silence != nil {
		cancel() // their reports cannot arrive
	}

	b.peers.Router.End(forwarded)
	_ = toNATS.call(func(context.Context) error { b.peers.Members.Leave(); return nil })

	b.confirmReplies(&toNATS, summary)
	b.disconnect()
	b.cable.cut() // nothing is left to send, so nobody has to wait for NATS
	toNATS.late.Wait()

	// HTTP last: until here it can be asked about the shutdown.
	b.web.Stop()
	started.others.Wait()
	b.handler.Audit.EndWindow()
	return summary.end()
}

// endDelivery returns when no more requests arrive. The error says why that is unknown: if NATS
// does not answer, nobody can know whether more are on their way.
func (b *Bridge) endDelivery(
	requests context.Context, toNATS *patience, summary *shutdownSummary,
) (silence error) {
	// Peers first: until they know, they forward pops that NATS delivers to them.
	_ = toNATS.call(func(ctx context.Context) error { b.peers.Router.Leave(ctx); return nil })
	silence = toNATS.call(b.unsubscribe)

	summary.unseen = b.awaitHandlers(requests)
	if errors.Is(silence, nats.ErrDisconnected) {
		b.goOffline()
	}

	if silence != nil && b.online.Load() {
		b.options.Logger.Warn("NATS does not answer: the shutdown goes on without it",
			"error", silence)
	}

	// A reply that waits in the client for a connection would be lost in the end. Once the
	// connection is closed, the client rejects the reply instead, and a popped item goes back.
	if !b.online.Load() {
		b.disconnect()
		b.options.Logger.Warn("NATS is unreachable: the shutdown goes on without it")
	}

	return silence
}

// endRequests ends the lanes once they have answered all their requests, and the Inspector. When
// the time for requests is up, it cancels the batches in flight. The rest is answered 503, which
// takes no time because it does not need the store.
func (b *Bridge) endRequests(requests context.Context, started *running, summary *shutdownSummary) {
	b.dispatcher.Close()
	b.results.Close()
	if !waitFor(requests, &started.dispatcher) {
		summary.undone, _ = b.dispatcher.Pending()
	}

	b.handler.Inspector.End(requests)

	started.stop()
	started.dispatcher.Wait()
	b.outbox.EndRestores()

	// Nothing is counted any more. A store that does not answer must not hold up the replies.
	saving, cancel := context.WithTimeout(requests, natsPatience)
	defer cancel()
	b.dispatcher.EndTraffic(saving)
}

// confirmReplies waits, once all replies are written, until NATS answers a PING: then they have
// arrived.
func (b *Bridge) confirmReplies(toNATS *patience, summary *shutdownSummary) {
	b.outbox.End()
	summary.abandoned = b.outbox.Abandoned()
	if summary.sent() == 0 {
		return
	}

	summary.unconfirmed = nats.ErrDisconnected
	if b.online.Load() {
		summary.unconfirmed = toNATS.call(b.nc.FlushWithContext)
	}
}

// goOffline stops trying to reach NATS. From here on the client rejects replies instead of keeping
// them for a connection that will not come.
func (b *Bridge) goOffline() {
	b.online.Store(false)
	b.cable.cut()
}

// patience limits each exchange with NATS, and all of them together.
type patience struct {
	total context.Context
	each  time.Duration
	late  sync.WaitGroup // calls that NATS has blocked for longer
}

// call calls f and returns its error. If NATS blocks f for too long, call returns the error of the
// context, and f continues in late.
func (p *patience) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(p.total, p.each)
	defer cancel()

	ended := make(chan error, 1)
	p.late.Go(func() { ended <- f(ctx) })

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitFor waits for the group. If ctx ends first it returns false, and leaves a goroutine that ends
// with the group.
func waitFor(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()

	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// unsubscribe ends the subscriptions to requests. When it returns nil, NATS has delivered
// everything that it ever will.
func (b *Bridge) unsubscribe(ctx context.Context) error {
	b.serving.mu.Lock()
	ending := b.serving.subscriptions
	b.endLocked(ending)
	b.serving.subscriptions = nil
	b.serving.mu.Unlock()

	wire.Drain(ending)
	if b.nc == nil || !b.nc.IsConnected() {
		return nats.ErrDisconnected
	}

	return b.nc.FlushWithContext(ctx)
}

// endLocked notes subscriptions that the caller will drain, without the lock, because NATS may
// block.
func (b *Bridge) endLocked(ending []*nats.Subscription) {
	b.serving.dropped += wire.Dropped(ending) // a subscription forgets the number when it ends

	hasEnded := func(s *nats.Subscription) bool { return !s.IsValid() }
	b.serving.ending = append(slices.DeleteFunc(b.serving.ending, hasEnded), ending...)
}

// awaitHandlers returns when the handlers have seen every message delivered. They do not block,
// unless NATS accepts no replies. If ctx ends first, it returns the number of messages not seen.
func (b *Bridge) awaitHandlers(ctx context.Context) (unseen int) {
	b.serving.mu.Lock()
	ending := b.serving.ending
	b.serving.mu.Unlock()
	return wire.Await(ctx, ending)
}

// disconnect closes the connection, which flushes it.
func (b *Bridge) disconnect() {
	if b.nc != nil {
		b.nc.Close()
		<-b.closed
	}
}

// shutdownSummary describes a shutdown.
type shutdownSummary struct {
	b      *Bridge
	cause  error
	began  time.Time
	before int64 // requests answered until then

	unseen      int   // messages that did not reach a lane
	undone      int64 // requests that the lanes did not finish in time
	abandoned   int   // replies sent before the shutdown that NATS did not confirm
	unconfirmed error // why it is unknown whether the replies have arrived
	leaf        error // the same for the leaf node connection
}

// sent returns how many requests were answered during the shutdown, with replies that NATS
// accepted.
func (s *shutdownSummary) sent() int64 {
	return max(0, s.b.answered()-s.before-s.undone-s.b.unsent.Load())
}

// end logs the summary. It returns the cause joined with all that could not be finished.
func (s *shutdownSummary) end() error {
	answered, left := s.sent(), int64(0)
	problems := []error{s.cause}
	for _, of := range []struct {
		count int64
		what  string
	}{
		{int64(s.unseen), unseen},
		{s.undone, "requests not finished in time"},
		{s.b.unsent.Load(), "replies not sent because NATS is unreachable"},
	} {
		if left += of.count; of.count > 0 {
			problems = append(problems, fmt.Errorf("bridge: %s: %d", of.what, of.count))
		}
	}

	if s.unconfirmed != nil {
		problems = append(problems, fmt.Errorf("bridge: NATS did not confirm that it has the "+
			"replies to %d requests: %w", answered, s.unconfirmed))
	}

	if s.leaf != nil {
		problems = append(problems, fmt.Errorf("bridge: NATS did not confirm what was sent "+
			"as a leaf node: %w", s.leaf))
	}

	level := slog.LevelInfo
	if left > 0 || s.abandoned > 0 || s.unconfirmed != nil {
		level = slog.LevelWarn
	}

	s.b.options.Logger.Log(context.Background(), level, "no more requests are served",
		"answered", answered, "left", left, "unconfirmed", s.abandoned,
		"took", time.Since(s.began).Round(time.Millisecond))
	return errors.Join(problems...)
}

const unseen = "messages from NATS not handled in time"

// running has everything that Run has started.
type running struct {
	dispatcher  sync.WaitGroup
	serving     sync.WaitGroup // serve
	stopServing func()         // ends serve
	others      sync.WaitGroup // end with stop
	stop        func()         // cancels the batches in flight and ends others
	failed      chan error     // why one of them ended early
}
