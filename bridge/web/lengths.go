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
	queuesTruncatedDesc = prometheus.NewDesc("pq_queue_length_truncated",
		"1 if there are more queues of the kind than pq_queue_length shows.", []string{"kind"}, nil)
	queuesReadDesc = prometheus.NewDesc("pq_queue_length_up",
		"1 if the queue lengths could be read from the store.", nil, nil)
)

// queueGauge is a figure of each queue. All but the first need its info.
type queueGauge struct {
	desc  *prometheus.Desc
	value func(q *queueLength) float64
}

func perQueue(name, help string, value func(q *queueLength) float64) queueGauge {
	return queueGauge{prometheus.NewDesc(name, help, []string{"kind", "queue"}, nil), value}
}

var queueGauges = []queueGauge{
	perQueue("pq_queue_length",
		"Ready items of a queue, not counting those that other programs wrote to the store.",
		func(q *queueLength) float64 { return float64(q.length) }),
	perQueue("pq_queue_leased", "Items of a queue that are leased.",
		func(q *queueLength) float64 { return float64(q.info.Leased) }),
	perQueue("pq_queue_delayed", "Items of a queue that wait out a delay.",
		func(q *queueLength) float64 { return float64(q.info.Delayed) }),
	perQueue("pq_queue_oldest_seconds", "Age of the oldest ready item of a queue, since "+
		"its push; 0 without one. With many priorities, of the smallest and largest ones only.",
		func(q *queueLength) float64 { return age(q.info.Oldest, time.Now()) }),
	perQueue("pq_queue_paused", "1 while a queue is paused.",
		func(q *queueLength) float64 { return oneIf(q.pausedUntil.After(time.Now())) }),
	perQueue("pq_queue_groups", "Groups with ready or leased items in a queue.",
		func(q *queueLength) float64 { return float64(q.info.GroupCount) }),
	perQueue("pq_queue_groups_at_limit",
		"Groups of a queue with ready items that are passed over because of a limit.",
		func(q *queueLength) float64 { return float64(q.info.GroupsAtLimit) }),
}

// age returns the seconds since an item was pushed, 0 without one.
func age(pushed, now time.Time) float64 {
	if pushed.IsZero() {
		return 0
	}
	return max(0, now.Sub(pushed).Seconds())
}

// queueCollector reads the figures of the queues that this bridge owns. Scrapes share what it has
// read, so that they cost little however many there are: see readShare.
type queueCollector struct {
	config  *Config
	scrapes context.Context // ends with the server

	mu struct {
		sync.Mutex // held while the figures are read
		last       *figures
		until      time.Time // when they must be read again
	}
}

// figures are what a scrape shows of the queues.
type figures struct {
	owners []string // the bridges that shared the queues
	kinds  []*lengths
	err    error // why some are missing
}

const (
	// lengthsPage is how many lengths one transaction reads.
	lengthsPage = 1000
	// infosPage is the same for the other figures of a queue, which take more reads.
	infosPage = 100
	// agePriorities is how many priorities of a queue the oldest item is looked for in.
	agePriorities = 16
	// maxLengths limits the lengths read of one kind, from the start of the list.
	maxLengths = 100_000
	// readShare limits reading the figures to one part in readShare of the time: they are shown
	// again until readShare times as long has passed as it took to read them, but not longer than
	// maxShown.
	readShare = 10
	maxShown  = time.Minute
)

// Describe implements prometheus.Collector. It does not read the store to find out.
func (c *queueCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	if c.config.MetricQueues < 0 {
		return
	}

	show := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}

	f := c.figures()
	show(queuesReadDesc, oneIf(f.err == nil))
	for _, l := range f.kinds {
		kind := l.kind.String()
		show(queuesTruncatedDesc, oneIf(l.truncated || !l.complete), kind)
		for _, q := range l.longest {
			for i, g := range queueGauges {
				if i == 0 || q.info != nil {
					show(g.desc, g.value(&q), kind, q.name)
				}
			}
		}
	}
}

// figures returns the last figures, or reads them again. Scrapes that come meanwhile wait for them.
func (c *queueCollector) figures() *figures {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Figures read for other owners may be of queues that are no longer this bridge's.
	began, owners, last := time.Now(), c.config.Owners(), c.mu.last
	if last != nil && slices.Equal(last.owners, owners) && began.Before(c.mu.until) {
		return last
	}

	k := c.config.Keyspace
	f := &figures{owners: owners, kinds: []*lengths{
		{
			kind: subjects.Priority, list: k.PriorityQueues,
			open: func(name string) (fdbpq.Target, error) { return k.PriorityQueue(name) },
		},
		{
			kind: subjects.FIFO, list: k.Queues,
			open: func(name string) (fdbpq.Target, error) { return k.Queue(name) },
		},
	}}
	if f.err = c.read(f.kinds); f.err != nil {
		c.config.Warn("the queue lengths could not be read", "error", f.err)
	}

	now := time.Now()
	c.mu.last, c.mu.until = f, now.Add(min(readShare*now.Sub(began), maxShown))
	return f
}

// read reads the lengths of all queues page by page, and then the other figures of the longest.
// After an error, kinds have the figures read before it.
func (c *queueCollector) read(kinds []*lengths) error {
	ctx, cancel := context.WithTimeout(c.scrapes, c.config.Timeout)
	defer cancel()

	for _, l := range kinds {
		next := func(r kv.Reader) (page, error) { return c.readPage(r, l) }
		for read := 0; read < maxLengths && !l.complete; read += lengthsPage {
			p, err := kv.ReadTransact(ctx, c.config.DB, next)
			if err != nil {
				return err
			}
			l.add(p, c.config.MetricQueues)
		}
	}

	for _, l := range kinds {
		if err := c.inspect(ctx, l); err != nil {
			return err
		}
	}

	return nil
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
	names []string
	owned []queueLength
}

type queueLength struct {
	name   string
	length int64
	target fdbpq.Target
	info   *fdbpq.Info // nil if it could not be read

	pausedUntil time.Time // known with info
}

// readPage reads the next names, and then the lengths of all of these queues at once: two round
// trips.
func (c *queueCollector) readPage(r kv.Reader, l *lengths) (p page, err error) {
	if p.names, err = l.list(r, l.after, lengthsPage).Get(); err != nil {
		return p, err
	}

	for _, name := range p.names {
		if !c.config.Owns(l.kind, name) {
			continue
		}
		q, err := l.open(name)
		if err != nil {
			return p, err
		}
		p.owned = append(p.owned, queueLength{name: name, target: q})
	}

	results, err := readAll(r, p.owned, fdbpq.Op{Kind: fdbpq.OpLen})
	for i := range results {
		p.owned[i].length = results[i].Len
	}

	return p, err
}

// inspect reads the other figures of the longest queues, page by page.
func (c *queueCollector) inspect(ctx context.Context, l *lengths) error {
	ops := [2]fdbpq.Op{
		{Kind: fdbpq.OpInfo, MaxPriorities: agePriorities},
		{Kind: fdbpq.OpSettings},
	}
	for page := range slices.Chunk(l.longest, infosPage) {
		read := func(r kv.Reader) (results [2][]fdbpq.Result, err error) {
			for i, op := range ops {
				results[i], err = readAll(r, page, op)
				if err != nil {
					return results, err
				}
			}
			return results, nil
		}
		results, err := kv.ReadTransact(ctx, c.config.DB, read)
		if err != nil {
			return err
		}

		for i := range page {
			page[i].info = results[0][i].Info
			page[i].pausedUntil = results[1][i].Settings.PauseUntil
		}
	}

	return nil
}

// readAll runs an operation on each queue.
func readAll(r kv.Reader, queues []queueLength, op fdbpq.Op) ([]fdbpq.Result, error) {
	ops := slices.Repeat([]fdbpq.Op{op}, len(queues))
	for i := range ops {
		ops[i].Queue = queues[i].target
	}

	results, err := fdbpq.Read(r, ops)
	for i := range results {
		if err := results[i].Err; err != nil {
			return nil, fmt.Errorf("queue %s: %w", queues[i].name, err)
		}
	}

	return results, err
}

// add merges a page and keeps the longest queues; of queues of the same length, those
// whose names sort first.
func (l *lengths) add(p page, limit int) {
	l.complete = len(p.names) < lengthsPage
	if len(p.names) > 0 {
		l.after = p.names[len(p.names)-1]
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
