package pqotel

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pqbridge/pqbridge/client"
)

// Link makes the spans of an item children of the span in ctx. It is for items of batches and of a
// Producer; Pusher and Enqueuer do it themselves:
//
//	item.Message = item.Message.With(telemetry.Link(ctx))
//	push, err := producer.PushAsync(ctx, 5, m, telemetry.Link(ctx))
func (t *Telemetry) Link(ctx context.Context) client.PushOption {
	return func(h nats.Header) { t.propagator.Inject(ctx, carrier(h)) }
}

// Pusher returns a Pusher that pushes to p and makes a span of each push.
func (t *Telemetry) Pusher(p client.Pusher) client.Pusher { return pusher{t, p} }

type pusher struct {
	t *Telemetry
	p client.Pusher
}

func (p pusher) Push(ctx context.Context, priority int64, value []byte,
	options ...client.PushOption) (client.PushAck, error) {
	return p.PushMsg(ctx, priority, client.Message{Value: value}, options...)
}

func (p pusher) PushMsg(ctx context.Context, priority int64, m client.Message,
	options ...client.PushOption) (client.PushAck, error) {
	send := func(ctx context.Context, m client.Message) (client.PushAck, error) {
		return p.p.PushMsg(ctx, priority, m, options...)
	}
	return p.t.push(ctx, p.p, m, send)
}

// Enqueuer returns an Enqueuer that pushes to e and makes a span of each push.
func (t *Telemetry) Enqueuer(e client.Enqueuer) client.Enqueuer { return enqueuer{t, e} }

type enqueuer struct {
	t *Telemetry
	e client.Enqueuer
}

func (e enqueuer) Enqueue(ctx context.Context, value []byte,
	options ...client.PushOption) (client.PushAck, error) {
	return e.EnqueueMsg(ctx, client.Message{Value: value}, options...)
}

func (e enqueuer) EnqueueMsg(ctx context.Context, m client.Message,
	options ...client.PushOption) (client.PushAck, error) {
	send := func(ctx context.Context, m client.Message) (client.PushAck, error) {
		return e.e.EnqueueMsg(ctx, m, options...)
	}
	return e.t.push(ctx, e.e, m, send)
}

// push makes the span of one push to a queue.
func (t *Telemetry) push(ctx context.Context, queue any, m client.Message,
	send func(context.Context, client.Message) (client.PushAck, error)) (client.PushAck, error) {
	name := "queue" // if a fake has no name
	if named, ok := queue.(interface{ Name() string }); ok {
		name = named.Name()
	}

	ctx, span := t.tracer.Start(ctx, "push "+name, trace.WithSpanKind(trace.SpanKindProducer),
		describe(name, "push", semconv.MessagingOperationTypeSend, m.Value))
	defer span.End()

	ack, err := send(ctx, m.With(t.Link(ctx)))
	if err != nil {
		noteError(span, err)
		return ack, err
	}

	span.SetAttributes(semconv.MessagingMessageID(ack.ID),
		attribute.Int64("pqbridge.priority", ack.Priority))
	if ack.Duplicate {
		span.SetAttributes(attribute.Bool("pqbridge.duplicate", true))
	}
	return ack, nil
}
