package proof_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// Half of the pulls that clients send one by one are those of package jetstream, as most of its users make them: Fetch,
// FetchNoWait and Next. So are the acknowledgements of the messages that these return.

// fetchGrace is how much longer than it asks the service to wait a Fetch waits, and fetchSlack how much earlier it ends at
// least if the service told it to.
const (
	fetchGrace = time.Second
	fetchSlack = 200 * time.Millisecond
)

// byPackage makes a pull, or an acknowledgement, with package jetstream. It reports false if that is to be done without it.
func (b *burster) byPackage(op *books.Operation) bool {
	op.Client = b.number
	if !op.Kind.Takes() {
		message := b.grip(op).message
		if message == nil {
			return false
		}
		op.Call = time.Since(b.zero).Nanoseconds()
		b.endByPackage(op, b.use(op, message))
		return true
	}
	if b.sent++; op.MaxBytes > 0 || b.sent%2 == 0 {
		return false
	}

	consumer, err := b.consumer(op.Queue, op.Consumer)
	op.Call = time.Since(b.zero).Nanoseconds()
	if err != nil { // nothing was pulled
		b.endByPackage(op, fmt.Errorf("%w: %w", client.ErrNoBridge, err))
		return true
	}
	b.endByPackage(op, b.fetch(op, consumer))
	return true
}

func (b *burster) endByPackage(op *books.Operation, err error) {
	op.Return = time.Since(b.zero).Nanoseconds()
	if op.Outcome = b.outcome(op, err); err != nil {
		op.Text = err.Error()
	}
}

// consumer returns a consumer of a queue.
func (c *caller) consumer(queue, name string) (jetstream.Consumer, error) {
	key := queue + " " + name
	if known := c.js[key]; known != nil {
		return known, nil
	}
	js, err := jetstream.NewWithDomain(c.line.nc, domain(queue))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.line.context(), silenceTime)
	defer cancel()
	found, err := js.Consumer(ctx, queue, name)
	if err == nil {
		c.js[key] = found
	}
	return found, err
}

// fetch pulls.
func (b *burster) fetch(op *books.Operation, consumer jetstream.Consumer) (err error) {
	reconnects := b.line.nc.Stats().Reconnects
	n, wait := max(1, op.Batch), time.Duration(op.Expires)
	var batch jetstream.MessageBatch
	switch {
	case wait == 0:
		batch, err = consumer.FetchNoWait(n)
	case n == 1:
		var next jetstream.Msg
		if next, err = consumer.Next(jetstream.FetchMaxWait(wait)); err == nil {
			return b.fetched(op, next)
		}
	default:
		batch, err = consumer.Fetch(n, jetstream.FetchMaxWait(wait))
	}

	if batch != nil {
		for m := range batch.Messages() {
			err = errors.Join(err, b.fetched(op, m))
		}
		err = errors.Join(err, batch.Error())
	}
	switch {
	case len(op.Items) == n:
		return err
	case errors.Is(err, nats.ErrTimeout) && n == 1:
		err = nil
	}
	took := time.Since(b.zero) - time.Duration(op.Call)
	if err == nil && (b.line.nc.Stats().Reconnects != reconnects || took > wait+fetchGrace-fetchSlack) {
		return errNotAll
	}
	return b.endOfFetch(op, err)
}

// endOfFetch returns what it means that a pull ended with an error, or without one.
func (b *burster) endOfFetch(op *books.Operation, err error) error {
	switch {
	case err == nil, errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
		return endOfPull(op, "404", "of a Fetch")
	case errors.Is(err, nats.ErrNoResponders):
		return endOfPull(op, "503", "")
	case errors.Is(err, errTorn), errors.Is(err, client.ErrBadReply):
		return err
	}
	return fmt.Errorf("%w: %w", client.ErrUnknownOutcome, err)
}

// fetched records an item.
func (b *burster) fetched(op *books.Operation, m jetstream.Msg) error {
	g, err := b.pulled(op, m.Reply(), m.Headers(), m.Data())
	if g != nil {
		g.message = m
	}
	return err
}

// errSilent: whether an acknowledgement counts is not told.
var errSilent = fmt.Errorf("%w: nobody answers that", client.ErrUnknownOutcome)

// use acknowledges a message. Package jetstream does that once for each message.
func (b *burster) use(op *books.Operation, m jetstream.Msg) (err error) {
	ctx, cancel := context.WithTimeout(b.line.context(), silenceTime)
	defer cancel()
	switch op.Kind {
	case books.Ack:
		if err = m.DoubleAck(ctx); err == nil {
			return nil
		}
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			return fmt.Errorf("%w: %w", client.ErrUnknownOutcome, err)
		}
		return fmt.Errorf("%w: %w", client.ErrNoBridge, err)
	case books.Nak:
		if op.Delay > 0 {
			err = m.NakWithDelay(time.Duration(op.Delay))
		} else {
			err = m.Nak()
		}
	case books.Term:
		err = m.TermWithReason("dropped")
	case books.Extend:
		err = m.InProgress()
	}
	if err == nil {
		return errSilent
	}
	return fmt.Errorf("%w: %w", client.ErrNoBridge, err)
}
