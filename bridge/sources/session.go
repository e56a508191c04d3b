package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

const (
	// ackWait is after how long JetStream delivers a message again.
	ackWait = 30 * time.Second
	// heartbeat is how often JetStream shows that it still delivers; twice without is an error.
	heartbeat = 5 * time.Second
	// ackTimeout is how long a session waits for the answer to its first acknowledgement.
	ackTimeout = 5 * time.Second
	// A batch has up to maxMessages and about maxBytes. Up to prefetch messages, of 4 times maxBytes or
	// three of the largest, are fetched beyond it.
	maxMessages = 1000
	maxBytes    = 1 << 20
	prefetch    = 4 * maxMessages
	// gather is how long a batch waits for another message.
	gather = 50 * time.Microsecond
)

// session is a consumer of the stream, from the state's sequence on.
type session struct {
	*drawer
	connected  context.Context // ends with the connection to NATS
	stream     jetstream.Stream
	consumer   jetstream.Consumer
	maxPayload int64
	retention  jetstream.RetentionPolicy
	acked      bool // JetStream has said that it takes acknowledgements
	begins     bool // nothing was drawn yet, so what is gone was before it

	delivered uint64 // the consumer's number of the last message that was delivered
	received  uint64 // the stream's
	size      int    // of the next batch, in messages
}

// run draws until the drawer or the source is stopped, or the queue has no source.
func (d *drawer) run() {
	defer d.stop()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		before := d.state.Sequence
		err := d.session()
		if d.state.Sequence > before {
			pause = minPause
		}
		switch {
		case d.ctx.Err() != nil || errors.Is(err, errStopped) || errors.Is(err, fdbpq.ErrNoSource):
			return
		case !errors.Is(err, errChanged):
			d.config.Warn("a source cannot be drawn from; trying again", "queue", d.name.Name, "error", err)
			if pause > minPause || errors.Is(err, errNotAcked) || errors.Is(err, jetstream.ErrNoHeartbeat) { // not for a moment
				_ = d.note(func(s *settings.SourceState) { s.Waiting = text(err) })
			}
		}
		wait(d.ctx, pause)
	}
}

// session draws until something ends it, and returns that.
func (d *drawer) session() error {
	if err := d.read(); err != nil {
		return err
	}
	if err := d.removeFormer(); err != nil {
		if errors.Is(err, errChanged) || errors.Is(err, fdbpq.ErrNoSource) || slices.ContainsFunc(d.state.Former, d.sameStream) {
			return err
		}
		d.config.Warn("a former source of a queue has left a consumer behind; trying again", "queue", d.name.Name, "error", err)
	}
	if len(d.state.Source) == 0 {
		wait(d.ctx, cleanEvery)
		return errChanged
	}
	if d.state.Stopped != "" {
		return errStopped
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		return fmt.Errorf("this bridge draws from %d sources already, which is the most", Max)
	}
	return d.draw()
}

// draw is the part of a session that needs NATS. It ends with the connection.
func (d *drawer) draw() error {
	// What the server has sent over a connection that is lost comes again late, and others before it.
	nc := d.config.Conn()
	parted := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(parted)
	if !nc.IsConnected() {
		return nats.ErrDisconnected
	}
	connected, cancel := context.WithCancel(d.ctx)
	defer cancel()
	d.ended.Go(func() {
		select {
		case <-parted:
			cancel()
		case <-connected.Done():
		}
	})

	p := &session{drawer: d, connected: connected, maxPayload: nc.MaxPayload(), size: maxMessages}
	if err := p.open(); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stream %s: no answer from JetStream: is it there, and does this bridge have the rights that sources need? (%w)", d.source.Stream, err)
	} else if errors.Is(err, nats.ErrNoResponders) && d.source.Domain == "" {
		return fmt.Errorf("stream %s: this NATS server has no JetStream (%w)", d.source.Stream, err)
	} else if err != nil {
		return fmt.Errorf("stream %s: %w", d.source.Stream, err)
	}
	messages, err := newPuller(nc, p.source.Domain, p.consumer.CachedInfo())
	if err != nil {
		return err
	}
	defer messages.stop()
	for err == nil {
		err = p.drawNext(messages)
	}
	switch {
	case connected.Err() != nil:
		err = nats.ErrDisconnected
	case errors.Is(err, jetstream.ErrNoHeartbeat):
		err = fmt.Errorf("JetStream delivers nothing: has this bridge the right to ask for messages? (%w)", err)
	}
	return err
}

// open looks at the stream and makes the consumer.
func (p *session) open() error {
	js, err := p.jetStream(p.source.Domain)
	if err != nil {
		return err
	}
	if p.stream, err = js.Stream(p.ctx, p.source.Stream); err != nil {
		return err
	}
	info := p.stream.CachedInfo()
	p.retention = info.Config.Retention
	p.begins = p.state.Created.IsZero()
	if p.begins {
		err = p.begin(info)
	} else {
		err = p.compare(info)
	}
	if err == nil {
		err = p.makeConsumer()
	}
	if err != nil {
		return err
	}

	p.received = p.state.Sequence
	left := p.consumer.CachedInfo().NumPending
	return p.note(func(s *settings.SourceState) {
		if p.begins {
			s.Lag = left
		}
		if left == 0 { // otherwise once something arrives
			s.Lag, s.Waiting = 0, ""
		}
	})
}

// drawNext waits for messages and draws those that have come.
func (p *session) drawNext(messages *puller) error {
	m, err := messages.next(p.connected, 2*heartbeat)
	if errors.Is(err, nats.ErrTimeout) {
		return jetstream.ErrNoHeartbeat
	} else if m == nil {
		return err
	}

	var list []message
	for bytes := 0; m != nil && err == nil; {
		if list, err = p.add(list, m); err != nil {
			break
		}
		if bytes += len(m.Data); len(list) == maxMessages || bytes >= maxBytes {
			break
		}
		m, err = messages.next(p.connected, gather)
	}
	switch {
	case errors.Is(err, errLost): // those in the list came before
		return cmp.Or(p.drawList(list), err)
	case err != nil && !errors.Is(err, nats.ErrTimeout):
		return err
	}
	return p.drawList(list)
}

// errLost is of a session that has not got all deliveries.
var errLost = errors.New("others were lost on the way")

// drawList draws messages, up to the first that comes after others that the source must not miss.
func (p *session) drawList(list []message) error {
	if len(list) == 0 { // what arrives was drawn before
		return p.note(func(s *settings.SourceState) { s.Waiting = "" })
	}
	defer func() { p.begins = false }()
	i := slices.IndexFunc(list, func(m message) bool { return m.removed > 0 })
	if i < 0 {
		return p.drawAll(list)
	}

	// Removed one by one, or with all before them.
	info, err := p.stream.Info(p.ctx)
	if err != nil {
		return err
	}
	why := p.lost(info, list[i].sequence-list[i].removed)
	if i == 0 && p.begins {
		why = ""
	}
	if why != "" {
		list = list[:i]
	}
	if err := p.drawAll(list); err != nil || why == "" {
		return err
	}
	return p.stopSource(why)
}

// add appends a message, unless it was delivered before. The error says that a delivery was lost on the
// way, or stops the source.
func (p *session) add(list []message, m *nats.Msg) ([]message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return list, err
	}
	if p.delivered++; meta.Sequence.Consumer != p.delivered {
		return list, fmt.Errorf("delivery %d came after %d: %w", meta.Sequence.Consumer, p.delivered-1, errLost)
	}

	sequence := meta.Sequence.Stream
	if s := &p.state; sequence <= s.Sequence && !s.Newest.IsZero() && meta.Timestamp.After(s.Newest) {
		return list, p.stopSource(fmt.Sprintf("message %d of stream %s is another one than was drawn: the stream was restored: %s", sequence, p.source.Stream, again))
	}
	if sequence <= p.received {
		if sequence <= p.state.Sequence { // the first acknowledgement was lost
			err = p.ack(m)
		}
		return list, err
	}
	next := message{m, sequence, p.delivered, meta.NumPending, 0, meta.Timestamp}
	if p.retention == jetstream.LimitsPolicy && p.source.Filter == "" {
		next.removed = sequence - p.received - 1
	}
	p.received = sequence
	return append(list, next), nil
}

// drawAll draws messages in as many transactions as it takes. While the queue is full it waits.
func (p *session) drawAll(list []message) error {
	for pause := minPause; len(list) > 0; {
		n := min(p.size, len(list))
		err := p.drawBatch(list[:n])
		full := errors.Is(err, fdbpq.ErrFull) || errors.Is(err, fdbpq.ErrNoRoom) || errors.Is(err, dispatch.ErrOverloaded)
		switch {
		case err == nil:
			list, p.size, pause = list[n:], min(2*p.size, maxMessages), minPause
		case n > 1 && (full || errors.Is(err, fdbpq.ErrMessageTooLarge)):
			p.size = (n + 1) / 2
		case !full:
			return err
		default:
			info, failed := p.consumer.Info(p.ctx)
			if failed == nil {
				left := info.NumPending + info.Delivered.Consumer + 1 - list[0].delivery
				failed = p.note(func(s *settings.SourceState) { s.Waiting, s.Lag = text(err), left })
			}
			if failed != nil {
				return failed
			}
			wait(p.ctx, pause)
			pause = min(2*pause, maxPause)
		}
	}
	return nil
}

// drawBatch draws messages in one transaction and acknowledges them. One that cannot be an item
// becomes a dead letter, or stops the source behind the one before it.
func (p *session) drawBatch(list []message) error {
	next := p.state
	pushes := make([]fdbpq.Op, 0, len(list))
	var dead []fdbpq.Message
	var bad error
	for i := range list {
		op, err := p.convert(&list[i], int(p.maxPayload))
		if err == nil {
			pushes = append(pushes, op)
			continue
		}
		err = fmt.Errorf("message %d of stream %s: %w", list[i].sequence, p.source.Stream, err)
		lost := p.retention != jetstream.LimitsPolicy && errors.Is(err, errTooLarge)
		if p.source.OnBad == "stop" || lost {
			change := "set the source so that it can be an item"
			if !lost {
				change += ", or with \"on_bad\":\"dead_letter\""
			}
			goOn := fmt.Sprintf("set it with \"start\":%d", list[i].sequence+1)
			if p.retention == jetstream.WorkQueuePolicy {
				goOn = fmt.Sprintf("delete the message, as with: nats stream rmm %s %d, and remove the source and set it again", p.source.Stream, list[i].sequence)
			}
			bad, list = fmt.Errorf("%w: %s, or, to go on without it, %s", err, change, goOn), list[:i]
			break
		}
		op.Message.DeadLetter = &fdbpq.DeadLetter{Reason: text(err)}
		dead = append(dead, op.Message)
	}

	if len(list) > 0 {
		last := &list[len(list)-1]
		next.Sequence, next.Lag, next.Waiting = last.sequence, last.pending, ""
		for i := range list {
			next.Removed += list[i].removed
			if list[i].time.After(next.Newest) {
				next.Newest = list[i].time
			}
		}
		next.Drawn += int64(len(pushes))
		next.Dead += int64(len(dead))
		if err := p.commit(&next, pushes, dead); err != nil {
			return err
		}
		if p.retention == jetstream.LimitsPolicy {
			list = list[len(list)-1:] // acknowledges those before it, too
		}
		for i := range list {
			if err := p.ack(list[i].Msg); err != nil {
				return err
			}
		}
	}
	if bad != nil {
		return p.stopSource(bad.Error())
	}
	return nil
}

// errNotAcked is of a session whose acknowledgements do not arrive.
var errNotAcked = errors.New("JetStream does not take acknowledgements: has this bridge the right to publish them?")

// ack acknowledges a message. JetStream answers the first of a session. Of the others, what is lost on
// the way is delivered again, and passed over.
func (p *session) ack(m *nats.Msg) error {
	if p.acked {
		_ = m.Ack()
		return nil
	}
	if err := doubleAck(p.connected, m); err != nil {
		return err
	}
	p.acked = true
	return nil
}

func doubleAck(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := m.AckSync(nats.Context(ctx)); err != nil {
		return fmt.Errorf("%w (%w)", errNotAcked, err)
	}
	return nil
}
