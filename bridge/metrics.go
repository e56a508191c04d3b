package bridge

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// metrics counts what /metrics shows, besides the gauges. All series that can be known in advance
// exist from the start, at zero.
type metrics struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	batchSize     prometheus.Histogram
	unanswered    prometheus.Counter
	lostItems     prometheus.Counter
	replyFailures prometheus.Counter
	givenBack     map[outbox.Reason]prometheus.Counter
	natsErrors    prometheus.Counter
	forwarded     prometheus.Counter
	deliveries    prometheus.Counter
	redeliveries  prometheus.Counter
	duplicates    prometheus.Counter
	items         *prometheus.HistogramVec
	refused       map[string]prometheus.Counter // by setting
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	auto := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}

	m := &metrics{
		registry: registry,
		requests: counters("pq_requests_total", "Requests that were answered, errors included, by operation.", "operation"),
		errors:   counters("pq_errors_total", "Requests that were answered with an error, by operation and code.", "operation", "code"),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pq_request_seconds", Help: "Time from the arrival of a request to its reply, of requests that may not wait for items.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.5 s
		}, []string{"operation"}),
		batchSize: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pq_batch_requests", Help: "Operations in each completed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // 1 to 2048
		}),
		unanswered: counter("pq_unanswered_total", "Requests that failed and had no usable reply subject."),
		lostItems:  counter("pq_lost_items_total", "Popped items that could be neither delivered nor put back."),
		replyFailures: counter("pq_reply_failures_total",
			"Replies that could not be handed to NATS, or that NATS refused; an item popped for one is given back."),
		givenBack:    map[outbox.Reason]prometheus.Counter{},
		natsErrors:   counter("pq_nats_errors_total", "Errors that NATS reported, such as missing permissions."),
		forwarded:    counter("pq_passed_total", "Pops forwarded to the bridge that owns their queue."),
		deliveries:   counter("pq_deliveries_total", "Items delivered with a lease."),
		redeliveries: counter("pq_redeliveries_total", "Items delivered with a lease that had been delivered before."),
		duplicates:   counter("pq_duplicates_total", "Pushes that changed nothing because they were duplicates, each of a batch."),
		items: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pq_request_items", Help: "Items in each request for several, by operation.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13), // 1 to 4096
		}, []string{"operation"}),
		refused: map[string]prometheus.Counter{},
	}

	// All series that can be known in advance.
	givenBack := counters("pq_given_back_total", "Popped items that nobody received and that went back to their places, by reason.", "reason")
	for _, why := range outbox.Reasons() {
		m.givenBack[why] = givenBack.WithLabelValues(string(why))
	}
	refused := counters("pq_refused_total", "Requests that were refused because of a limit of their queue, by setting.", "reason")
	for _, limit := range limitErrors {
		m.refused[limit.setting] = refused.WithLabelValues(limit.setting)
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

// noteRefused counts an error that is about a limit.
func (m *metrics) noteRefused(err error) {
	for _, limit := range limitErrors {
		if errors.Is(err, limit.err) && classify(err).code == subjects.CodeOverloaded {
			m.refused[limit.setting].Inc()
			return
		}
	}
}

// noteDuplicates counts pushes that changed nothing.
func (m *metrics) noteDuplicates(results []fdbpq.Result) {
	for i := range results {
		if results[i].Duplicate {
			m.duplicates.Inc()
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
