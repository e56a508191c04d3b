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
	limits     bool // the stream keeps its messages whatever is acknowledged

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
			if pause > minPause { // not for a moment
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
	if d.state.Stopped != "" {
		return errStopped
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		return fmt.Errorf("this bridge draws from %d sources already, which is the most", Max)
	}

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
	if err := p.open(); err != nil {
		return fmt.Errorf("stream %s: %w", d.source.Stream, err)
	}
	messages, err := p.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(prefetch, max(4*maxBytes, 3*int(p.maxPayload))))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for err == nil {
		err = p.drawNext(messages)
	}
	if connected.Err() != nil {
		err = nats.ErrDisconnected
	}
	return err
}

// open looks at the stream and makes the consumer.
func (p *session) open() error {
	js, err := p.jetStream()
	if err != nil {
		return err
	}
	if p.stream, err = js.Stream(p.ctx, p.source.Stream); err != nil {
		return err
	}
	info := p.stream.CachedInfo()
	p.limits = info.Config.Retention == jetstream.LimitsPolicy
	if p.state.Created.IsZero() {
		err = p.begin(info)
	} else if why := p.compare(info); why != "" {
		err = p.stopSource(why)
	}
	if err == nil {
		err = p.makeConsumer(info.Config.Retention)
	}
	if err != nil {
		return err
	}
	p.received = p.state.Sequence
	return p.note(func(s *settings.SourceState) { s.Waiting = "" })
}

// begin begins a source.
func (p *session) begin(info *jetstream.StreamInfo) error {
	first, last, start := max(info.State.FirstSeq, 1), info.State.LastSeq, p.source.Start.Sequence()
	next := p.state
	next.Created, next.Lag, next.Sequence = info.Created, info.State.Msgs, max(start, first)-1
	if p.source.Start == "new" {
		next.Sequence, next.Lag = last, 0
	}
	switch {
	case next.Sequence > last:
		return p.stopSource(fmt.Sprintf("start is %d, and the last message of stream %s is %d: set another start", start, p.source.Stream, last))
	case info.Config.Retention == jetstream.WorkQueuePolicy && next.Sequence >= first:
		return p.stopSource(fmt.Sprintf("stream %s is a work queue, which is drawn from its start: set start to \"all\"", p.source.Stream))
	}
	return p.commit(&next, nil, nil)
}

// compare returns why a source has to stop with this stream, "" if it has not.
func (p *session) compare(info *jetstream.StreamInfo) string {
	switch s := &p.state; {
	case !s.Created.Equal(info.Created):
		return fmt.Sprintf("stream %s was created again, at %s: remove the source and set it again, with the start that you want",
			p.source.Stream, info.Created.UTC().Format(time.RFC3339))
	case info.State.LastSeq < s.Sequence:
		return fmt.Sprintf("stream %s ends with message %d, and %d was drawn: it was restored, or has lost messages: set the source with the start that you want",
			p.source.Stream, info.State.LastSeq, s.Sequence)
	}
	return p.lost(info, p.state.Sequence+1)
}

// lost returns why the source has to stop if messages from the one with that sequence on are gone, ""
// if it has not. With a filter nobody knows whether it was to draw them. From streams without limits,
// those that were drawn are gone, too.
func (p *session) lost(info *jetstream.StreamInfo, from uint64) string {
	if p.source.Filter != "" || !p.limits || info.State.FirstSeq <= from {
		return ""
	}
	return fmt.Sprintf("messages %d to %d of stream %s were removed before they were drawn: set the source with \"start\":%d to go on without them",
		from, info.State.FirstSeq-1, p.source.Stream, info.State.FirstSeq)
}

// drawNext waits for messages and draws those that have come.
func (p *session) drawNext(messages jetstream.MessagesContext) error {
	m, err := messages.Next(jetstream.NextContext(p.connected))
	var list []message
	missing := uint64(0)
	for bytes := 0; err == nil; {
		var skipped uint64
		if list, skipped, err = p.add(list, m); err != nil {
			return err
		}
		missing = cmp.Or(missing, skipped)
		if bytes += len(m.Data()); len(list) == maxMessages || bytes >= maxBytes {
			break
		}
		m, err = messages.Next(jetstream.NextMaxWait(gather))
	}
	if err != nil && !errors.Is(err, nats.ErrTimeout) {
		return err
	}

	why := ""
	if missing > 0 {
		info, err := p.stream.Info(p.ctx)
		if err != nil {
			return err
		}
		if why = p.lost(info, missing); why != "" {
			list = slices.DeleteFunc(list, func(m message) bool { return m.sequence > missing })
		}
	}
	if err := p.drawAll(list); err != nil || why == "" {
		return err
	}
	return p.stopSource(why)
}

// add appends a message, unless it was delivered before. skipped is the first sequence that was left
// out before it, 0 if none was. The error says that a delivery was lost on the way.
func (p *session) add(list []message, m jetstream.Msg) (_ []message, skipped uint64, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return list, 0, err
	}
	if p.delivered++; meta.Sequence.Consumer != p.delivered {
		return list, 0, fmt.Errorf("delivery %d came after %d: others were lost on the way", meta.Sequence.Consumer, p.delivered-1)
	}

	sequence := meta.Sequence.Stream
	if sequence <= p.received {
		if sequence <= p.state.Sequence {
			_ = m.Ack() // the first was lost
		}
		return list, 0, nil
	}
	if p.limits && p.source.Filter == "" && sequence > p.received+1 {
		skipped = p.received + 1
	}
	p.received = sequence
	return append(list, message{m, sequence, p.delivered, meta.NumPending}), skipped, nil
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
		if p.source.OnBad == "stop" || !p.limits && errors.Is(err, errTooLarge) {
			bad, list = fmt.Errorf("%w: set the source so that it can be an item, or with \"start\":%d to go on without it", err, list[i].sequence+1), list[:i]
			break
		}
		op.Message.DeadLetter = &fdbpq.DeadLetter{Reason: text(err)}
		dead = append(dead, op.Message)
	}

	if len(list) > 0 {
		last := &list[len(list)-1]
		next.Sequence, next.Lag, next.Waiting = last.sequence, last.pending, ""
		next.Drawn += int64(len(pushes))
		next.Dead += int64(len(dead))
		if err := p.commit(&next, pushes, dead); err != nil {
			return err
		}
		if p.limits {
			list = list[len(list)-1:] // acknowledges those before it, too
		}
		for i := range list { // what JetStream does not learn is delivered again, and passed over
			_ = list[i].Ack()
		}
	}
	if bad != nil {
		return p.stopSource(bad.Error())
	}
	return nil
}
