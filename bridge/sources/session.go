package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// ackWait is after how long JetStream delivers a message again that was not acknowledged.
const ackWait = 30 * time.Second

// session draws over one connection to NATS. It has a consumer that delivers from the state's
// sequence on.
type session struct {
	*drawer
	connected  context.Context // ends with the connection
	stream     jetstream.Stream
	consumer   jetstream.Consumer
	maxPayload int64
	retention  jetstream.RetentionPolicy

	// nothingDrawn says that the source has just begun, so messages that are gone were not its own.
	nothingDrawn bool
	// acksAccepted says that JetStream has answered an acknowledgement of this session.
	acksAccepted bool

	lastDelivery uint64 // the consumer's number of the last message that was delivered
	lastSequence uint64 // the stream's number of it
	batchSize    int    // of the next transaction, in messages

	quietSince time.Time // when the last message came, or look was taken
	// undelivered is how many messages JetStream had for the consumer at the last look, if none has
	// come since.
	undelivered uint64
}

// open compares the stream with the state, or begins the source, and makes the consumer.
func (s *session) open() error {
	js, err := s.jetStream(s.source.Domain)
	if err != nil {
		return err
	}

	if s.stream, err = js.Stream(s.ctx, s.source.Stream); err != nil {
		return err
	}

	// A source that has drawn nothing has no stream to compare this one with.
	info := s.stream.CachedInfo()
	s.retention = info.Config.Retention
	s.nothingDrawn = s.state.Created.IsZero()
	if s.nothingDrawn {
		err = s.begin(info)
	} else {
		err = s.compare(info)
	}

	if err == nil {
		err = s.makeConsumer()
	}

	if err != nil {
		return err
	}

	s.lastSequence = s.state.Sequence
	left := s.consumer.CachedInfo().NumPending
	return s.change(func(state *settings.SourceState) {
		if s.nothingDrawn {
			state.Lag = left
		}

		if left == 0 { // otherwise once something arrives
			state.Lag, state.Waiting = 0, ""
		}
	})
}

// begin writes where a new source starts, or stops it if it cannot start there.
func (s *session) begin(info *jetstream.StreamInfo) error {
	first, last := max(info.State.FirstSeq, 1), info.State.LastSeq
	start, name := s.source.Start.Sequence(), s.source.Stream
	next := s.state
	next.Created, next.Sequence = info.Created, max(start, first)-1
	next.Consumer = cmp.Or(next.Consumer, s.drawer.consumer)
	if s.source.Start == "new" {
		next.Sequence = last
	}

	switch why := s.missing(info, start); {
	case next.Sequence > last:
		return s.stopSource(fmt.Sprintf("start is %d, and the last message of stream %s is %d: "+
			"set another start", start, name, last))
	case s.retention == jetstream.WorkQueuePolicy && next.Sequence >= first:
		return s.stopSource(fmt.Sprintf("stream %s is a work queue, which is drawn from its "+
			"start: set start to \"all\"", name))
	case start > 0 && why != "":
		return s.stopSource(why)
	}

	return s.commit(&next, nil, nil)
}

// setAgain says how to draw the stream from another place.
const setAgain = "remove the source and set it again, with the start that you want"

// compare stops the source if it has drawn from another stream, or this one has lost messages.
func (s *session) compare(info *jetstream.StreamInfo) error {
	state, name := &s.state, s.source.Stream
	why := s.missing(info, state.Sequence+1)
	switch {
	case !state.Created.Equal(info.Created):
		why = fmt.Sprintf("stream %s was created again, at %s: %s",
			name, info.Created.UTC().Format(time.RFC3339), setAgain)
	case info.State.LastSeq < state.Sequence:
		why = fmt.Sprintf("stream %s ends with message %d, and %d was drawn: it was restored, or "+
			"has lost messages: %s", name, info.State.LastSeq, state.Sequence, setAgain)
	case s.retention == jetstream.InterestPolicy && strings.Contains(state.Consumer, unique):
		// Such a stream keeps messages for the consumers it has.
		_, err := s.stream.Consumer(s.ctx, state.Consumer)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		} else if err != nil {
			why = fmt.Sprintf("the consumer %s of stream %s was removed, and messages after %d "+
				"may have gone with it: remove the source and set it again with \"start\":%d to "+
				"go on without them", state.Consumer, name, state.Sequence, state.Sequence+1)
		}
	}

	if why == "" {
		return nil
	}

	return s.stopSource(why)
}

// missing returns why the source has to stop if the stream begins behind the message with that
// sequence, "" if it need not.
func (s *session) missing(info *jetstream.StreamInfo, from uint64) string {
	switch {
	case info.State.FirstSeq <= from:
		return ""
	case s.source.Filter != "": // nobody knows whether it would have drawn them
		return ""
	case s.retention != jetstream.LimitsPolicy: // the stream removes drawn messages
		return ""
	case info.Config.MaxMsgsPerSubject > 0: // such a limit is there to remove messages
		return ""
	}

	first := info.State.FirstSeq
	return fmt.Sprintf("messages %d to %d of stream %s were removed before they were drawn: set "+
		"the source with \"start\":%d to go on without them", from, first-1, s.source.Stream, first)
}

// makeConsumer makes the consumer, and removes those before it.
func (s *session) makeConsumer() error {
	// It delivers the last message that was drawn once more, to see whether it is still the same.
	c := jetstream.ConsumerConfig{
		Durable:       s.drawer.consumer + unique + nuid.Next(),
		Description:   "draws for queue " + s.name.Name,
		FilterSubject: s.source.Filter, MaxAckPending: -1, MaxDeliver: -1,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.state.Sequence,
	}

	if s.state.Newest.IsZero() {
		c.OptStartSeq++
	}

	switch s.retention {
	case jetstream.LimitsPolicy:
		c.AckPolicy = jetstream.AckAllPolicy
	case jetstream.WorkQueuePolicy:
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverAllPolicy, 0
	}

	// Each consumer has a name of its own, or another bridge could take deliveries of this one for
	// its own: their numbers may be just what it expects. A work queue has one consumer at a time
	// and keeps its messages, so the old consumer goes first. A stream with interest loses messages
	// with its last consumer, so the old ones go once the state names the new one: until then
	// another bridge may draw.
	interest := s.retention == jetstream.InterestPolicy
	before, err := named(s.ctx, s.stream, s.drawer.consumer, s.state.Consumer)
	if err == nil && !interest {
		err = s.removeConsumers(s.stream, before)
	}

	if err == nil {
		s.consumer, err = s.stream.CreateConsumer(s.ctx, c)
	}

	if err != nil {
		return err
	}

	next, was := s.state, s.source
	next.Consumer = c.Durable
	err = s.commit(&next, nil, nil)
	if errors.Is(err, errChanged) || errors.Is(err, fdbpq.ErrNoSource) {
		// The next session of this source removes the new consumer and draws its messages. Without
		// a next session, nobody else removes it.
		readErr := s.read()
		moved := s.source.Stream != was.Stream || s.source.Domain != was.Domain
		if errors.Is(readErr, fdbpq.ErrNoSource) || readErr == nil && moved {
			_ = s.removeConsumers(s.stream, []string{c.Durable})
		}
	}

	if err == nil && interest {
		err = s.removeConsumers(s.stream, before)
	}

	return err
}
