package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Traffic returns what became of the items of all queues together, and of up to n queues, the
// busiest of the last hour first. Queues without traffic for a day are left out. If others are left
// out as well, more is true.
func (d *Dispatcher) Traffic(
	n int,
) (total subjects.Windows, queues []subjects.QueueTraffic, more bool) {
	d.saver.refresh()
	t := d.traffic.lock(d.options.Now())
	total = t.total.windows(t.minute)
	for name, c := range t.queues {
		queues = append(queues, t.queueLocked(name, c))
	}
	crowded := !t.sinceLocked(t.completeFrom).IsZero()
	t.mu.Unlock()

	busy := func(t *subjects.Traffic) int64 { return t.In + t.Out + t.Delivered + t.Failed }
	slices.SortFunc(queues, func(a, b subjects.QueueTraffic) int {
		return cmp.Or(
			cmp.Compare(busy(&b.Hour), busy(&a.Hour)),
			cmp.Compare(b.Waiters, a.Waiters),
			cmp.Compare(busy(&b.Traffic), busy(&a.Traffic)),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Queue, b.Queue),
		)
	})
	more = len(queues) > n || crowded
	return total, queues[:min(n, len(queues))], more
}

// TrafficOf is Traffic for one queue. It returns false if the queue may have been counted only
// together with others in the last hour.
func (d *Dispatcher) TrafficOf(
	kind subjects.Kind, name string,
) (total subjects.Windows, queue subjects.QueueTraffic, known bool) {
	d.saver.refresh()
	t := d.traffic.lock(d.options.Now())
	defer t.mu.Unlock()

	total = t.total.windows(t.minute)
	if c := t.queues[NameOf(kind, name)]; c != nil {
		return total, t.queueLocked(NameOf(kind, name), c), true
	}
	queue.Kind, queue.Queue = kind.Short(), name
	queue.Since = t.sinceLocked(max(t.since, t.completeFrom))
	known = t.minute-t.completeFrom >= minutes
	return total, queue, known
}

// TrafficSince returns from when on nothing is missing in the windows of all queues together.
func (d *Dispatcher) TrafficSince() time.Time {
	t := d.traffic.lock(d.options.Now())
	defer t.mu.Unlock()
	return time.Unix(t.since*60, 0).UTC()
}

// QueueCount has the counts of a queue.
type QueueCount struct {
	Kind, Name string
	subjects.Traffic
}

// Counted returns the counts of each queue that metrics show by itself, and of all others. None of
// these counts falls while its queue is shown, which is until it had no traffic for a day.
func (d *Dispatcher) Counted() (shown []QueueCount, rest subjects.Traffic) {
	t := d.traffic.lock(d.options.Now())
	defer t.mu.Unlock()
	for name, c := range t.queues {
		if !c.hidden {
			shown = append(shown, QueueCount{KindOf(name).String(), name.Name, c.Traffic})
		}
	}
	return shown, t.rest
}
