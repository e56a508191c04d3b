package sources

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// consumerName is the name of a queue's consumer, which says whose it is. In a stream with interest a
// unique part follows, after unique, which is in no name of a queue.
func consumerName(store string, queue fdbpq.QueueName) string {
	if queue.FIFO {
		return "pq_" + store + "_q_" + queue.Name
	}
	return "pq_" + store + "_pq_" + queue.Name
}

const unique = "="

// consumers returns the names of the queue's consumers.
func (d *drawer) consumers(stream jetstream.Stream) (names []string, err error) {
	list := stream.ConsumerNames(d.ctx)
	for name := range list.Name() {
		if name == d.consumer || strings.HasPrefix(name, d.consumer+unique) {
			names = append(names, name)
		}
	}
	return names, list.Err()
}

func (d *drawer) removeConsumers(stream jetstream.Stream, names []string) error {
	for _, name := range names {
		if err := stream.DeleteConsumer(d.ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

// makeConsumer makes the consumer, and removes those before it: first, because a work-queue stream has
// one at a time, and its messages stay. From a stream with interest they go with the last consumer. So
// there each has a name of its own, and those before it are removed once the state names it: until then
// another bridge may be the one that draws.
func (p *session) makeConsumer(retention jetstream.RetentionPolicy) error {
	before, err := p.consumers(p.stream)
	if err != nil {
		return err
	}
	c := jetstream.ConsumerConfig{
		Durable: p.drawer.consumer, Description: "draws for queue " + p.name.Name, FilterSubject: p.source.Filter,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: -1, MaxDeliver: -1,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: p.state.Sequence + 1,
	}
	switch retention {
	case jetstream.LimitsPolicy:
		c.AckPolicy = jetstream.AckAllPolicy
	case jetstream.WorkQueuePolicy:
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverAllPolicy, 0
	default:
		c.Durable += unique + nuid.Next()
		if p.consumer, err = p.stream.CreateConsumer(p.ctx, c); err != nil {
			return err
		}
		next := p.state
		next.Consumer = c.Durable
		if err = p.commit(&next, nil, nil); errors.Is(err, errChanged) {
			_ = p.removeConsumers(p.stream, []string{c.Durable})
		}
		if err != nil {
			return err
		}
		return p.removeConsumers(p.stream, before)
	}
	if err = p.removeConsumers(p.stream, before); err == nil {
		p.consumer, err = p.stream.CreateConsumer(p.ctx, c)
	}
	return err
}

// removeOthers removes the consumers of the source that the queue had before, if it can.
func (d *drawer) removeOthers(before *drawer) {
	if before.source.Stream == "" {
		return
	}
	js, err := before.jetStream()
	if err != nil {
		return
	}
	stream, err := js.Stream(d.ctx, before.source.Stream)
	if err != nil {
		return
	}
	names, err := d.consumers(stream) // first: none of them is one of a source that is set later
	if err != nil {
		return
	}
	if err = d.read(); errors.Is(err, fdbpq.ErrNoSource) || err == nil && d.source.Stream != before.source.Stream {
		_ = d.removeConsumers(stream, names)
	}
}
