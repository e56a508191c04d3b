package bridge

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/outbox"
)

// newOutbox gives package outbox what it needs of the bridge.
func (b *Bridge) newOutbox() *outbox.Outbox {
	return outbox.New(outbox.Config{
		ID:         b.id,
		Conn:       func() *nats.Conn { return b.nc },
		Dispatcher: b.dispatcher,
		MaxBytes:   b.options.maxUnconfirmed(),
		Patience:   min(natsPatience, b.options.ShutdownTimeout/4),
		Stopping:   b.stopping.Load,
		Failed:     b.replyFailed,
		Stray:      newHandler(b).refuseAck,
		Returned:   func(why outbox.Reason) { b.metrics.givenBack[why].Inc() },
		Lost:       func(items int) { b.metrics.lostItems.Add(float64(items)) },
		Logger:     b.options.Logger,
		Warn:       b.quiet.replies.warn,
		WarnLost:   b.quiet.lost.warn,
	})
}

// replyFailed counts a reply that NATS did not accept.
func (b *Bridge) replyFailed(err error) {
	b.metrics.replyFailures.Inc()
	if b.stopping.Load() {
		b.unsent.Add(1)
	}
	b.quiet.replies.warn("a reply could not be sent", "error", err)
}
