package bridge

import (
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// metrics counts what /metrics shows, besides the gauges. All series that can be known in advance
// exist from the start, at zero.
type metrics struct {
	registry *prometheus.Registry

	// By operation.
	requests, errors *prometheus.CounterVec
	seconds, items   *prometheus.HistogramVec

	batchSize     prometheus.Histogram
	jobs          prometheus.Histogram // seconds that they ran
	unanswered    prometheus.Counter
	lostItems     prometheus.Counter
	replyFailures prometheus.Counter
	natsErrors    prometheus.Counter
	forwarded     prometheus.Counter
	deliveries    prometheus.Counter
	redeliveries  prometheus.Counter
	duplicates    prometheus.Counter
	givenBack     *prometheus.CounterVec // by outbox.Reason
	refused       *prometheus.CounterVec // by setting
}

// collector makes series each time that /metrics is asked for.
type collector func(chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

// series makes the series of a registry.
type series struct{ promauto.Factory }

func (s series) counter(name, help string) prometheus.Counter {
	return s.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (s series) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return s.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// histograms makes histograms by operation. Each bucket is twice as wide as the one before.
func (s series) histograms(name, help string, start float64, buckets int) *prometheus.HistogramVec {
	doubling := prometheus.ExponentialBuckets(start, 2, buckets)
	o := prometheus.HistogramOpts{Name: name, Help: help, Buckets: doubling}
	return s.NewHistogramVec(o, []string{"operation"})
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	auto := series{promauto.With(registry)}

	m := &metrics{
		registry: registry,
		requests: auto.counters("pq_requests_total",
			"Requests that were answered, errors included, by operation.", "operation"),
		errors: auto.counters("pq_errors_total",
			"Requests that were answered with an error, by operation and code.",
			"operation", "code"),
		seconds: auto.histograms("pq_request_seconds", "Time from the arrival of a request to its "+
			"reply, of requests that may not wait for items.", 0.0001, 17), // 0.1 ms to 6.5 s
		items: auto.histograms("pq_request_items",
			"Items in each request that is for several items, by operation.", 1, 13), // 1 to 4096
		batchSize: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pq_batch_requests", Help: "Operations in each completed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // 1 to 2048
		}),
		jobs: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pq_job_seconds", Help: "Time from the start of a job's last lease to its " +
				"acknowledgement, of jobs that are kept once they are done.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 25), // 1 ms to 4.7 h
		}),
		unanswered: auto.counter("pq_unanswered_total",
			"Requests that failed and had no usable reply subject."),
		lostItems: auto.counter("pq_lost_items_total",
			"Popped items that could be neither delivered nor put back."),
		replyFailures: auto.counter("pq_reply_failures_total", "Replies that could not be handed "+
			"to NATS, or that NATS refused; an item popped for one is given back."),
		natsErrors: auto.counter("pq_nats_errors_total",
			"Errors that NATS reported, such as missing permissions."),
		forwarded: auto.counter("pq_passed_total",
			"Pops forwarded to the bridge that owns their queue."),
		deliveries: auto.counter("pq_deliveries_total", "Items delivered with a lease."),
		redeliveries: auto.counter("pq_redeliveries_total",
			"Items delivered with a lease that had been delivered before."),
		duplicates: auto.counter("pq_duplicates_total",
			"Pushes that changed nothing because they were duplicates; "+
				"each item of a batch counts."),
		givenBack: auto.counters("pq_given_back_total", "Popped items that nobody received and "+
			"that went back to their places, by reason.", "reason"),
		refused: auto.counters("pq_refused_total", "Requests that were refused because of a limit "+
			"of their queue, by setting.", "reason"),
	}

	// These labels are known in advance, so their series exist from the start.
	for _, why := range outbox.Reasons() {
		m.givenBack.WithLabelValues(string(why))
	}
	for _, limit := range limitErrors {
		m.refused.WithLabelValues(limit.setting)
	}

	return m
}

// limitErrors has the setting that each error of a limit is about. The first that matches counts.
var limitErrors = []struct {
	err     error
	setting string
}{
	{fdbpq.ErrFullBytes, "max_bytes"},
	{fdbpq.ErrFull, "max_items"},
	{fdbpq.ErrMaxLeased, "max_leased"},
	{fdbpq.ErrRate, "rate"},
}

// returned counts an item that nobody received and that went back.
func (m *metrics) returned(why outbox.Reason) { m.givenBack.WithLabelValues(string(why)).Inc() }

// noteRefused counts an error that is about a limit.
func (m *metrics) noteRefused(err error) {
	for _, limit := range limitErrors {
		if errors.Is(err, limit.err) && requests.Failure(err).Code == subjects.CodeOverloaded {
			m.refused.WithLabelValues(limit.setting).Inc()
			return
		}
	}
}

// delivered counts a delivery with a lease.
func (m *metrics) delivered(deliveries int64) {
	m.deliveries.Inc()
	if deliveries > 1 {
		m.redeliveries.Inc()
	}
}

// endpoint counts the requests of one endpoint. It implements requests.Endpoint.
type endpoint struct {
	subjects.Endpoint

	// For service discovery.
	requests, errors, nanoseconds atomic.Int64
	lastError                     atomic.Pointer[string]

	// For /metrics.
	total   prometheus.Counter
	failed  map[subjects.Code]prometheus.Counter // by code
	seconds prometheus.Observer
	items   prometheus.Observer // of requests for several
}

// endpoint makes the series of an endpoint.
func (m *metrics) endpoint(of subjects.Endpoint) *endpoint {
	e := &endpoint{
		Endpoint: of,
		total:    m.requests.WithLabelValues(of.Name),
		seconds:  m.seconds.WithLabelValues(of.Name),
		items:    m.items.WithLabelValues(of.Name),
		failed:   map[subjects.Code]prometheus.Counter{},
	}

	e.lastError.Store(new(string))
	for _, code := range subjects.Codes() {
		e.failed[code] = m.errors.WithLabelValues(of.Name, strconv.Itoa(int(code)))
	}

	return e
}

// String returns the name.
func (e *endpoint) String() string { return e.Name }

// Done counts an answered request.
func (e *endpoint) Done(r *dispatch.Request, failed *subjects.Error) {
	e.requests.Add(1)
	e.total.Inc()

	// Skip requests that wait for items: their time says nothing about the service.
	if r.Wait == nil {
		took := r.Answered.Sub(r.Received) - r.Waited
		e.nanoseconds.Add(int64(took))
		e.seconds.Observe(took.Seconds())
	}

	if failed == nil {
		return
	}

	if failed.Code != subjects.CodeNotFound { // an empty queue is nobody's fault
		e.errors.Add(1)
		e.lastError.Store(&failed.Text)
	}

	e.failed[failed.Code].Inc()
}

// Items counts the items of a request for several.
func (e *endpoint) Items(n int) { e.items.Observe(float64(n)) }

// answered returns the number of requests answered.
func (b *Bridge) answered() int64 {
	n := b.unknown.requests.Load()
	for _, e := range b.endpoints {
		n += e.requests.Load()
	}
	return n
}

// oneIf returns 1 if b is true, else 0.
func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
