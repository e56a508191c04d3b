package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// natsPatience is how long each exchange with NATS may take during a shutdown; a
// quarter of the shutdown timeout if that is less.
const natsPatience = 2 * time.Second

// shutdown ends what Run started, in the order in which each step depends on the one
// before, within the shutdown timeout. The reason is failure, or that ctx has ended.
// It returns failure and what was left undone.
func (b *Bridge) shutdown(ctx context.Context, failure error, running *running, web *http.Server, stop context.CancelFunc) error {
	// From here on /readyz answers 503, so that nobody is sent here any more.
	b.stopping.Store(true)
	report := b.beginReport(ctx, failure)

	// The last exchange with NATS has its share of the time, the requests have the rest.
	// When all of it is over nothing waits for NATS any more, whatever it does.
	timeout := b.options.ShutdownTimeout
	total, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(total, b.line.cut)()
	patience := min(natsPatience, timeout/4)
	requests, cancel := context.WithTimeout(total, timeout-patience)
	defer cancel()
	var late sync.WaitGroup // calls that NATS kept waiting for longer than that

	// While NATS is away nothing comes or goes, and the attempts to reach it would only
	// keep the steps below waiting.
	if !b.online.Load() {
		b.goOffline()
	}

	// Whatever decides if this bridge serves must not begin anything more.
	running.stopTaking()
	if within(total, patience, &late, func(context.Context) error { running.participating.Wait(); return nil }) != nil {
		b.goOffline()
		running.participating.Wait()
	}

	// Other bridges forward no more pops to this one.
	if b.router != nil {
		_ = within(total, patience, &late, func(ctx context.Context) error { b.router.leave(ctx); return nil })
	}

	// No new requests, and those that NATS had delivered reach their lanes. If it does
	// not answer, nobody knows of more.
	delivery, cancel := context.WithCancel(requests)
	defer cancel()
	silence := within(total, patience, &late, b.unsubscribe)
	if silence != nil {
		cancel()
	}
	report.unseen = b.awaitHandlers(requests)
	if b.router != nil {
		silence = cmp.Or(silence, b.router.direct.end(delivery))
	}
	if errors.Is(silence, nats.ErrDisconnected) {
		b.goOffline()
	}
	if silence != nil && b.online.Load() {
		b.options.Logger.Warn("NATS does not answer: the shutdown goes on without it", "error", silence)
	}

	// A reply that waits for a connection would be lost in the end. Now it is refused,
	// and so what a pop took is pushed again.
	if !b.online.Load() {
		b.disconnect()
		b.options.Logger.Warn("NATS is away: the shutdown goes on without it")
	}

	// The lanes end when they have run and answered all they have. When the time is up
	// the batches under way are given up and the rest is answered 503, which takes no
	// store and so no time.
	b.dispatcher.Close()
	if !waitFor(requests, &running.dispatcher) {
		report.undone, _ = b.dispatcher.Pending()
	}
	stop()
	running.dispatcher.Wait()

	// Pops that are with other bridges are theirs to answer, but if one of them
	// dies nobody else is left to say so.
	if b.router != nil {
		b.router.end(delivery)
	}
	_ = within(total, patience, &late, func(context.Context) error { b.members.leave(); return nil })

	// All replies are written. They have arrived when NATS answers once more.
	report.abandoned = b.outbox.abandoned()
	if report.sent() > 0 {
		report.unconfirmed = nats.ErrDisconnected
		if b.online.Load() {
			report.unconfirmed = within(total, patience, &late, b.nc.FlushWithContext)
		}
	}
	b.disconnect()
	late.Wait()

	// HTTP last: until here it could be asked how far this is.
	if web != nil {
		_ = web.Close() // nothing depends on an answer that was cut off
	}
	running.others.Wait()
	if b.router != nil {
		// An attempt to connect ends by itself, and nothing depends on it.
		_ = waitFor(total, &b.router.direct.connecting)
	}
	return report.end()
}

// goOffline gives NATS up: from here on replies are refused instead of kept for a
// connection that will not come.
func (b *Bridge) goOffline() {
	b.online.Store(false)
	b.line.cut()
}

// within calls f and returns its error, or that of its context if NATS keeps f waiting
// for longer than patience. Then f goes on in late.
func within(ctx context.Context, patience time.Duration, late *sync.WaitGroup, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	late.Go(func() { ended <- f(ctx) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitFor waits for the group, and returns false if ctx ended first.
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

// unsubscribe ends the subscriptions to requests. When it returns nil all that NATS will ever
// deliver has arrived.
func (b *Bridge) unsubscribe(ctx context.Context) error {
	b.serving.mu.Lock()
	ending := b.serving.subscriptions
	b.serving.dropped += droppedBy(ending) // which they forget when they end
	b.serving.subscriptions, b.serving.ending = nil, append(b.serving.ending, ending...)
	b.serving.mu.Unlock()
	for _, s := range ending {
		_ = s.Drain() // fails if it ended with its connection
	}
	if b.nc == nil || !b.nc.IsConnected() {
		return nats.ErrDisconnected
	}
	return b.nc.FlushWithContext(ctx)
}

// awaitHandlers waits until what had arrived went through the handlers, which do not
// wait themselves unless NATS takes no replies. It returns the number of messages that
// did not when ctx ended.
func (b *Bridge) awaitHandlers(ctx context.Context) (unseen int) {
	b.serving.mu.Lock()
	ending := b.serving.ending
	b.serving.mu.Unlock()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		unseen = 0
		for _, s := range ending {
			if n, _, err := s.Pending(); err == nil { // else it has ended
				unseen += n
			}
		}
		if unseen == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return unseen
		case <-again.C:
		}
	}
}

// disconnect closes the connection, after what is written was handed to the network.
func (b *Bridge) disconnect() {
	if b.nc != nil {
		b.nc.Close()
		<-b.closed
	}
}

// shutdownReport is what a shutdown has to tell.
type shutdownReport struct {
	b       *Bridge
	failure error
	began   time.Time
	// At the beginning.
	answeredBefore, unsentBefore int64

	unseen      int   // messages that did not get to a lane
	undone      int64 // requests that the lanes did not do in time
	abandoned   int   // replies of batches from before that NATS did not confirm
	unconfirmed error // why it is not known whether the replies have arrived
}

func (b *Bridge) beginReport(ctx context.Context, failure error) *shutdownReport {
	reason := failure
	if reason == nil {
		reason = context.Cause(ctx)
	}
	pending, _ := b.dispatcher.Pending()
	b.options.Logger.Info("shutting down", "reason", reason, "pending", pending, "timeout", b.options.ShutdownTimeout)
	return &shutdownReport{b: b, failure: failure, began: time.Now(), answeredBefore: b.endpoints.answered(), unsentBefore: b.unsent.Load()}
}

// answered is the number of requests that were answered since the beginning.
func (r *shutdownReport) answered() int64 { return r.b.endpoints.answered() - r.answeredBefore }

// sent is the number of those replies that were handed to NATS.
func (r *shutdownReport) sent() int64 {
	return max(0, r.answered()-r.undone-(r.b.unsent.Load()-r.unsentBefore))
}

// end logs how it went, and returns the failure and what was left undone.
func (r *shutdownReport) end() error {
	unsent := r.b.unsent.Load() - r.unsentBefore
	left := int64(r.unseen) + r.undone + unsent
	answered := r.sent()
	problems := []error{r.failure}
	if r.unseen > 0 {
		problems = append(problems, fmt.Errorf("bridge: %d messages from NATS were not looked at in time", r.unseen))
	}
	if r.undone > 0 {
		problems = append(problems, fmt.Errorf("bridge: %d requests were not done in time", r.undone))
	}
	if unsent > 0 {
		problems = append(problems, fmt.Errorf("bridge: %d replies could not be sent: NATS is away", unsent))
	}
	if r.unconfirmed != nil {
		problems = append(problems, fmt.Errorf("bridge: NATS did not confirm that it has the replies to %d requests: %w", answered, r.unconfirmed))
	}
	level := slog.LevelInfo
	if left > 0 || r.abandoned > 0 || r.unconfirmed != nil {
		level = slog.LevelWarn
	}
	r.b.options.Logger.Log(context.Background(), level, "no more requests are served",
		"answered", answered, "left", left, "unconfirmed", r.abandoned, "took", time.Since(r.began).Round(time.Millisecond))
	return errors.Join(problems...)
}
