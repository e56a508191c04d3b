package pqotel

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Config says where traces and metrics go. For nil, the global providers and propagator of package
// otel are used. The global propagator links nothing unless the program sets one:
//
//	otel.SetTextMapPropagator(propagation.TraceContext{})
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
}

// Telemetry makes spans and metrics. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator

	jobs     metric.Int64Counter
	running  metric.Int64UpDownCounter
	duration metric.Float64Histogram
	wait     metric.Float64Histogram
}

// scope is the name of this instrumentation.
const scope = "github.com/pqbridge/pqbridge/client/pqotel"

// buckets suit jobs, which take longer than the requests that the default buckets suit.
var buckets = metric.WithExplicitBucketBoundaries(
	0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6*3600, 24*3600)

// New returns a Telemetry. An error comes from the MeterProvider.
func New(c Config) (*Telemetry, error) {
	meter := cmp.Or(c.MeterProvider, otel.GetMeterProvider()).Meter(scope)
	t := &Telemetry{
		tracer:     cmp.Or(c.TracerProvider, otel.GetTracerProvider()).Tracer(scope),
		propagator: cmp.Or(c.Propagator, otel.GetTextMapPropagator()),
	}

	var errs [4]error
	t.jobs, errs[0] = meter.Int64Counter("pqbridge.worker.jobs",
		metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that ended, by what the Work returned."))
	t.running, errs[1] = meter.Int64UpDownCounter("pqbridge.worker.running",
		metric.WithUnit("{job}"), metric.WithDescription("Jobs that are being done."))
	t.duration, errs[2] = meter.Float64Histogram("pqbridge.worker.job.duration",
		metric.WithUnit("s"), buckets, metric.WithDescription("Time that the Work took."))
	t.wait, errs[3] = meter.Float64Histogram("pqbridge.worker.job.wait",
		metric.WithUnit("s"), buckets,
		metric.WithDescription("Time from the push to the first delivery."))
	return t, errors.Join(errs[:]...)
}

// describe returns the attributes of all spans, by the semantic conventions for messaging.
func describe(queue, operation string, kind attribute.KeyValue,
	value []byte) trace.SpanStartEventOption {
	return trace.WithAttributes(
		semconv.MessagingSystemKey.String("pqbridge"), semconv.MessagingDestinationName(queue),
		semconv.MessagingOperationName(operation), kind,
		semconv.MessagingMessageBodySize(len(value)))
}

// noteError marks a span as failed.
func noteError(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// carrier lets a propagator read and write headers, whose names are case sensitive.
type carrier nats.Header

func (c carrier) Get(key string) string { return nats.Header(c).Get(key) }
func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }
func (c carrier) Keys() []string        { return slices.Collect(maps.Keys(c)) }
