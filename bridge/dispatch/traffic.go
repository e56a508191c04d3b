package dispatch

import (
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// maxCounted is how many queues are counted by themselves. Each takes 4.2 kB.
	maxCounted = 2 * subjects.MaxStatsQueues

	// The windows of subjects.Windows.
	minutes, hours = 60, 24
)

// traffic counts what becomes of the items of queues. A queue is counted by itself from when it has
// traffic, or pops that wait, until it has had neither for a day. It lives longer than its Queue.
// While maxCounted others are, a queue is counted in the total alone. Metrics show the first
// maxShown, and a queue that they show stays until it leaves, so that no counter falls.
//
// A batch takes the lock once, to count all its items. Minutes begin when somebody takes the lock:
// nothing runs while there is no traffic. The windows also have what other processes counted, see
// saver; metrics have only what this one did.
type traffic struct {
	started  time.Time
	maxShown int           // see Options.MetricQueues
	woken    chan struct{} // holds an element when something is unsaved

	mu     sync.Mutex
	minute int64            // that was begun last
	total  counted          // all queues
	rest   subjects.Traffic // all queues that metrics do not show
	queues map[fdbpq.QueueName]*counted
	shown  int // how many of them metrics show

	// since is the minute from which on nothing is missing in the windows. completeFrom is the one
	// from which on no item of a queue outside of the table was counted: the one after there was no
	// room for a queue, 0 if there always was.
	since, completeFrom int64

	unsavedAt int64 // the minute of what is unsaved or, if nothing is, was saved last
}

// counted has the counts of a queue.
type counted struct {
	subjects.Traffic
	// What no row of a minute has yet, and what the row of its hour has or should have.
	unsaved [2]subjects.Traffic
	// The counts when each of the last minutes and hours began, less what other processes have
	// counted since.
	minutes [minutes]subjects.Traffic
	hours   [hours]subjects.Traffic

	queue        *Queue // to know who waits
	hidden       bool   // metrics do not show it
	completeFrom int64  // traffic.completeFrom when the queue was added
}

func newTraffic(now time.Time, maxShown int) *traffic {
	return &traffic{
		started: now, maxShown: min(maxShown, subjects.MaxStatsQueues),
		woken:  make(chan struct{}, 1),
		minute: minuteOf(now), since: minuteOf(now), unsavedAt: minuteOf(now) - 1,
		queues: map[fdbpq.QueueName]*counted{},
	}
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// lock locks the counters as they are now, and returns them. After a step of the clock backwards,
// the windows are longer than they should be, unless the clock has a monotonic reading.
func (t *traffic) lock(now time.Time) *traffic {
	t.mu.Lock()
	minute := minuteOf(t.wall(now))
	if minute <= t.minute {
		return t
	}

	t.total.begin(t.minute, minute)
	for key, c := range t.queues {
		c.begin(t.minute, minute)
		unused := c.windows(minute).Day == subjects.Traffic{} && c.queue.Waiters() == 0
		if unused {
			delete(t.queues, key)
		}
		if unused && !c.hidden {
			t.shown--
		}
	}
	t.minute = minute
	return t
}

// wall returns the time by the wall clock of the start, and how long it is since then.
func (t *traffic) wall(now time.Time) time.Time { return t.started.Add(now.Sub(t.started)) }

// untilNext returns when the next minute begins, in a second at the earliest: clocks may differ.
func (t *traffic) untilNext(now time.Time) time.Duration {
	return max(time.Second, time.Minute-time.Duration(t.wall(now).UnixNano())%time.Minute)
}

// begin begins a minute.
func (c *counted) begin(last, minute int64) {
	fill(c.minutes[:], last, minute, c.Traffic)
	fill(c.hours[:], last/60, minute/60, c.Traffic)
}

// fill writes down the counts for each minute or hour that began after the last one.
func fill(ring []subjects.Traffic, last, now int64, counted subjects.Traffic) {
	size := int64(len(ring))
	for i := max(last, now-size) + 1; i <= now; i++ {
		ring[i%size] = counted
	}
}

// windows returns the counts since the start, in the last hour and in the last day.
func (c *counted) windows(minute int64) subjects.Windows {
	return subjects.Windows{
		Traffic: c.Traffic,
		Hour:    c.Since(&c.minutes[(minute+1)%minutes]),
		Day:     c.Since(&c.hours[(minute/60+1)%hours]),
	}
}

// countLocked counts items of a queue.
func (t *traffic) countLocked(q *Queue, n subjects.Traffic) {
	if n == (subjects.Traffic{}) {
		return
	}

	if t.total.unsaved[0] == (subjects.Traffic{}) {
		t.nextRowLocked()
	}
	t.total.count(&n)
	c := t.ofLocked(q)
	if c != nil {
		c.count(&n)
	}
	if c == nil || c.hidden {
		t.rest.Add(&n)
	}
}

// list has a queue listed because pops wait for its items.
func (t *traffic) list(q *Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ofLocked(q)
}

// atLocked returns the counts of a queue; without a name, of all together. It returns nil if the
// queue is not in the table.
func (t *traffic) atLocked(name fdbpq.QueueName) *counted {
	if name.Name == "" {
		return &t.total
	}
	return t.queues[name]
}

// ofLocked returns where to count the items of a queue by themselves, nil if there is no room.
func (t *traffic) ofLocked(q *Queue) *counted {
	name := NameOf(q.Kind, q.Name)
	c := t.queues[name]
	switch {
	case c != nil:
		c.queue = q
	case len(t.queues) >= maxCounted:
		t.completeFrom = t.minute + 1
	default:
		c = &counted{queue: q, hidden: t.shown >= t.maxShown, completeFrom: t.completeFrom}
		t.queues[name] = c
		if !c.hidden {
			t.shown++
		}
	}

	return c
}

func (t *traffic) queueLocked(name fdbpq.QueueName, c *counted) subjects.QueueTraffic {
	return subjects.QueueTraffic{
		Kind: KindOf(name).Short(), Queue: name.Name, Waiters: c.queue.Waiters(),
		Since:   t.sinceLocked(max(t.since, c.completeFrom)),
		Windows: c.windows(t.minute),
	}
}

// sinceLocked returns when a minute began, or the zero time if that is a day ago.
func (t *traffic) sinceLocked(minute int64) (began time.Time) {
	if t.minute-minute < hours*60 {
		began = time.Unix(minute*60, 0).UTC()
	}
	return began
}
