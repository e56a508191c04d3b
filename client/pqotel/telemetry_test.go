package pqotel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/client/pqotel"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// observed is a Telemetry, and what it has noted.
type observed struct {
	*testing.T
	*pqotel.Telemetry
	tracer *trace.TracerProvider
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

func newObserved(t *testing.T) *observed {
	o := &observed{T: t, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	o.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(o.spans))
	var err error
	o.Telemetry, err = pqotel.New(pqotel.Config{
		TracerProvider: o.tracer,
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(o.reader)),
		Propagator:     propagation.TraceContext{},
	})
	must(t, err)
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// span returns the n-th span of that name that has ended.
func (o *observed) span(name string, n int) trace.ReadOnlySpan {
	o.Helper()
	for _, span := range o.spans.Ended() {
		if span.Name() == name {
			if n == 0 {
				return span
			}
			n--
		}
	}

	o.Fatalf("no span %s", name)
	return nil
}

// isChild fails the test unless a span is a child of the other, in the same trace.
func (o *observed) isChild(span, parent trace.ReadOnlySpan) {
	o.Helper()
	if span.SpanContext().TraceID() != parent.SpanContext().TraceID() ||
		span.Parent().SpanID() != parent.SpanContext().SpanID() {
		o.Errorf("%s is no child of %s", span.Name(), parent.Name())
	}
}

// sum returns the numbers of a metric, by the attribute or, without, by "".
func (o *observed) sums(name, by string) map[string]int64 {
	o.Helper()
	var all metricdata.ResourceMetrics
	must(o.T, o.reader.Collect(context.Background(), &all))

	sums := map[string]int64{}
	value := func(set attribute.Set) string {
		v, _ := set.Value(attribute.Key(by))
		return v.AsString()
	}

	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if m.Name == name {
					sums[value(p.Attributes)] += p.Value
				}
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				if m.Name == name {
					sums[value(p.Attributes)] += int64(p.Count)
				}
			}
		}
	}

	return sums
}

// A push, its wait and its jobs are one trace, through NATS and the queue.
func TestTrace(t *testing.T) {
	o := newObserved(t)
	nc := testenv.New(t, testenv.Options{}).Conn
	jobs := client.New(nc, client.WithTimeout(testenv.Patience)).PriorityQueue("jobs")
	ack, err := o.Pusher(jobs).Push(t.Context(), 5, []byte("hello"), client.Type("letter"))
	must(t, err)

	ctx, stop := context.WithCancel(t.Context())
	worker, err := jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		_, inner := o.tracer.Tracer("test").Start(ctx, "inner")
		defer inner.End()
		if job.Headers.Get("Type") != "letter" {
			t.Errorf("headers: %v", job.Headers)
		}

		if job.Deliveries == 1 {
			return client.RetryAfter(0, errors.New("not yet"))
		}

		stop()
		return nil
	}, client.WorkerOptions{
		Middleware: []func(client.Work) client.Work{o.Middleware},
		Logger:     slog.New(slog.DiscardHandler),
	})
	must(t, err)
	must(t, worker.Run(ctx))

	push, wait := o.span("push jobs", 0), o.span("wait jobs", 0)
	first, second := o.span("process jobs", 0), o.span("process jobs", 1)

	for _, span := range []trace.ReadOnlySpan{wait, first, second} {
		o.isChild(span, push)
	}
	o.isChild(o.span("inner", 0), first)
	if len(o.spans.Ended()) != 6 || wait.StartTime().After(wait.EndTime()) {
		t.Errorf("%d spans; the wait is from %v to %v",
			len(o.spans.Ended()), wait.StartTime(), wait.EndTime())
	}
	if first.Status() != (trace.Status{Code: codes.Error, Description: "not yet"}) ||
		second.Status().Code != codes.Unset {
		t.Errorf("statuses %+v, %+v", first.Status(), second.Status())
	}

	for _, want := range []attribute.KeyValue{
		attribute.String("messaging.system", "pqbridge"),
		attribute.String("messaging.destination.name", "jobs"),
		attribute.String("messaging.message.id", ack.ID),
		attribute.Int64("pqbridge.priority", 5),
	} {
		if !slices.Contains(push.Attributes(), want) || !slices.Contains(first.Attributes(), want) {
			t.Errorf("%v is missing", want)
		}
	}

	o.has("pqbridge.worker.jobs", "pqbridge.outcome", "done 1, failed 1")
	o.has("pqbridge.worker.job.duration", "messaging.destination.name", "jobs 2")
	o.has("pqbridge.worker.job.wait", "messaging.destination.name", "jobs 1")
	o.has("pqbridge.worker.running", "messaging.destination.name", "jobs 0")
}

// has fails the test unless a metric has these numbers.
func (o *observed) has(name, by, want string) {
	o.Helper()
	var got []string
	sums := o.sums(name, by)

	for _, key := range slices.Sorted(maps.Keys(sums)) {
		got = append(got, fmt.Sprint(key, " ", sums[key]))
	}

	if text := strings.Join(got, ", "); text != want {
		o.Errorf("%s: %s, want %s", name, text, want)
	}
}

// Each way to end a job has an outcome.
func TestOutcomes(t *testing.T) {
	o := newObserved(t)
	ended := func(cause error) context.Context {
		ctx, end := context.WithCancelCause(t.Context())
		end(cause)
		return ctx
	}

	failed := errors.New("no")
	for _, test := range []struct {
		ctx context.Context
		err error
	}{
		{t.Context(), nil},
		{t.Context(), failed},
		{t.Context(), client.Snooze(time.Minute)},
		{t.Context(), client.Drop("why")},
		{ended(client.ErrTimedOut), failed},
		{ended(client.ErrTimedOut), nil}, // done all the same
		{ended(client.ErrStopped), failed},
		{ended(client.ErrLeaseLost), failed},
	} {
		work := o.Middleware(func(context.Context, *client.Job) error { return test.err })

		err := work(test.ctx, &client.Job{Queue: "jobs"})

		if err != test.err {
			t.Errorf("returned %v, want %v", err, test.err)
		}
	}

	panics := o.Middleware(func(context.Context, *client.Job) error { panic("oh") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was recovered")
			}
		}()
		_ = panics(t.Context(), &client.Job{Queue: "jobs"})
	}()

	o.has("pqbridge.worker.jobs", "pqbridge.outcome",
		"done 2, dropped 1, failed 1, lost 1, panicked 1, snoozed 1, stopped 1, timed_out 1")
	o.has("pqbridge.worker.running", "", " 0")
	if wait := o.sums("pqbridge.worker.job.wait", ""); len(wait) > 0 {
		t.Errorf("waited: %v", wait)
	}
}

// Pushes fail in the trace as well, and Link is for those without a span.
func TestPushes(t *testing.T) {
	o := newObserved(t)
	nc := testenv.New(t, testenv.Options{}).Conn

	mail := client.New(nc, client.WithTimeout(testenv.Patience)).FIFOQueue("mail")
	reserved := client.Message{Headers: nats.Header{"Pq-Odd": {"1"}}}
	if _, err := o.Pusher(mail).PushMsg(t.Context(), 0, reserved); err == nil {
		t.Error("a reserved header was pushed")
	}

	failed := o.span("push mail", 0)
	if failed.Status().Code != codes.Error || len(failed.Events()) != 1 {
		t.Errorf("a push that failed has status %+v", failed.Status())
	}

	options := make([]client.PushOption, 1, 2) // whose memory is the caller's
	options[0] = client.MsgID("a")

	for range 2 {
		_, err := o.Pusher(mail).Push(t.Context(), 0, nil, options...)
		must(t, err)
	}
	if options[:2][1] != nil {
		t.Error("an option was added to the caller's")
	}
	duplicate := attribute.Bool("pqbridge.duplicate", true)
	if !slices.Contains(o.span("push mail", 2).Attributes(), duplicate) {
		t.Error("the second push is no duplicate")
	}

	ctx, parent := o.tracer.Tracer("test").Start(t.Context(), "parent")
	_, err := mail.PushBatch(ctx, []client.PushItem{{Message: client.Message{}.With(o.Link(ctx))}})
	must(t, err)
	parent.End()

	items, err := mail.PopBatch(t.Context(), 2)
	must(t, err)

	got := items[1].Headers.Get("traceparent")
	if !strings.Contains(got, parent.SpanContext().SpanID().String()) {
		t.Errorf("traceparent %q", got)
	}
}
