package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// serve serves until ctx ends, once the store has answered and while no other bridge conflicts with
// this one. At other times it answers service discovery alone, which says why it does not serve:
// NATS delivers requests to other bridges or answers "no responders". It calls opened with the id
// of the store once that has answered. The error says why this bridge cannot serve at all.
func (b *Bridge) serve(ctx context.Context, opened func(store string)) error {
	if err := b.listen(b.discoverable); err != nil {
		return err
	}

	store, err := b.openStore(ctx)
	if err == nil {
		opened(store.ID)
		b.notServing("starting: looking for other bridges")
		err = b.peers.Members.Join(ctx, store.ID)
	}

	if err == nil {
		err = b.startServing(ctx, store.ID)
	}

	ticker := time.NewTicker(peers.AnnounceEvery)
	defer ticker.Stop()
	again := time.NewTicker(deniedRetry)
	defer again.Stop()

	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-b.peers.Members.News():
		case <-ticker.C:
			b.peers.Members.Beat()
		case <-again.C:
			b.askAgain()
		}

		err = b.yield(ctx, store.ID)
	}

	if ctx.Err() != nil {
		return nil
	}

	return err
}

// yield stops serving while another bridge should serve instead, and starts again once that one is
// gone.
func (b *Bridge) yield(ctx context.Context, store string) error {
	rival, serving := b.peers.Members.Rival(), b.peers.Members.Serving()
	switch {
	case rival != "" && serving:
		b.options.Logger.Error("another pqbridge serves the same subjects; this one stops "+
			"until it is gone", "other", rival)
		b.notServing("another pqbridge serves the same subjects: " + rival)
		b.peers.Members.Enter(peers.Blocked)

		ctx, cancel := context.WithTimeout(ctx, b.options.ShutdownTimeout)
		defer cancel()
		if err := b.stopServing(ctx); err != nil {
			b.options.Logger.Warn("not all subscriptions ended in time", "error", err)
		}
		return b.listen(b.discoverable)
	case rival == "" && !serving:
		b.options.Logger.Info("the other pqbridge is gone; serving again")
		return b.startServing(ctx, store)
	}

	return nil
}

// notReady returns why this bridge is not ready. It asks NATS and the store at once.
func (b *Bridge) notReady(ctx context.Context) (reasons []error) {
	store := make(chan error, 1)
	go func() {
		err := b.dispatcher.StoreReady(ctx)
		if err != nil {
			err = fmt.Errorf("store: %w", err)
		}
		store <- err
	}()

	for _, err := range []error{b.natsReady(ctx), <-store, b.servingReady(), b.jetStream.ready()} {
		if err != nil {
			reasons = append(reasons, err)
		}
	}

	if b.stopping.Load() {
		reasons = append(reasons, errors.New("shutting down"))
	}

	return reasons
}

// natsReady makes a round trip to the server.
func (b *Bridge) natsReady(ctx context.Context) error {
	if !b.online.Load() {
		if why := b.away.Load(); why != nil {
			return fmt.Errorf("nats: not connected: %s", *why)
		}
		return errors.New("nats: not connected")
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: no answer: %w", err)
	}
	return b.denials.err()
}

// openTimeout bounds one attempt to open the store.
const openTimeout = 5 * time.Second

// openStore reads the identity of the store. It retries until the store answers.
func (b *Bridge) openStore(ctx context.Context) (fdbpq.Store, error) {
	var backoff kv.Backoff
	how := fdbpq.StoreOptions{Exclusive: b.options.Exclusive}
	for {
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		store, err := fdbpq.OpenStore(attempt, b.options.DB, b.options.Keyspace, how)
		cancel()

		if err == nil {
			if store.New {
				b.options.Logger.Info("a new store, or new key prefixes in it: there are no "+
					"queues yet", "store", store.ID)
			}
			return store, nil
		}
		if isFinal(err) {
			return store, fmt.Errorf("bridge: %w", err)
		}

		if ctx.Err() == nil {
			b.notServing("starting: the store cannot be opened yet: " + err.Error())
			b.quiet.warn("the store cannot be opened yet; trying again", "error", err)
		}
		if err := backoff.Wait(ctx); err != nil {
			return store, err
		}
	}
}

// isFinal reports whether opening a store failed for good.
func isFinal(err error) bool {
	var mismatch *fdbpq.MismatchError
	return errors.As(err, &mismatch) || errors.Is(err, fdbpq.ErrStoreVersion) ||
		errors.Is(err, fdbpq.ErrUnfinished) || errors.Is(err, fdbpq.ErrCorrupt) ||
		errors.Is(err, kv.ErrClosed)
}

// startServing subscribes to requests.
func (b *Bridge) startServing(ctx context.Context, store string) error {
	realm := append([]string{store, b.options.QueueGroup}, b.options.Grammar.Wildcards()...)
	if err := b.peers.Router.Join(strings.Join(realm, " ")); err != nil {
		return err
	}

	if err := b.listen(b.subscribe); err != nil {
		return err
	}

	if err := b.jetStream.start(ctx, store); err != nil {
		return err
	}

	b.peers.Members.Enter(peers.Serving)
	if err := b.flush(ctx); err == nil { // else NATS gets the subscriptions on reconnect
		b.options.Logger.Info("taking requests", "subjects", b.options.Grammar.Wildcards())
	}

	b.idle.Store(nil)
	return nil
}

// flush returns when NATS has received everything sent before.
func (b *Bridge) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, natsPatience)
	defer cancel()
	return b.nc.FlushWithContext(ctx)
}

// listen notes the subscriptions that a function has made, also if it returns an error.
func (b *Bridge) listen(subscribe func() ([]*nats.Subscription, error)) error {
	made, err := subscribe()
	b.serving.mu.Lock()
	defer b.serving.mu.Unlock()
	b.serving.subscriptions = append(b.serving.subscriptions, made...)
	return err
}

// subscribe makes the subscriptions to requests. After an error it returns those made
// before.
func (b *Bridge) subscribe() (made []*nats.Subscription, err error) {
	for _, subject := range b.options.Grammar.Wildcards() {
		subscription, err := b.subscribeTo(subject)
		if err != nil {
			return made, err
		}
		made = append(made, subscription)
	}

	return made, nil
}

// stopServing ends what startServing began. When it returns, no more requests arrive
// from NATS or from peers, and all that have arrived are in their lanes.
func (b *Bridge) stopServing(ctx context.Context) error {
	b.peers.Router.Leave(ctx)
	err := errors.Join(b.unsubscribe(ctx), b.jetStream.leave(ctx), b.jetStream.end(ctx))
	if n := b.awaitHandlers(ctx); n > 0 {
		err = errors.Join(err, fmt.Errorf("bridge: %s: %d", unseen, n))
	}
	return err
}

// askAgain subscribes again to what NATS denied. If it still does, it says so again.
func (b *Bridge) askAgain() {
	if !b.online.Load() {
		return // the next connection asks
	}

	denied, permitted := b.denials.retry()
	if len(permitted) > 0 {
		b.options.Logger.Info("NATS permits requests again", "subjects", permitted)
	}

	for _, subject := range denied {
		if err := b.requestAgain(subject); err != nil {
			b.denials.add(subject, err.Error())
		}
	}

	b.outbox.ListenAgain()
}

// requestAgain replaces the subscription to requests on a subject. Messages that the old one has
// received are still handled.
func (b *Bridge) requestAgain(subject string) error {
	again, err := b.subscribeTo(subject)
	if err != nil {
		return err
	}

	b.serving.mu.Lock()
	old := again // ended at once if this bridge has stopped serving
	for i, s := range b.serving.subscriptions {
		if s.Subject == subject {
			old, b.serving.subscriptions[i] = s, again
		}
	}

	ended := []*nats.Subscription{old}
	b.endLocked(ended)
	b.serving.mu.Unlock()

	wire.Drain(ended)
	return nil
}
