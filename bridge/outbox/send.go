package outbox

import (
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// Send sends a reply that is safe to lose. It counts and logs the error itself.
func (o *Outbox) Send(m *nats.Msg) {
	if err := o.SendItem(m, Content{}); err != nil {
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

// SendItem sends a reply that may carry items, or leave its request waiting. It makes m.Reply
// unless there is one. An error means that NATS did not accept the reply.
func (o *Outbox) SendItem(m *nats.Msg, c Content) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	confirmable := c.Queue != nil || c.Waits != dispatch.WaitHandle{} || c.Relayed != ""
	if confirmable && o.config.Relays(m.Subject) {
		return o.sendRelayedLocked(m, c)
	}

	// A reply subject of its own makes NATS say if nobody receives the reply. Clients of other
	// accounts get items without one.
	var random uint64
	makeReply := confirmable && m.Reply == "" && !wire.Imported(m.Subject)
	if makeReply && !o.mu.ended && !o.goneDenied.Load() {
		random = 1 + rand.Uint64N(math.MaxUint64)
		m.Reply = o.goneSubjectLocked(random)
	}

	// The lock is held, so the replies are added in the order in which NATS gets them.
	if err := o.config.Conn().PublishMsg(m); err != nil {
		return err
	}

	if o.mu.ended && c.Relayed != "" {
		o.config.Tell("", c.Relayed) // no round will tell
	}

	if confirmable {
		o.addItemLocked(sentItem{subject: m.Subject, Content: c, random: random})
	} else {
		o.addReplyLocked(m.Subject)
	}

	return nil
}

// goneSubjectLocked returns the reply subject of the item that will be remembered next.
func (o *Outbox) goneSubjectLocked(random uint64) string {
	var room [96]byte // longer than most
	subject := strconv.AppendUint(append(room[:0], o.inbox...), o.mu.numbered, 36)
	return string(strconv.AppendUint(append(subject, '-'), random, 36))
}

// addItemLocked adds a reply with items, until it is confirmed.
func (o *Outbox) addItemLocked(sent sentItem) {
	c := o.openLocked()
	if c == nil {
		return
	}

	// The items of a chunk have consecutive numbers, so hearGone finds one by its number.
	if len(c.items) == 0 {
		c.first = o.mu.numbered
	}

	sent.bytes = sent.size()
	c.items = append(c.items, sent)
	o.mu.numbered++
	o.config.Dispatcher.AddUnconfirmed(sent.Queue, sent.bytes)
	o.grewLocked(c, sent.bytes, 2*replyOverhead+len(sent.subject))
}

// addReplyLocked adds the subject of a reply without items: a denial may be about it.
func (o *Outbox) addReplyLocked(subject string) {
	if c := o.openLocked(); c != nil {
		c.replies = append(c.replies, subject)
		o.grewLocked(c, 0, replyOverhead+len(subject))
	}
}

// openLocked returns the chunk that replies are added to, nil after End.
func (o *Outbox) openLocked() *chunk {
	if o.mu.ended {
		return nil
	}

	// A PING ends a chunk: the replies before and after it are confirmed by different rounds.
	if n := len(o.mu.chunks); n > 0 {
		if c := o.mu.chunks[n-1]; !c.asked && c.bytes < chunkBytes {
			return c
		}
	}

	c := o.mu.spare
	if o.mu.spare = nil; c == nil {
		c = &chunk{}
	}

	o.mu.chunks = append(o.mu.chunks, c)

	// While there is a chunk, the dispatcher must be there to take items back.
	if len(o.mu.chunks) == 1 {
		o.config.Dispatcher.Hold()
		signal.To(o.wake)
	}

	return c
}

// grewLocked counts bytes that were added to a chunk. The bytes of items were counted before.
func (o *Outbox) grewLocked(c *chunk, items, rest int) {
	c.bytes += items + rest
	o.mu.bytes += items + rest
	o.config.Dispatcher.AddUnconfirmed(nil, rest)
	o.limitLocked()
}

// limitLocked keeps to Config.MaxBytes. It forgets the oldest messages that are overdue, and then
// deletes the oldest replies unconfirmed.
func (o *Outbox) limitLocked() {
	for o.mu.bytes > o.config.MaxBytes && o.mu.overdue.Len() > 0 {
		o.forgetLocked(o.mu.overdue.Front().Value.(string))
	}

	if o.mu.bytes > o.config.MaxBytes {
		o.deleteLocked(func(*chunk) bool { return o.mu.bytes > o.config.MaxBytes })
	}
}

// deleteLocked deletes the chunks for which over, called from the oldest on, returns true.
func (o *Outbox) deleteLocked(over func(*chunk) bool) {
	before, left := len(o.mu.chunks), o.mu.chunks[:0]
	var received []string // what other bridges sent through this one
	for _, c := range o.mu.chunks {
		if !over(c) {
			left = append(left, c)
			continue
		}

		for i := range c.items {
			if s := &c.items[i]; s.Relayed != "" && s.subject != "" {
				received = append(received, s.Relayed)
			}
			o.freeLocked(c, &c.items[i])
		}
		o.mu.bytes -= c.bytes
		o.config.Dispatcher.AddUnconfirmed(nil, -c.bytes)

		// The next chunk gets the memory of this one.
		clear(c.replies)
		clear(c.items)
		o.mu.spare = &chunk{replies: c.replies[:0], items: c.items[:0]}
	}

	clear(o.mu.chunks[len(left):])
	o.mu.chunks = left
	if len(received) > 0 {
		o.config.Tell("", received...)
	}

	if len(left) == 0 && before > 0 {
		o.config.Dispatcher.Release()
	}
}

// freeLocked counts the items of a reply no longer, and frees their memory.
func (o *Outbox) freeLocked(c *chunk, s *sentItem) {
	c.bytes -= s.bytes
	o.mu.bytes -= s.bytes
	o.config.Dispatcher.AddUnconfirmed(s.Queue, -s.bytes)
	s.Content, s.bytes = Content{}, 0
}
