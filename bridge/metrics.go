package bridge

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// metrics are what /metrics shows. All series that can be known in advance
// are there from the start, at zero.
type metrics struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	batchSize     prometheus.Histogram
	unanswered    prometheus.Counter
	replyFailures prometheus.Counter
	natsErrors    prometheus.Counter
	passed        prometheus.Counter
}

func newMetrics(b *Bridge) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pq_requests_total", Help: "Requests that were answered, errors included, by operation.",
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pq_errors_total", Help: "Requests that were answered with an error, by operation and code.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pq_request_seconds", Help: "Time from the arrival of a request to its reply.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.5 s
		}, []string{"operation"}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pq_batch_requests", Help: "Requests in each batch that was done.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // 1 to 2048
		}),
		unanswered: counter("pq_unanswered_total", "Requests that failed and had no usable reply subject."),
		replyFailures: counter("pq_reply_failures_total",
			"Replies that could not be handed to NATS; an item popped for one is pushed again."),
		passed: counter("pq_passed_total",
			"Pops handed to the bridge that pops from their queue."),
		natsErrors: counter("pq_nats_errors_total", "Errors that NATS reported, such as missing permissions."),
	}
	m.registry.MustRegister(
		m.requests, m.errors, m.seconds, m.batchSize, m.unanswered, m.replyFailures, m.natsErrors, m.passed,
		gauge("pq_pending_requests", "Requests that wait or run.", func() float64 { return float64(b.load.requests.Load()) }),
		gauge("pq_pending_bytes", "Bytes of the requests that wait or run.", func() float64 { return float64(b.load.bytes.Load()) }),
		gauge("pq_bridges", "Bridges that share the queues as far as this one knows, itself included.", b.bridges),
		gauge("pq_direct_subjects", "Subjects of busy queues that this bridge pops from and subscribes to by name.", b.directSubjects),
		gauge("pq_nats_connected", "1 if connected to NATS.", b.isConnected),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pq_dropped_total", Help: "Messages dropped because they came faster than they could be looked at.",
		}, b.dropped),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&queueCollector{b},
	)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func (b *Bridge) isConnected() float64 {
	if b.nc != nil && b.nc.IsConnected() {
		return 1
	}
	return 0
}

func (b *Bridge) bridges() float64 {
	if b.router == nil {
		return 1
	}
	return float64(b.router.together())
}

func (b *Bridge) directSubjects() float64 {
	if b.router == nil {
		return 0
	}
	return float64(b.router.direct.subjects())
}

// endpoint makes the series of an endpoint.
func (m *metrics) endpoint(name, subject string) *endpoint {
	e := &endpoint{
		name:    name,
		subject: subject,
		total:   m.requests.WithLabelValues(name),
		seconds: m.seconds.WithLabelValues(name),
		failed:  map[int]prometheus.Counter{},
	}
	e.lastError.Store(new(string))
	for _, code := range codes {
		e.failed[code] = m.errors.WithLabelValues(name, strconv.Itoa(code))
	}
	return e
}

var (
	queueLengthDesc = prometheus.NewDesc("pq_queue_length",
		"Items in a queue, without those that other programs added.", []string{"kind", "queue"}, nil)
	queuesLeftOutDesc = prometheus.NewDesc("pq_queue_length_truncated",
		"1 if there are more queues of the kind than pq_queue_length shows.", []string{"kind"}, nil)
	queuesReadDesc = prometheus.NewDesc("pq_queue_length_up",
		"1 if the queue lengths could be read from the store.", nil, nil)
)

// queueCollector reads the lengths of the queues when it is asked.
type queueCollector struct{ b *Bridge }

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueLengthDesc
	ch <- queuesLeftOutDesc
	ch <- queuesReadDesc
}

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	if c.b.options.MetricQueues < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.b.options.HTTPTimeout)
	defer cancel()
	lengths, err := kv.ReadTransact(ctx, c.b.db, c.read)
	up := 1.0
	if err != nil {
		c.b.quiet.store.warn("the queue lengths could not be read", "error", err)
		up = 0
	}
	ch <- prometheus.MustNewConstMetric(queuesReadDesc, prometheus.GaugeValue, up)
	for _, metric := range lengths {
		ch <- metric
	}
}

// read reads the lengths of both kinds of queues, all at once: first the names,
// then the lengths.
func (c *queueCollector) read(r kv.Reader) ([]prometheus.Metric, error) {
	k, limit := c.b.keyspace, c.b.options.MetricQueues
	kinds := []struct {
		kind  subjects.Kind
		names kv.Future[[]string]
		open  func(name string) (fdbpq.Target, error)
	}{
		{subjects.Priority, k.PriorityQueues(r, "", limit+1), func(name string) (fdbpq.Target, error) { return k.PriorityQueue(name) }},
		{subjects.FIFO, k.Queues(r, "", limit+1), func(name string) (fdbpq.Target, error) { return k.Queue(name) }},
	}
	var found []prometheus.Metric
	var labels [][]string // of the lengths
	var lens []fdbpq.Op
	for _, of := range kinds {
		names, err := of.names.Get()
		if err != nil {
			return nil, err
		}
		truncated := 0.0
		if len(names) > limit {
			names, truncated = names[:limit], 1
		}
		found = append(found, prometheus.MustNewConstMetric(queuesLeftOutDesc, prometheus.GaugeValue, truncated, of.kind.String()))
		for _, name := range names {
			q, err := of.open(name)
			if err != nil {
				return nil, err
			}
			labels = append(labels, []string{of.kind.String(), name})
			lens = append(lens, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q})
		}
	}
	results, err := fdbpq.Read(r, lens)
	if err != nil {
		return nil, err
	}
	for i, result := range results {
		if result.Err != nil {
			return nil, result.Err
		}
		found = append(found, prometheus.MustNewConstMetric(queueLengthDesc, prometheus.GaugeValue, float64(result.Len), labels[i]...))
	}
	return found, nil
}
