package jetstream

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// baseOverhead is about how many bytes of max_bytes an item takes besides its own: for our headers,
// and for the subject of its acknowledgement without the names in it.
const baseOverhead = 320

// overhead is more than most items take besides their own bytes. Items that take more go back if
// they do not fit, which may cost them their place before the next.
func (p *pull) overhead() int {
	return baseOverhead + 2*len(p.consumer.stream.name) + len(p.consumer.name)
}

// deliver sends the items of a request. An item that was already delivered max_deliver times is
// discarded. If an item cannot be sent, deliver returns why, and the rest go back.
func (p *pull) deliver(q *dispatch.Queue, results []fdbpq.Result) (unsent error) {
	clock := p.f.config.Now()
	maxDeliver := int64(p.consumer.config.MaxDeliver)
	if !p.listens() {
		unsent = errNoListener
	}

	m := itemMessages.Get().(*itemMessage)
	m.Subject, m.room = p.to(time.Now()), p.MaxBytes
	m.subject = p.f.pushSubject(p.consumer.stream)

	sent := 0
	for i := range results {
		r := &results[i]
		if unsent == nil && r.Err == nil && !r.Lease.Until.After(clock) {
			unsent = errLeaseOver // another client may have the item by now
		}

		switch {
		case r.Err != nil:
		case unsent != nil:
			p.f.credit(p.pending, 1)
			p.f.config.Return(q, r, errors.Is(unsent, errNoListener))
		case maxDeliver > 0 && r.Lease.Deliveries > maxDeliver:
			p.f.credit(p.pending, 1)
			p.f.discard(q, &r.Lease.Token)
		default:
			// Hold comes first, because an acknowledgement may arrive at once.
			m.number = p.f.hold(p.pending, &r.Lease)
			if unsent = p.send(q, m, r); unsent != nil {
				p.f.release(p.consumer.consumerKey, r.Lease.Token, false)
				p.f.config.Return(q, r, false)
				continue
			}
			p.f.config.Delivered(r.Lease.Deliveries)
			sent++
		}
	}

	// With no_wait, a pull that has got something does not wait for more.
	if p.Batch, p.MaxBytes = p.Batch-sent, m.room; sent > 0 && p.NoWait {
		p.Expires, p.ifEmpty = 0, noMessages
	}
	m.Message = leaf.Message{}
	itemMessages.Put(m)
	return unsent
}

// itemMessage is a reusable buffer for the item being sent.
type itemMessage struct {
	leaf.Message
	header, reply []byte // reused
	subject       string // that clients see
	number        uint64 // of the delivery
	room          int    // the rest of max_bytes
}

var itemMessages = sync.Pool{New: func() any { return new(itemMessage) }}

// send sends an item. If our own headers do not fit into a message, it goes without them.
func (p *pull) send(q *dispatch.Queue, m *itemMessage, r *fdbpq.Result) error {
	p.setReply(m, r)
	m.Payload = r.Item.Value
	err := p.sendWith(&r.Lease, q, m, r)
	if !errors.Is(err, leaf.ErrTooLarge) {
		return err
	}

	err = p.sendWith(nil, q, m, r)
	if errors.Is(err, leaf.ErrTooLarge) {
		p.f.config.Warn("an item larger than max_payload of the NATS server holds up a consumer",
			"queue", q.Name, "consumer", p.consumer.name, "id", r.Item.Job(), "error", err)
	}

	return err
}

// sendWith sends an item with the headers of a lease or, if that is nil, without our own.
func (p *pull) sendWith(
	lease *fdbpq.Lease, q *dispatch.Queue, m *itemMessage, r *fdbpq.Result,
) (err error) {
	m.header, err = p.f.config.AppendHeader(m.header[:0], q, &r.Item, lease)
	if err != nil {
		return err
	}

	m.Header = m.header

	// Clients count all of a message against max_bytes, and drop what exceeds it.
	size := len(m.reply) - len("@") + len(m.Header) + len(m.Payload)
	if p.limited && size > m.room {
		return errMaxBytes
	}
	if err = p.f.out.Publish(&m.Message); err == nil && p.limited {
		m.room -= size
	}
	return err
}

// setReply sets the reply subject of an item, which parseAck parses. The server shows clients the
// part behind the @ as the subject of the message.
func (p *pull) setReply(m *itemMessage, r *fdbpq.Result) {
	sequence := uint64(r.Item.ID.Count)
	if r.Item.ID.Count < 1 || sequence > maxNumber {
		sequence = m.number
	}
	pushed := r.Item.PushedAt
	if pushed.IsZero() {
		pushed = p.received
	}

	c, d := p.consumer, &p.f.domains
	to := append(m.reply[:0], ackPrefix...)
	for _, token := range [...]string{d.names[c.stream.kind], d.hash, c.stream.name, c.name} {
		to = append(append(to, token...), '.')
	}
	numbers := [...]int64{
		r.Lease.Deliveries, int64(sequence), int64(m.number), pushed.UnixNano(), r.Ready,
	}
	for _, n := range numbers {
		to = append(strconv.AppendInt(to, n, 10), '.')
	}
	to = append(to, r.Lease.Token.String()...)
	m.reply = append(append(to, '@'), m.subject...)
	m.Reply = string(m.reply)
}

const (
	// newInterest is how long news of a subscription may take from a client that is far away, and
	// interestPause how often a pull looks for it meanwhile.
	newInterest   = 2 * time.Second
	interestPause = 20 * time.Millisecond
	// listenPause is how often a pull without heartbeats checks whether anybody listens.
	listenPause = 5 * time.Second
)

// inbox is where the messages of a pull go.
type inbox struct {
	out      sender
	subject  string    // the client subscribes to it
	gateway  string    // used instead at first, if the pull came through a gateway
	hidden   bool      // the server does not tell who subscribes to subject
	received time.Time // or as long before as it may have waited to be read
}

// inboxOf returns the inbox of a pull.
func inboxOf(m *leaf.Message, out sender) inbox {
	subject, via := leaf.WithoutGateway(m.Reply)
	b := inbox{out: out, subject: subject, received: time.Now().Add(-m.Waited)}
	b.hidden = via || wire.Imported(subject)
	if via {
		b.gateway = m.Reply
	}
	return b
}

// to is the subject to send to now.
func (b *inbox) to(now time.Time) string {
	if b.gateway != "" && now.Sub(b.received) < newInterest {
		return b.gateway
	}
	return b.subject
}

// listens reports whether somebody may receive a message.
func (b *inbox) listens() bool { return b.hidden || b.out.HasInterest(b.subject) }

// beat sends a heartbeat with the number of deliveries so far.
func (b *inbox) beat(now time.Time, delivered uint64) {
	number := strconv.FormatUint(delivered, 10)
	header := statusHeader(100, "Idle Heartbeat",
		"Nats-Last-Consumer", number, "Nats-Last-Stream", number)
	_ = b.out.Publish(&leaf.Message{Subject: b.to(now), Header: header}) // the next one may succeed
}
