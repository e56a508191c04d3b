package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

var (
	queueLengthDesc = prometheus.NewDesc("pq_queue_length",
		"Ready items of a queue, without those that other programs added with the bare recipe.", []string{"kind", "queue"}, nil)
	queuesTruncatedDesc = prometheus.NewDesc("pq_queue_length_truncated",
		"1 if there are more queues of the kind than pq_queue_length shows.", []string{"kind"}, nil)
	queuesReadDesc = prometheus.NewDesc("pq_queue_length_up",
		"1 if the queue lengths could be read from the store.", nil, nil)

	queueLeasedDesc = prometheus.NewDesc("pq_queue_leased",
		"Items of a queue that are leased.", []string{"kind", "queue"}, nil)
	queueDelayedDesc = prometheus.NewDesc("pq_queue_delayed",
		"Items of a queue that wait out a delay.", []string{"kind", "queue"}, nil)
	queueOldestDesc = prometheus.NewDesc("pq_queue_oldest_seconds",
		"Age of the oldest item of a queue that is ready, since its push; 0 without one. With many priorities, that of the smallest and largest ones.",
		[]string{"kind", "queue"}, nil)
)

// queueCollector reads the lengths of the queues on each scrape.
type queueCollector struct{ b *Bridge }

const (
	// lengthsPage is how many lengths one transaction reads.
	lengthsPage = 1000
	// infosPage is the same for what else there is to know of a queue, which takes more reads.
	infosPage = 100
	// agePriorities is of how many priorities of a queue the ages of the items are compared.
	agePriorities = 16
	// maxLengths limits the lengths read of one kind, from the start of the list.
	maxLengths = 100_000
)

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueLengthDesc
	ch <- queuesTruncatedDesc
	ch <- queuesReadDesc
	ch <- queueLeasedDesc
	ch <- queueDelayedDesc
	ch <- queueOldestDesc
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
	for _, l := range kinds {
		if err == nil {
			err = c.inspect(ctx, l)
		}
	}
	if err != nil {
		c.b.quiet.store.warn("the queue lengths could not be read", "error", err)
	}
	ch <- prometheus.MustNewConstMetric(queuesReadDesc, prometheus.GaugeValue, float64(oneIf(err == nil)))
	for _, l := range kinds {
		truncated := l.truncated || !l.complete
		ch <- prometheus.MustNewConstMetric(queuesTruncatedDesc, prometheus.GaugeValue, float64(oneIf(truncated)), l.kind.String())
		for _, q := range l.longest {
			ch <- prometheus.MustNewConstMetric(queueLengthDesc, prometheus.GaugeValue, float64(q.length), l.kind.String(), q.name)
			if q.info != nil {
				q.collect(ch, l.kind.String())
			}
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
	target fdbpq.Target
	info   *fdbpq.Info // nil if it could not be read
}

// collect sends what is known besides the length.
func (q *queueLength) collect(ch chan<- prometheus.Metric, kind string) {
	age := 0.0
	if !q.info.Oldest.IsZero() {
		age = max(0, time.Since(q.info.Oldest).Seconds())
	}
	for desc, value := range map[*prometheus.Desc]float64{
		queueLeasedDesc:  float64(q.info.Leased),
		queueDelayedDesc: float64(q.info.Delayed),
		queueOldestDesc:  age,
	} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, kind, q.name)
	}
}

// inspect reads what else is shown of the queues that are shown, page by page.
func (c *queueCollector) inspect(ctx context.Context, l *lengths) error {
	for page := range slices.Chunk(l.longest, infosPage) {
		ops := make([]fdbpq.Op, len(page))
		for i := range page {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpInfo, Queue: page[i].target, MaxPriorities: agePriorities}
		}
		results, err := kv.ReadTransact(ctx, c.b.db, func(r kv.Reader) ([]fdbpq.Result, error) { return fdbpq.Read(r, ops) })
		if err != nil {
			return err
		}
		for i := range page {
			if err := results[i].Err; err != nil {
				return fmt.Errorf("queue %s: %w", page[i].name, err)
			}
			page[i].info = results[i].Info
		}
	}
	return nil
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
			pages[i] = append(pages[i], queueLength{name: name, target: q})
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
