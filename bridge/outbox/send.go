package outbox

import (
	"math"
	"math/rand/v2"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// Send sends a reply that is safe to lose. It counts and logs the error itself.
func (o *Outbox) Send(m *nats.Msg) {
	o.mu.Lock()
	err := o.config.Conn().PublishMsg(m)
	if err == nil {
		o.addReplyLocked(m.Subject)
	}
	o.mu.Unlock()

	if err != nil {
		o.config.Failed(err)
	}
}

// SendData sends a reply with that payload. An error means that NATS did not accept it.
func (o *Outbox) SendData(to string, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.config.Conn().Publish(to, data)
	if err == nil {
		o.addReplyLocked(to)
	}
	return err
}

// SendItem sends a reply that may carry items, or keep its request waiting. It makes m.Reply unless
// there is one. An error means that NATS did not accept the reply.
func (o *Outbox) SendItem(m *nats.Msg, c Content) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := c.Queue != nil || c.Waits != dispatch.WaitHandle{}

	// A subject of its own makes NATS say if nobody receives the reply. Clients of other accounts
	// get items without one.
	var random uint64
	if kept && m.Reply == "" && !o.mu.ended && !o.deaf.Load() && !wire.Imported(m.Subject) {
		random = 1 + rand.Uint64N(math.MaxUint64)
		m.Reply = o.goneSubjectLocked(random)
	}

	if err := o.config.Conn().PublishMsg(m); err != nil {
		return err
	}

	if kept {
		o.addItemLocked(sentItem{subject: m.Subject, Content: c, random: random})
	} else {
		o.addReplyLocked(m.Subject)
	}
	return nil
}
