package outbox

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// This file has the messages that reach their client through another bridge, which has forwarded
// the request. Only that bridge knows whether the client still waits, so a round proves nothing of
// them. They stay until it says what became of them, or NATS says that it is gone. Their reply
// subjects, which end in a random part alone, say which message is meant.

const (
	// relayPatience is how long the other bridge usually takes at most. After that the items no
	// longer count as unconfirmed, because the bridge seems to be gone.
	relayPatience = 2 * time.Second
	// relayMemory is for how long a bridge that stood still can say that nobody received an item.
	// By then NATS has closed its connection.
	relayMemory = 10 * time.Minute
)

// sendRelayedLocked sends a message through another bridge.
func (o *Outbox) sendRelayedLocked(m *nats.Msg, c Content) error {
	m.Reply = o.inbox + strconv.FormatUint(rand.Uint64(), 36)
	err := o.config.Conn().PublishMsg(m)
	if err == nil && !o.mu.ended {
		o.addRelayedLocked(m.Reply, m.Subject, c)
	}
	return err
}

// addRelayedLocked adds a message that was sent through another bridge with that reply subject.
func (o *Outbox) addRelayedLocked(token, subject string, c Content) {
	r := &relayed{Content: c, subject: subject}
	r.bytes = c.size() + 2*replyOverhead + len(token) + len(subject)
	r.timer = time.AfterFunc(relayPatience, func() { o.overdue(token) })
	o.mu.relayed[token] = r

	o.config.Dispatcher.Hold()
	o.config.Dispatcher.AddUnconfirmed(c.Queue, r.bytes)
	o.mu.bytes += r.bytes
	o.limitLocked()
}

// overdue keeps a message for a bridge that may have stood still, as long as there is room for it.
func (o *Outbox) overdue(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.mu.relayed[token]
	if r == nil {
		return
	}

	o.releaseLocked(r)
	r.overdue = o.mu.overdue.PushBack(token)
	r.timer = time.AfterFunc(relayMemory, func() { o.Settle("", token) })
	o.limitLocked()
}

// Settle ends a message that went through another bridge: with an empty fate somebody received it.
func (o *Outbox) Settle(fate, token string) {
	o.mu.Lock()
	r := o.forgetLocked(token)
	o.mu.Unlock()
	if r == nil {
		return
	}

	if fate != "" {
		o.ReturnAll(&r.Content, Reason(fate))
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseLocked(r)
}

// SettleRest is Settle for all messages to a subject of another bridge, except for these.
func (o *Outbox) SettleRest(fate, subject string, tokens []string) {
	var rest []string
	o.mu.Lock()
	for token, r := range o.mu.relayed {
		if r.subject == subject && !slices.Contains(tokens, token) {
			rest = append(rest, token)
		}
	}
	o.mu.Unlock()

	for _, token := range rest {
		o.Settle(fate, token)
	}
}

// forgetLocked removes a message and returns it, nil if it is not there.
func (o *Outbox) forgetLocked(token string) *relayed {
	r := o.mu.relayed[token]
	if r == nil {
		return nil
	}

	delete(o.mu.relayed, token)
	r.timer.Stop()
	o.mu.bytes -= r.bytes
	if r.overdue != nil {
		o.mu.overdue.Remove(r.overdue)
	}
	return r
}

// releaseLocked lets a message hold up the dispatcher no longer.
func (o *Outbox) releaseLocked(r *relayed) {
	if !r.released {
		o.config.Dispatcher.AddUnconfirmed(r.Queue, -r.bytes)
		o.config.Dispatcher.Release()
		r.released = true
	}
}
