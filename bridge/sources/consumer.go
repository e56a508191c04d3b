package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// unique stands between the parts of a consumer's name: drawer.consumer, which says whose it is,
// and a part of its own. No name of a queue contains it.
const unique = "="

// baseName returns the name of a consumer without its unique part.
func baseName(name string) string {
	base, _, _ := strings.Cut(name, unique)
	return base
}

// named returns the consumers of a stream that have one of the names, whatever their unique parts.
func named(
	ctx context.Context, stream jetstream.Stream, names ...string,
) (found []string, err error) {
	for i, name := range names {
		names[i] = baseName(name)
	}

	list := stream.ConsumerNames(ctx)
	for name := range list.Name() {
		if slices.Contains(names, baseName(name)) {
			found = append(found, name)
		}
	}

	return found, list.Err()
}

// removeConsumers removes consumers that may be gone already.
func (d *drawer) removeConsumers(stream jetstream.Stream, names []string) error {
	for _, name := range names {
		err := stream.DeleteConsumer(d.ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}

	return nil
}

// removeFormer removes the consumers of sources that the queue had before. What it cannot
// remove stays in the state. It tries once in cleanEvery, or at once if this source draws from one
// of their streams.
func (d *drawer) removeFormer() (err error) {
	former := d.state.Former
	recent := time.Since(d.cleanedAt) < cleanEvery
	if len(former) == 0 || recent && !slices.ContainsFunc(former, d.sameStream) {
		return nil
	}

	d.cleanedAt = time.Now()

	var left []settings.SourceConsumer
	for _, c := range former {
		failed := d.removeOne(c)
		if failed != nil && !errors.Is(failed, jetstream.ErrStreamNotFound) {
			left = append(left, c)
			err = fmt.Errorf("the consumer %s of stream %s cannot be removed: %w",
				c.Name, c.Stream, failed)
		}
	}

	if len(left) < len(former) {
		err = errors.Join(err, d.change(func(s *settings.SourceState) { s.Former = left }))
	}

	return err
}

// sameStream reports whether the source draws from the stream of a consumer.
func (d *drawer) sameStream(c settings.SourceConsumer) bool {
	return c.Stream == d.source.Stream && c.Domain == d.source.Domain
}

// removeOne removes a former consumer. In a work queue it also removes what that has drawn.
func (d *drawer) removeOne(c settings.SourceConsumer) error {
	js, err := d.jetStream(c.Domain)
	if err != nil {
		return err
	}

	stream, err := js.Stream(d.ctx, c.Stream)
	if err != nil {
		return err
	}

	queue := stream.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy
	if !queue && baseName(c.Name) == d.consumer && d.sameStream(c) {
		return nil // the next consumer of this stream replaces it
	}

	names, err := named(d.ctx, stream, c.Name)
	if err == nil {
		err = d.removeConsumers(stream, names)
	}

	if err != nil || !queue {
		return err
	}

	return d.ackDrawn(stream, c)
}

// ackDrawn acknowledges messages of a work queue that were drawn and are still there, because their
// acknowledgements were lost or too late. Otherwise a source that knows nothing of them would draw
// them again.
func (d *drawer) ackDrawn(stream jetstream.Stream, c settings.SourceConsumer) error {
	name := baseName(c.Name)
	consumer, err := stream.CreateConsumer(d.ctx, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: c.Filter,
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
	if err == nil && consumer.CachedInfo().NumPending > 0 {
		err = d.ackUpTo(consumer.CachedInfo(), c)
	}

	if err == nil {
		err = d.removeConsumers(stream, []string{name})
	}

	return err
}

// ackUpTo acknowledges the messages of a consumer that a former one has drawn.
func (d *drawer) ackUpTo(consumer *jetstream.ConsumerInfo, former settings.SourceConsumer) error {
	messages, err := newPuller(d.config.Conn(), former.Domain, consumer)
	if err != nil {
		return err
	}

	defer messages.stop()

	var last *nats.Msg // its answer comes after all acknowledgements
	for pending := consumer.NumPending; pending > 0; {
		m, err := messages.next(d.ctx, 2*heartbeat)
		if err != nil {
			return err
		} else if m == nil {
			break
		}

		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Stream > former.Sequence {
			break
		}

		if pending = meta.NumPending; meta.Timestamp.After(former.Newest) {
			continue // another message has the sequence of one that was drawn
		}

		if last != nil {
			_ = last.Ack()
		}

		last = m
	}

	if last == nil {
		return nil
	}

	return doubleAck(d.ctx, last)
}

// ackTimeout is how long doubleAck waits.
const ackTimeout = 5 * time.Second

// errNotAcked is of a session whose acknowledgements do not arrive.
var errNotAcked = errors.New("JetStream does not take acknowledgements: " +
	"has this bridge the right to publish them?")

// doubleAck acknowledges a message and waits until JetStream says that it has.
func doubleAck(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := m.AckSync(nats.Context(ctx)); err != nil {
		return fmt.Errorf("%w (%w)", errNotAcked, err)
	}
	return nil
}
