package dispatch

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

func wantTraffic(t *testing.T, what string, got, want subjects.Traffic) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// known is TrafficOf a priority queue that is counted by itself.
func known(t *testing.T, d *Dispatcher, queue string) subjects.QueueTraffic {
	t.Helper()
	_, q, ok := d.TrafficOf(subjects.Priority, queue)
	if !ok || q.Kind != "pq" || q.Queue != queue {
		t.Fatalf("%+v, %v: want the traffic of %s", q, ok, queue)
	}

	return q
}

// Each way an item can come, be delivered and leave counts once, at its queue and in total, whether
// a request, the sweeper or a schedule did it. Duplicates and administration do not count.
func TestTrafficCountsWhatBecomesOfItems(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		clock := &steppedClock{}
		s := w.start(0, func(o *Options) { o.Now = clock.now })

		push := func(id string) fdbpq.Op {
			return fdbpq.Op{
				Kind:    fdbpq.OpPush,
				Message: fdbpq.Message{Value: []byte("x"), MsgID: id},
			}
		}

		lease := func() fdbpq.Token {
			r, err := s.d.Do(s.Context(), getQueue(s.T, s.d.queues, subjects.Priority, "jobs"),
				[]fdbpq.Op{leaseFor(time.Minute)})
			must(t, err)
			must(t, r[0].Err)

			return r[0].Lease.Token
		}

		settle := func(kind fdbpq.OpKind, uncounted bool) {
			s.do("jobs", fdbpq.Op{Kind: kind, Token: lease(), Uncounted: uncounted})
		}

		s.do("jobs", push("a"), push("b"), push("c"), push("d"), push("e"), push("f"))
		s.do("jobs", push("a")) // a duplicate
		s.do("jobs", fdbpq.Op{Kind: fdbpq.OpPop})
		settle(fdbpq.OpAck, false)
		settle(fdbpq.OpNak, false)
		settle(fdbpq.OpNak, true) // nobody received it
		settle(fdbpq.OpTerm, false)

		want := subjects.Traffic{In: 6, Out: 2, Delivered: 5, Failed: 2, Dead: 1}
		wantTraffic(t, "settled", known(t, s.d, "jobs").Traffic, want)

		// A lease that nobody asks about runs out, for the last time.
		s.do("jobs", oneDelivery())
		lease()
		clock.step(2 * time.Minute)
		w.sleep(time.Minute)
		want.Delivered, want.Failed, want.Dead = 6, 3, 2

		wantTraffic(t, "run out", known(t, s.d, "jobs").Traffic, want)

		s.do("jobs", fdbpq.Op{Kind: fdbpq.OpPurge})
		total, queues, _ := s.d.Traffic(10)
		wantTraffic(t, "hour", total.Hour, want)
		wantTraffic(t, "total", total.Traffic, want)
		if len(queues) != 1 || queues[0].Windows != total {
			t.Errorf("%+v, want one queue with all of %+v", queues, total)
		}
	})
}

// A queue whose workers wait is listed with them, although it never had an item; to ask for it does
// not keep it in use.
func TestTrafficNamesQueuesWithWaiters(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		s := w.start(0, nil)
		s.submit("jobs", &Wait{Until: time.Now().Add(time.Hour)}, leaseFor(time.Minute))
		synctest.Wait()

		if q := known(t, s.d, "jobs"); q.Waiters != 1 {
			t.Errorf("%d wait, want 1", q.Waiters)
		}
		if _, all, _ := s.d.Traffic(10); len(all) != 1 || all[0].Waiters != 1 {
			t.Errorf("%+v, want jobs with a pop that waits", all)
		}

		w.sleep(2 * time.Hour)
		if q := known(t, s.d, "jobs"); q.Waiters != 0 {
			t.Errorf("%d wait, want 0", q.Waiters)
		}

		if _, all, _ := s.d.Traffic(10); len(all) != 0 {
			t.Errorf("%+v, want none", all)
		}
		if s.d.Find(subjects.Priority, "unused") != nil {
			t.Error("a question has brought a queue into memory")
		}
	})
}

// clockedTraffic is a table of counters and its clock.
type clockedTraffic struct {
	*testing.T
	*traffic
	dispatcher *Dispatcher
	now        time.Time
}

func newClockedTraffic(t *testing.T, maxShown int) *clockedTraffic {
	c := &clockedTraffic{T: t, now: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
	c.traffic = newTraffic(c.now, maxShown)

	options := Options{Now: func() time.Time { return c.now }}
	c.dispatcher = &Dispatcher{shared: &shared{traffic: c.traffic, options: options}}
	c.dispatcher.saver = newSaver(c.dispatcher.shared)
	return c
}

// push counts pushes to a queue as a batch does.
func (c *clockedTraffic) push(queue *Queue, n int64) { c.pushAt(c.now, queue, n) }

func (c *clockedTraffic) pushAt(now time.Time, queue *Queue, n int64) {
	c.lock(now)
	defer c.mu.Unlock()
	c.countLocked(queue, subjects.Traffic{In: n})
}

// pass lets time pass, and begins the minute that it is then.
func (c *clockedTraffic) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.lock(c.now)
	c.mu.Unlock()
}

// wantPushed expects that many pushes to all queues in the last hour and in the last day.
func (c *clockedTraffic) wantPushed(hour, day int64) {
	c.Helper()
	total, _, _ := c.dispatcher.Traffic(0)

	if total.Hour.In != hour || total.Day.In != day {
		c.Errorf("at %s: %d in the last hour and %d in the last day, want %d and %d",
			c.now.Format(time.TimeOnly), total.Hour.In, total.Day.In, hour, day)
	}
}

// pushToTenants pushes an item to each of n queues.
func (c *clockedTraffic) pushToTenants(n int) {
	for i := range n {
		c.push(&Queue{Name: fmt.Sprint("tenant-", i)}, 1)
	}
}

// The last hour is this minute and the 59 before it, the last day this hour and the 23 before it,
// whether or not anything happens in between.
func TestTrafficWindows(t *testing.T) {
	c, q := newClockedTraffic(t, 0), &Queue{Name: "jobs"}
	c.push(q, 1)
	c.wantPushed(1, 1)

	c.pass(59 * time.Minute)
	c.push(q, 10)
	c.wantPushed(11, 11)

	c.pass(time.Minute)
	c.wantPushed(10, 11)

	c.pushAt(c.now.Add(-time.Minute), q, 1) // a lane that read the clock before
	c.pass(58 * time.Minute)
	c.wantPushed(11, 12)

	c.pass(time.Minute)
	c.wantPushed(1, 12)

	c.push(q, 100)
	c.pass(20*time.Hour + 30*time.Minute)
	c.wantPushed(0, 112)

	c.pass(time.Hour)
	c.wantPushed(0, 112)

	c.pass(time.Hour) // the first hour is over a day ago
	c.wantPushed(0, 101)

	c.pass(time.Hour)
	c.wantPushed(0, 0)

	c.push(q, 1000)
	c.pass(1000 * time.Hour)
	c.wantPushed(0, 0)
}

// However many queues there are, the table is bounded. No counter of metrics ever falls or is gone,
// and together they have every item.
func TestTrafficOfManyQueues(t *testing.T) {
	const shown = maxCounted / 4
	c := newClockedTraffic(t, shown)
	pushed, before := int64(0), map[string]int64{}

	check := func() {
		t.Helper()
		named, others := c.dispatcher.Counted()
		sum, now := others.In, map[string]int64{"*": others.In}

		for _, q := range named {
			sum += q.In
			now[q.Name] = q.In
		}

		if len(c.queues) > maxCounted || len(named) > shown || sum != pushed {
			t.Fatalf("%d queues, %d shown, with %d items, %d of them of the rest: want %d",
				len(c.queues), len(named), sum, others.In, pushed)
		}

		for name, n := range before {
			if now[name] < n {
				t.Fatalf("the counter of %s fell from %d to %d", name, n, now[name])
			}
		}

		before = now
	}

	busy := &Queue{Name: "busy"}
	for range 10 {
		c.push(busy, 1000)
		c.pushToTenants(10_000)
		pushed += 1000 + 10_000

		check()

		c.pass(time.Minute)
		check()
	}

	_, all, more := c.dispatcher.Traffic(3)
	if !more || len(all) != 3 || all[0].Queue != "busy" || all[0].Hour.In != 10_000 {
		t.Errorf("%+v: want busy first", all)
	}

	if total, _, _ := c.dispatcher.Traffic(0); total.In != pushed {
		t.Errorf("%d in total, want %d", total.In, pushed)
	}
	if _, _, known := c.dispatcher.TrafficOf(subjects.Priority, "tenant-9999"); known {
		t.Error("a queue of the rest is known")
	}

	// After a day without traffic they have left.
	c.pass(25 * time.Hour)

	if len(c.queues) != 0 {
		t.Errorf("%d queues are left", len(c.queues))
	}

	_, q, known := c.dispatcher.TrafficOf(subjects.Priority, "tenant-9999")
	if !known || q.Windows != (subjects.Windows{}) {
		t.Errorf("%+v, %v: want nothing counted", q, known)
	}

	if named, others := c.dispatcher.Counted(); len(named) != 0 || others.In != before["*"] {
		t.Errorf("%d are shown, with %d of the rest: want none, and %d",
			len(named), others.In, before["*"])
	}
}

// A queue that is counted by itself after it was counted with others says since when, until a day
// has passed. One that was counted from the start says when that was.
func TestTrafficSince(t *testing.T) {
	c := newClockedTraffic(t, -1)
	d, started := c.dispatcher, c.now.Truncate(time.Minute)

	wantSince := func(queue string, since time.Time, counted int64) {
		t.Helper()
		if q := known(t, d, queue); !q.Since.Equal(since) || q.Day.In != counted {
			t.Errorf("at %s: %d of %s since %s, want %d since %s",
				c.now, q.Day.In, queue, q.Since, counted, since)
		}
	}

	c.pushToTenants(maxCounted)
	if _, q, ok := d.TrafficOf(subjects.Priority, "late"); !ok || !q.Since.Equal(started) {
		t.Errorf("%+v, %v: want nothing counted since the start", q, ok)
	}
	wantSince("tenant-7", started, 1)

	// There is no room for two queues until the others have had no traffic for a day.
	c.pass(23 * time.Hour)
	late, quiet := &Queue{Name: "late"}, &Queue{Name: "quiet"}
	c.push(late, 5)
	c.push(quiet, 5)

	if _, _, ok := d.TrafficOf(subjects.Priority, "late"); ok {
		t.Error("a queue of the rest is known")
	}

	admitted := c.now.Truncate(time.Minute).Add(time.Minute)

	c.pass(time.Hour)
	c.push(late, 7)

	wantSince("late", admitted, 7)
	if _, all, more := d.Traffic(maxCounted); !more || len(all) != 1 {
		t.Errorf("%d queues, more: %v: want 1, and more", len(all), more)
	}

	c.pass(time.Minute)
	wantSince("quiet", admitted, 0)

	c.pass(24 * time.Hour)
	c.push(late, 1)
	wantSince("late", time.Time{}, 1)
}

// Lanes count at the same time as others ask and minutes begin, and nothing of the total is lost.
func TestTrafficCountsConcurrently(t *testing.T) {
	c := newClockedTraffic(t, 10)
	var lanes sync.WaitGroup

	for lane := range 4 {
		lanes.Go(func() {
			for i := range 5000 {
				q := &Queue{Name: fmt.Sprint("tenant-", lane, "-", i%500)}
				c.pushAt(c.now.Add(time.Duration(i/100)*time.Minute), q, 1)
			}
		})
	}

	for range 50 {
		c.dispatcher.Counted()
		c.dispatcher.TrafficOf(subjects.Priority, "tenant-0-0")
	}

	lanes.Wait()

	total, all, _ := c.dispatcher.Traffic(maxCounted)
	if total.In != 20_000 || len(all) > maxCounted {
		t.Errorf("%d in total, %d queues", total.In, len(all))
	}
}
