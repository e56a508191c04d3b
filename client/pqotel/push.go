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
// Producer; Pusher does it itself:
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
	name := "queue" // if a fake has no name
	if named, ok := p.p.(interface{ Name() string }); ok {
		name = named.Name()
	}

	ctx, span := p.t.tracer.Start(ctx, "push "+name, trace.WithSpanKind(trace.SpanKindProducer),
		describe(name, "push", semconv.MessagingOperationTypeSend, m.Value))
	defer span.End()

	ack, err := p.p.PushMsg(ctx, priority, m.With(p.t.Link(ctx)), options...)
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
