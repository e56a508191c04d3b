package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// queueCollector reads the figures of the queues that this bridge owns. Scrapes share what it has
// read, so that they cost little however many there are: see readShare.
type queueCollector struct {
	config  *Config
	scrapes context.Context // ends with the server

	mu struct {
		sync.Mutex // held while the figures are read
		last       *figures
		until      time.Time // when they are to be read again
	}
}

// figures are what a scrape shows of the queues.
type figures struct {
	owners []string // among whom the queues were shared out
	kinds  []*lengths
	err    error // why some are missing
}

const (
	// lengthsPage is how many lengths one transaction reads.
	lengthsPage = 1000
	// infosPage is the same for what else there is to know of a queue, which takes more reads.
	infosPage = 100
	// agePriorities is of how many priorities of a queue the ages of the items are compared.
	agePriorities = 16
	// maxLengths limits the lengths read of one kind, from the start of the list.
	maxLengths = 100_000
	// readShare limits reading the figures to one part in readShare of the time: they are shown
	// again until readShare times as long has passed as it took to read them, but not longer than
	// maxShown.
	readShare = 10
	maxShown  = time.Minute
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
	if c.config.MetricQueues < 0 {
		return
	}

	f := c.figures()
	ch <- prometheus.MustNewConstMetric(queuesReadDesc, prometheus.GaugeValue, oneIf(f.err == nil))
	for _, l := range f.kinds {
		truncated := l.truncated || !l.complete
		ch <- prometheus.MustNewConstMetric(queuesTruncatedDesc, prometheus.GaugeValue, oneIf(truncated), l.kind.String())
		for _, q := range l.longest {
			ch <- prometheus.MustNewConstMetric(queueLengthDesc, prometheus.GaugeValue, float64(q.length), l.kind.String(), q.name)
			if q.info != nil {
				q.collect(ch, l.kind.String())
			}
		}
	}
}

// figures returns the last figures, or reads them again. Scrapes that come meanwhile wait for them.
func (c *queueCollector) figures() *figures {
	c.mu.Lock()
	defer c.mu.Unlock()

	// What was read for other owners may be of queues that are no longer this bridge's.
	began, owners := time.Now(), c.config.Owners()
	if last := c.mu.last; last != nil && slices.Equal(last.owners, owners) && began.Before(c.mu.until) {
		return last
	}

	f := &figures{owners: owners}
	f.read(c)
	if f.err != nil {
		c.config.Warn("the queue lengths could not be read", "error", f.err)
	}

	now := time.Now()
	c.mu.last, c.mu.until = f, now.Add(min(readShare*now.Sub(began), maxShown))
	return f
}

// read reads everything. After an error, there is what was read before it.
func (f *figures) read(c *queueCollector) {
	ctx, cancel := context.WithTimeout(c.scrapes, c.config.Timeout)
	defer cancel()

	k := c.config.Keyspace
	f.kinds = []*lengths{
		{kind: subjects.Priority, list: k.PriorityQueues, open: func(name string) (fdbpq.Target, error) { return k.PriorityQueue(name) }},
		{kind: subjects.FIFO, list: k.Queues, open: func(name string) (fdbpq.Target, error) { return k.Queue(name) }},
	}

	f.err = c.read(ctx, f.kinds)
	for _, l := range f.kinds {
		if f.err == nil {
			f.err = c.inspect(ctx, l)
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

// page is a part of the list of queues.
type page struct {
	names int    // in the list
	last  string // of them
	owned []queueLength
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
		results, err := kv.ReadTransact(ctx, c.config.DB, func(r kv.Reader) ([]fdbpq.Result, error) { return fdbpq.Read(r, ops) })
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
		pages, err := kv.ReadTransact(ctx, c.config.DB, func(r kv.Reader) ([]page, error) {
			return c.readLengths(r, kinds)
		})
		if err != nil {
			return err
		}

		for i, l := range kinds {
			l.add(pages[i], c.config.MetricQueues)
		}
	}
	return nil
}

// readLengths reads the next page of each kind.
func (c *queueCollector) readLengths(r kv.Reader, kinds []*lengths) (pages []page, err error) {
	// Both lists at once, then all lengths at once: two round trips.
	names := make([]kv.Future[[]string], len(kinds))
	for i, l := range kinds {
		if !l.complete {
			names[i] = l.list(r, l.after, lengthsPage)
		}
	}

	pages = make([]page, len(kinds))
	var lens []fdbpq.Op
	for i, l := range kinds {
		if names[i] == nil {
			continue
		}
		list, err := names[i].Get()
		if err != nil {
			return nil, err
		}

		p := &pages[i]
		p.names = len(list)
		for _, name := range list {
			p.last = name
			if !c.config.Owns(l.kind, name) {
				continue
			}
			q, err := l.open(name)
			if err != nil {
				return nil, err
			}
			p.owned = append(p.owned, queueLength{name: name, target: q})
			lens = append(lens, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q})
		}
	}

	results, err := fdbpq.Read(r, lens)
	if err != nil {
		return nil, err
	}

	// The results are those of the queues of all pages, one page after the other.
	for _, p := range pages {
		for i := range p.owned {
			if err := results[i].Err; err != nil {
				return nil, fmt.Errorf("queue %s: %w", p.owned[i].name, err)
			}
			p.owned[i].length = results[i].Len
		}
		results = results[len(p.owned):]
	}
	return pages, nil
}

// add merges a page and keeps the longest queues; of queues of the same length, those
// whose names sort first.
func (l *lengths) add(p page, limit int) {
	l.complete = l.complete || p.names < lengthsPage
	if p.names > 0 {
		l.after = p.last
	}
	if len(p.owned) == 0 {
		return
	}

	l.longest = append(l.longest, p.owned...)
	slices.SortFunc(l.longest, func(a, b queueLength) int {
		return cmp.Or(cmp.Compare(b.length, a.length), strings.Compare(a.name, b.name))
	})
	if len(l.longest) > limit {
		l.longest, l.truncated = l.longest[:limit], true
	}
}

// oneIf returns 1 if b is true, else 0.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
