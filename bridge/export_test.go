package bridge

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Dispatcher returns the dispatcher of b.
func (b *Bridge) Dispatcher() *dispatch.Dispatcher { return b.dispatcher }

// AskAgain asks NATS again for what it denied, as a bridge does from time to time.
func (b *Bridge) AskAgain() { b.askAgain() }

// RestartServing ends the subscriptions to requests and makes them again, as a bridge
// does that yields to another.
func (b *Bridge) RestartServing(ctx context.Context) error {
	if err := b.stopServing(ctx); err != nil {
		return err
	}
	return b.startServing(ctx, b.peers.Members.Store())
}

// Subscriptions returns the subscriptions to requests, and the former ones that the
// bridge still knows.
func (b *Bridge) Subscriptions() (serving, ending []*nats.Subscription) {
	b.serving.mu.Lock()
	defer b.serving.mu.Unlock()
	return b.serving.subscriptions, b.serving.ending
}

const (
	IntakeMessages = intakeMessages
	IntakeBytes    = intakeBytes
)

// MostBacklog returns the largest backlog that a subscription's callback ever had.
func (b *Bridge) MostBacklog() (messages, bytes int) {
	for _, s := range b.serving.subscriptions {
		if m, n, err := s.MaxPending(); err == nil {
			messages, bytes = max(messages, m), max(bytes, n)
		}
	}
	return messages, bytes
}

// Unconfirmed reports whether NATS may still deny replies that were sent.
func (b *Bridge) Unconfirmed() bool { return b.outbox.Unconfirmed() }

// Batches is how many batches the lanes have run.
func (b *Bridge) Batches() int64 { return b.handler.Inspector.Batches.Load() }
