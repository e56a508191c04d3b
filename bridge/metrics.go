package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// metrics holds what /metrics shows. All series that can be known in advance exist from
// the start, at zero.
type metrics struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	batchSize     prometheus.Histogram
	unanswered    prometheus.Counter
	lostItems     prometheus.Counter
	replyFailures prometheus.Counter
	natsErrors    prometheus.Counter
	forwarded     prometheus.Counter
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
			Name: "pq_batch_requests", Help: "Operations in each completed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // 1 to 2048
		}),
		unanswered: counter("pq_unanswered_total", "Requests that failed and had no usable reply subject."),
		lostItems:  counter("pq_lost_items_total", "Popped items that could be neither delivered nor put back."),
		replyFailures: counter("pq_reply_failures_total",
			"Replies that could not be handed to NATS, or that NATS refused; an item popped for one is pushed again."),
		forwarded: counter("pq_passed_total",
			"Pops forwarded to the bridge that owns their queue."),
		natsErrors: counter("pq_nats_errors_total", "Errors that NATS reported, such as missing permissions."),
	}
	m.registry.MustRegister(
		m.requests, m.errors, m.seconds, m.batchSize, m.unanswered, m.lostItems, m.replyFailures, m.natsErrors, m.forwarded,
		gauge("pq_pending_requests", "Requests that wait or run.", func() float64 { n, _ := b.dispatcher.Pending(); return float64(n) }),
		gauge("pq_pending_bytes", "Bytes of the requests that wait or run.", func() float64 { _, n := b.dispatcher.Pending(); return float64(n) }),
		gauge("pq_bridges", "Bridges that share the queues as far as this one knows, itself included.",
			func() float64 { return float64(b.router.stats().bridges) }),
		gauge("pq_direct_subjects", "Subjects of busy queues that this bridge owns and subscribes to by name.",
			func() float64 { return float64(b.router.stats().affinitySubjects) }),
		gauge("pq_nats_connected", "1 if connected to NATS.", b.isConnected),
		gauge("pq_serving", "1 if subscribed to requests.", b.isServing),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pq_dropped_total", Help: "Messages dropped by the NATS client because the bridge fell behind.",
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

func (b *Bridge) isConnected() float64 { return float64(oneIf(b.online.Load())) }

func (b *Bridge) isServing() float64 { return float64(oneIf(b.servingReady() == nil)) }

// endpoint makes the series of an endpoint.
func (m *metrics) endpoint(name, subject string) *endpoint {
	e := &endpoint{
		name:    name,
		subject: subject,
		total:   m.requests.WithLabelValues(name),
		seconds: m.seconds.WithLabelValues(name),
		failed:  map[subjects.Code]prometheus.Counter{},
	}
	e.lastError.Store(new(string))
	for _, code := range subjects.Codes() {
		e.failed[code] = m.errors.WithLabelValues(name, strconv.Itoa(int(code)))
	}
	return e
}

var (
	queueLengthDesc = prometheus.NewDesc("pq_queue_length",
		"Items in a queue, without those that other programs added.", []string{"kind", "queue"}, nil)
	queuesTruncatedDesc = prometheus.NewDesc("pq_queue_length_truncated",
		"1 if there are more queues of the kind than pq_queue_length shows.", []string{"kind"}, nil)
	queuesReadDesc = prometheus.NewDesc("pq_queue_length_up",
		"1 if the queue lengths could be read from the store.", nil, nil)
)

// queueCollector reads the lengths of the queues on each scrape.
type queueCollector struct{ b *Bridge }

const (
	// lengthsPage is how many lengths one transaction reads.
	lengthsPage = 1000
	// maxLengths limits the lengths read of one kind, from the start of the list.
	maxLengths = 100_000
)

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueLengthDesc
	ch <- queuesTruncatedDesc
	ch <- queuesReadDesc
}

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	if c.b.options.MetricQueues < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.b.scrapes, c.b.options.HTTPTimeout)
	defer cancel()
	k := c.b.keyspace
	kinds := []*lengths{
		{kind: subjects.Priority, list: k.PriorityQueues, open: func(name string) (fdbpq.Target, error) { return k.PriorityQueue(name) }},
		{kind: subjects.FIFO, list: k.Queues, open: func(name string) (fdbpq.Target, error) { return k.Queue(name) }},
	}
	err := c.read(ctx, kinds)
	if err != nil {
		c.b.quiet.store.warn("the queue lengths could not be read", "error", err)
	}
	ch <- prometheus.MustNewConstMetric(queuesReadDesc, prometheus.GaugeValue, float64(oneIf(err == nil)))
	for _, l := range kinds {
		truncated := l.truncated || !l.complete
		ch <- prometheus.MustNewConstMetric(queuesTruncatedDesc, prometheus.GaugeValue, float64(oneIf(truncated)), l.kind.String())
		for _, q := range l.longest {
			ch <- prometheus.MustNewConstMetric(queueLengthDesc, prometheus.GaugeValue, float64(q.length), l.kind.String(), q.name)
		}
	}
}

// lengths collects the lengths of the queues of one kind.
type lengths struct {
	kind subjects.Kind
	list func(r kv.Reader, after string, limit int) kv.Future[[]string]
	open func(name string) (fdbpq.Target, error)

	after     string // the last name read
	complete  bool   // there are no more
	longest   []queueLength
	truncated bool // some are not in longest
}

type queueLength struct {
	name   string
	length int64
}

// read reads the lengths of both kinds page by page; of each page first the names, then
// the lengths. After an error, kinds have what was read before it.
func (c *queueCollector) read(ctx context.Context, kinds []*lengths) error {
	for read := 0; read < maxLengths && slices.ContainsFunc(kinds, func(l *lengths) bool { return !l.complete }); read += lengthsPage {
		pages, err := kv.ReadTransact(ctx, c.b.db, func(r kv.Reader) ([][]queueLength, error) {
			return readLengths(r, kinds)
		})
		if err != nil {
			return err
		}
		for i, l := range kinds {
			l.add(pages[i], c.b.options.MetricQueues)
		}
	}
	return nil
}

// readLengths reads the next page of each kind.
func readLengths(r kv.Reader, kinds []*lengths) (pages [][]queueLength, err error) {
	names := make([]kv.Future[[]string], len(kinds))
	for i, l := range kinds {
		if !l.complete {
			names[i] = l.list(r, l.after, lengthsPage)
		}
	}
	pages = make([][]queueLength, len(kinds))
	var lens []fdbpq.Op
	for i, l := range kinds {
		if names[i] == nil {
			continue
		}
		page, err := names[i].Get()
		if err != nil {
			return nil, err
		}
		for _, name := range page {
			q, err := l.open(name)
			if err != nil {
				return nil, err
			}
			pages[i] = append(pages[i], queueLength{name: name})
			lens = append(lens, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q})
		}
	}
	results, err := fdbpq.Read(r, lens)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		for i := range page {
			if err := results[i].Err; err != nil {
				return nil, fmt.Errorf("queue %s: %w", page[i].name, err)
			}
			page[i].length = results[i].Len
		}
		results = results[len(page):]
	}
	return pages, nil
}

// add merges a page and keeps the longest queues; of queues of the same length, those
// whose names sort first.
func (l *lengths) add(page []queueLength, limit int) {
	l.complete = l.complete || len(page) < lengthsPage
	if len(page) == 0 {
		return
	}
	l.after = page[len(page)-1].name
	l.longest = append(l.longest, page...)
	slices.SortFunc(l.longest, func(a, b queueLength) int {
		return cmp.Or(cmp.Compare(b.length, a.length), strings.Compare(a.name, b.name))
	})
	if len(l.longest) > limit {
		l.longest, l.truncated = l.longest[:limit], true
	}
}
