package sources

import (
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
	// apiTimeout bounds one request to JetStream.
	apiTimeout = 5 * time.Second
	// ackWait is after how long JetStream delivers a message again that is not acknowledged.
	ackWait = time.Minute
	// prefetch is how many bytes a session has under way at least.
	prefetch = 4 << 20
)

// session is a consumer of the stream, from the state's sequence on.
type session struct {
	d        *drawer
	nc       *nats.Conn
	stream   jetstream.Stream
	consumer jetstream.Consumer
	limits   bool // the stream keeps its messages whatever is acknowledged

	in        *inbox
	delivered uint64 // of the consumer's numbers
	received  uint64 // of the stream's
	size      int    // of the next batch, in messages
}

// open begins a session: it looks at the stream and makes the consumer.
func (d *drawer) open(ctx context.Context) (*session, error) {
	api, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	nc, state := d.s.config.Conn(), d.known.Load()
	js, err := d.jetStream(state)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(api, state.Stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", state.Stream, err)
	}
	why, err := d.check(ctx, stream.CachedInfo())
	if err == nil && why != "" {
		err = d.stopSource(ctx, why)
	}
	if err != nil {
		return nil, err
	}

	p := &session{d: d, nc: nc, stream: stream, in: newInbox(), size: maxMessages}
	if err := p.makeConsumer(api, js); err != nil {
		return nil, fmt.Errorf("consumer of stream %s: %w", state.Stream, err)
	}
	p.received = d.known.Load().Sequence
	return p, d.note(ctx, func(s *settings.SourceState) { s.Waiting = "" })
}

// makeConsumer makes the consumer, and removes the one before it.
func (p *session) makeConsumer(ctx context.Context, js jetstream.JetStream) error {
	s, retention := p.d.known.Load(), p.stream.CachedInfo().Config.Retention
	names := p.d.consumers()
	c := jetstream.ConsumerConfig{
		Durable: names[0], Description: "draws for queue " + p.d.name.Name, FilterSubject: s.Filter,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: -1, MaxDeliver: -1,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.Sequence + 1,
	}
	remove := func(name string) error {
		err := js.DeleteConsumer(ctx, s.Stream, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	}

	switch retention {
	case jetstream.WorkQueuePolicy:
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverAllPolicy, 0
	case jetstream.LimitsPolicy:
		p.limits, c.AckPolicy = true, jetstream.AckAllPolicy
	default:
		if _, err := js.Consumer(ctx, s.Stream, names[0]); err == nil {
			names[0], names[1] = names[1], names[0]
		}
		c.Durable = names[0]
	}

	err := remove(names[0])
	if err == nil {
		p.consumer, err = js.CreateConsumer(ctx, s.Stream, c)
	}
	if err == nil && retention == jetstream.InterestPolicy {
		err = remove(names[1])
	}
	return err
}

// draw draws until something ends the session, and returns that.
func (p *session) draw(ctx context.Context) error {
	failed := make(chan error, 1)
	fail := func(_ jetstream.ConsumeContext, err error) {
		select {
		case failed <- err:
		default:
		}
	}
	most := max(prefetch, 3*int(p.nc.MaxPayload()))
	pulls, err := p.consumer.Consume(p.in.put, jetstream.PullMaxBytes(most), jetstream.ConsumeErrHandler(fail))
	if err != nil {
		return err
	}
	defer func() {
		pulls.Stop()
		p.in.close()
		<-pulls.Closed()
	}()
	// What the server has sent to a connection that was lost would come late, and out of order.
	parted := p.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(parted)

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.d.woken:
			return errChanged
		case err := <-failed:
			return err
		case <-parted:
			return nats.ErrConnectionReconnecting
		case <-p.in.arrived:
			if err := p.drawAll(ctx, p.in.take()); err != nil {
				return err
			}
		}
	}
}

// drawAll draws messages that were delivered.
func (p *session) drawAll(ctx context.Context, delivered []jetstream.Msg) error {
	list, missing, err := p.sort(delivered)
	if err != nil {
		return err
	}
	why := ""
	if missing > 0 {
		api, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		info, err := p.stream.Info(api)
		if err != nil {
			return err
		}
		if why = lost(p.d.known.Load(), info, missing); why != "" {
			behind := func(m message) bool { return m.sequence > missing }
			list = slices.DeleteFunc(list, behind)
		}
	}

	for pause := minPause; len(list) > 0; {
		n := min(p.size, len(list))
		err := p.drawBatch(ctx, list[:n])
		full := errors.Is(err, fdbpq.ErrFull) || errors.Is(err, fdbpq.ErrNoRoom) || errors.Is(err, dispatch.ErrOverloaded)
		switch {
		case err == nil:
			list, p.size, pause = list[n:], min(2*p.size, maxMessages), minPause
		case n > 1 && (full || errors.Is(err, fdbpq.ErrMessageTooLarge)):
			p.size = (n + 1) / 2
		case full:
			if err := p.holdBack(ctx, err, list[0].delivery-1); err != nil {
				return err
			}
			wait(ctx, nil, pause)
			if pause = nextPause(pause); len(p.d.woken) > 0 {
				return errChanged
			}
		default:
			return err
		}
	}
	if why != "" {
		return p.d.stopSource(ctx, why)
	}
	return nil
}

// holdBack notes why nothing is drawn for now, and how much waits for that. The delivery with that
// number is the last that was drawn.
func (p *session) holdBack(ctx context.Context, why error, drawn uint64) error {
	api, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	info, err := p.consumer.Info(api)
	if err != nil {
		return err
	}
	left := info.NumPending + info.Delivered.Consumer - drawn
	return p.d.note(ctx, func(s *settings.SourceState) { s.Waiting, s.Lag = text(why), left })
}

// sort returns the messages that are new, in order. missing is the first sequence that is not among
// those of a stream without filter, 0 if there is none. Messages that were drawn before are
// acknowledged again. The error says that some delivery was lost.
func (p *session) sort(delivered []jetstream.Msg) (list []message, missing uint64, err error) {
	drawn := p.d.known.Load().Sequence
	list = make([]message, 0, len(delivered))
	for _, m := range delivered {
		meta, err := m.Metadata()
		if err != nil {
			return nil, 0, err
		}
		if p.delivered++; meta.Sequence.Consumer != p.delivered {
			return nil, 0, fmt.Errorf("delivery %d came after %d: some were lost on the way", meta.Sequence.Consumer, p.delivered-1)
		}

		switch sequence := meta.Sequence.Stream; {
		case sequence > p.received:
			if p.limits && sequence > p.received+1 && missing == 0 && p.d.known.Load().Filter == "" {
				missing = p.received + 1
			}
			p.received = sequence
			list = append(list, message{m, sequence, p.delivered, meta.NumPending})
		case sequence <= drawn:
			_ = m.Ack()
		}
	}
	return list, missing, nil
}

// drawBatch draws messages in one transaction and acknowledges them. A message that cannot be an item
// becomes a dead letter, or stops the source behind the one before it.
func (p *session) drawBatch(ctx context.Context, list []message) error {
	state := p.d.known.Load()
	next := *state
	next.Waiting = ""
	pushes := make([]fdbpq.Op, 0, len(list))
	var dead []fdbpq.Message
	var bad error
	n := 0
	for ; n < len(list); n++ {
		m := &list[n]
		op, err := convert(&state.Source, m, p.nc.MaxPayload())
		if err == nil {
			pushes = append(pushes, op)
			continue
		}
		if state.OnBad == settings.BadStops || !p.limits && errors.Is(err, errTooLarge) {
			bad = err
			break
		}
		op.Message.DeadLetter = &fdbpq.DeadLetter{Reason: settings.Cut(fmt.Sprintf("message %d of stream %s: %v", m.sequence, state.Stream, err), 500)}
		dead = append(dead, op.Message)
	}

	if n > 0 {
		last := &list[n-1]
		next.Sequence, next.Lag = last.sequence, last.pending
		next.Drawn += int64(len(pushes))
		next.Dead += int64(len(dead))
		if err := p.d.commit(ctx, &next, pushes, dead); err != nil {
			return err
		}
		p.acknowledge(list[:n])
	}
	if bad != nil {
		return p.d.stopSource(ctx, fmt.Sprintf("message %d of stream %s cannot be an item: %v: change the source, or set its start to %d to go on without it",
			list[n].sequence, state.Stream, bad, list[n].sequence+1))
	}
	return nil
}

// acknowledge acknowledges messages that were drawn. One of a stream with limits acknowledges those
// before it, too. What JetStream does not learn is delivered again, and passed over.
func (p *session) acknowledge(list []message) {
	if p.limits {
		list = list[len(list)-1:]
	}
	for i := range list {
		_ = list[i].Ack()
	}
}
