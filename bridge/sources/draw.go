package sources

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// gather is how long a transaction waits for another message.
const gather = 50 * time.Microsecond

// errLost is of a session that has not got all deliveries.
var errLost = errors.New("others were lost on the way")

// drawNext waits for messages and draws what has come.
func (s *session) drawNext(messages *puller) error {
	m, err := messages.next(s.connected, 2*heartbeat)
	switch {
	case errors.Is(err, nats.ErrTimeout):
		return jetstream.ErrNoHeartbeat
	case err != nil:
		return err
	case m == nil:
		return s.hearSilence()
	}

	s.endSilence()
	var list []message
	for bytes := 0; m != nil && err == nil; {
		if list, err = s.add(list, m); err != nil {
			break
		}
		if bytes += len(m.Data); len(list) == maxMessages || bytes >= maxBytes {
			break
		}
		m, err = messages.next(s.connected, gather)
	}

	switch {
	case errors.Is(err, errLost): // those in the list came before
		return cmp.Or(s.drawList(list), err)
	case err != nil && !errors.Is(err, nats.ErrTimeout):
		return err
	}

	return s.drawList(list)
}

// add appends a message, unless it was delivered before. The error says that a delivery was lost on
// the way, or stops the source.
func (s *session) add(list []message, m *nats.Msg) ([]message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return list, err
	}

	if s.lastDelivery++; meta.Sequence.Consumer != s.lastDelivery {
		return list, fmt.Errorf("delivery %d came after %d: %w",
			meta.Sequence.Consumer, s.lastDelivery-1, errLost)
	}

	sequence, state := meta.Sequence.Stream, &s.state
	drawn := sequence <= state.Sequence
	if drawn && !state.Newest.IsZero() && meta.Timestamp.After(state.Newest) {
		return list, s.stopSource(fmt.Sprintf("message %d of stream %s is not the one that was "+
			"drawn before: the stream was restored: %s", sequence, s.source.Stream, setAgain))
	}

	if sequence <= s.lastSequence {
		if drawn { // its acknowledgement was lost
			err = s.ack(m)
		}

		return list, err
	}

	next := message{
		Msg: m, sequence: sequence, delivery: s.lastDelivery,
		pending: meta.NumPending, time: meta.Timestamp,
	}

	if s.retention == jetstream.LimitsPolicy && s.source.Filter == "" {
		next.removed = sequence - s.lastSequence - 1
	}

	s.lastSequence = sequence
	return append(list, next), nil
}

// drawList draws messages, up to the first that comes after others that the source must not miss.
func (s *session) drawList(list []message) error {
	if len(list) == 0 { // what arrives was drawn before
		return s.change(func(state *settings.SourceState) { state.Waiting = "" })
	}

	defer func() { s.nothingDrawn = false }()
	i := slices.IndexFunc(list, func(m message) bool { return m.removed > 0 })
	if i < 0 {
		return s.drawAll(list)
	}

	// They were removed one by one, which is no reason to stop, or with all messages before them.
	info, err := s.stream.Info(s.ctx)
	if err != nil {
		return err
	}

	why := s.missing(info, list[i].sequence-list[i].removed)
	if why == "" || i == 0 && s.nothingDrawn {
		return s.drawAll(list)
	}
	if err := s.drawAll(list[:i]); err != nil {
		return err
	}
	return s.stopSource(why)
}

// drawAll draws messages in as many transactions as it takes. While the queue is full it waits.
func (s *session) drawAll(list []message) error {
	for pause := minPause; len(list) > 0; {
		n := min(s.batchSize, len(list))
		err := s.drawBatch(list[:n])
		full := errors.Is(err, fdbpq.ErrFull) || errors.Is(err, fdbpq.ErrNoRoom) ||
			errors.Is(err, dispatch.ErrOverloaded)
		tooLarge := errors.Is(err, fdbpq.ErrMessageTooLarge)
		switch {
		case err == nil:
			list, s.batchSize, pause = list[n:], min(2*s.batchSize, maxMessages), minPause
		case n > 1 && (full || tooLarge):
			s.batchSize = (n + 1) / 2 // some of them may fit
		case tooLarge && list[0].tooLarge == nil: // not even an empty queue could have it
			list[0].tooLarge = errors.New(text(err))
		case !full:
			return err
		default:
			if err := s.showFull(&list[0], err); err != nil {
				return err
			}
			signal.Pause(s.ctx, pause)
			pause = min(2*pause, maxPause)
		}
	}

	return nil
}

// showFull writes into the state why nothing is drawn, and how much is left from this message on,
// if this bridge may know that.
func (s *session) showFull(first *message, why error) error {
	left := s.state.Lag
	info, err := s.consumer.Info(s.ctx)
	if err == nil {
		left = info.NumPending + info.Delivered.Consumer + 1 - first.delivery
	} else if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}

	return s.change(func(to *settings.SourceState) { to.Waiting, to.Lag = text(why), left })
}

// batch is the messages of a transaction, and what they become.
type batch struct {
	messages []message
	pushes   []fdbpq.Op
	dead     []fdbpq.Message
	bad      error // why the source stops at the message that follows, nil if it does not
}

// drawBatch draws messages in one transaction and acknowledges them. One that cannot be an item
// becomes a dead letter, or stops the source behind the one before it.
func (s *session) drawBatch(list []message) error {
	b := s.convertAll(list)
	if len(b.messages) > 0 {
		if err := s.commitBatch(&b); err != nil {
			return err
		}
	}

	if b.bad != nil {
		return s.stopSource(b.bad.Error())
	}

	return nil
}

// convertAll makes items and dead letters of messages, up to the first at which the source stops.
func (s *session) convertAll(list []message) batch {
	b := batch{messages: list, pushes: make([]fdbpq.Op, 0, len(list))}
	for i := range list {
		m := &list[i]
		op, err := s.convert(m, int(s.maxPayload))
		if err = cmp.Or(err, m.tooLarge); err == nil {
			b.pushes = append(b.pushes, op)
			continue
		}

		// A dead letter of one that is too large has no value, so the stream must still have it.
		err = fmt.Errorf("message %d of stream %s: %w", m.sequence, s.source.Stream, err)
		lost := s.retention != jetstream.LimitsPolicy && errors.Is(err, errTooLarge)
		if lost || s.source.OnBad == "stop" {
			b.messages, b.bad = list[:i], fmt.Errorf("%w: %s", err, s.remedy(m, !lost))
			return b
		}
		op.Message.DeadLetter = &fdbpq.DeadLetter{Reason: text(err)}
		b.dead = append(b.dead, op.Message)
	}

	return b
}

// remedy says how a source goes on that has stopped at a bad message.
func (s *session) remedy(m *message, mayDie bool) string {
	sequence, change := m.sequence, "change the source so that the message can be an item"
	if m.tooLarge != nil {
		change = "raise that limit and set the source again"
	}
	if mayDie {
		change += ", or set it with \"on_bad\":\"dead_letter\""
	}

	without := fmt.Sprintf("set the source with \"start\":%d", sequence+1)
	if s.retention == jetstream.WorkQueuePolicy {
		without = fmt.Sprintf("delete the message, as with: nats stream rmm %s %d, and remove the "+
			"source and set it again", s.source.Stream, sequence)
	}

	return change + ", or, to go on without the message, " + without
}

// commitBatch writes the next state and what the messages become, and acknowledges them.
func (s *session) commitBatch(b *batch) error {
	next, list := s.state, b.messages
	last := &list[len(list)-1]
	next.Sequence, next.Lag, next.Waiting = last.sequence, last.pending, ""
	for i := range list {
		next.Removed += list[i].removed
		if list[i].time.After(next.Newest) {
			next.Newest = list[i].time
		}
	}

	next.Drawn += int64(len(b.pushes))
	next.Dead += int64(len(b.dead))
	if err := s.commit(&next, b.pushes, b.dead); err != nil {
		return err
	}

	// With AckAllPolicy the last acknowledgement stands for those before it.
	if s.retention == jetstream.LimitsPolicy {
		list = list[len(list)-1:]
	}

	for i := range list {
		if err := s.ack(list[i].Msg); err != nil {
			return err
		}
	}

	return nil
}

// ack acknowledges a message. The first of a session waits for the answer of JetStream. If another
// one is lost on the way, its message is delivered again, and passed over.
func (s *session) ack(m *nats.Msg) error {
	if s.acksAccepted {
		_ = m.Ack()
		return nil
	}

	if err := doubleAck(s.connected, m); err != nil {
		return err
	}

	s.acksAccepted = true
	return nil
}
