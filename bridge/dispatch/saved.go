package dispatch

import (
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// count counts items.
func (c *counted) count(n *subjects.Traffic) {
	c.Add(n)
	for kind := range c.unsaved {
		c.unsaved[kind].Add(n)
	}
}

// eachLocked calls f for the counts of all queues together, without a name, and of each queue.
func (t *traffic) eachLocked(f func(name fdbpq.QueueName, c *counted)) {
	f(fdbpq.QueueName{}, &t.total)
	for name, c := range t.queues {
		f(name, c)
	}
}

// unsavedLocked returns the rows of the minute and of the hour of what is unsaved, none if nothing
// is.
func (t *traffic) unsavedLocked() (rows []savedRow) {
	if t.total.unsaved[0] == (subjects.Traffic{}) {
		return nil
	}
	rows = []savedRow{{At: t.unsavedAt}, {At: t.unsavedAt / 60, Hour: true}}
	for kind := range rows {
		row := &rows[kind]
		row.CompleteFrom = t.completeFrom
		t.eachLocked(func(name fdbpq.QueueName, c *counted) {
			if n := c.unsaved[kind]; n != (subjects.Traffic{}) {
				row.Queues = append(row.Queues, savedCount{name, n})
			}
		})
	}
	return rows
}

// savedLocked notes that these rows of the minute are saved, and that of its hour.
func (t *traffic) savedLocked(queues []savedCount) {
	for i := range queues {
		if c := t.atLocked(queues[i].QueueName); c != nil {
			c.unsaved[0] = c.unsaved[0].Since(&queues[i].Traffic)
		}
	}
	if t.total.unsaved[0] != (subjects.Traffic{}) {
		t.nextRowLocked()
	}
}

// nextRowLocked begins the next row. No two rows have the same minute.
func (t *traffic) nextRowLocked() {
	hour := t.unsavedAt / 60
	t.unsavedAt = max(t.minute, t.unsavedAt+1)
	if t.unsavedAt/60 != hour {
		t.eachLocked(func(_ fdbpq.QueueName, c *counted) { c.unsaved[1] = c.unsaved[0] })
	}
	signal.To(t.woken)
}

// takeLocked adds a row of another process to the windows, and not to the counts, which metrics
// show. A row of the future, by the clock of this process, counts as one of now.
func (t *traffic) takeLocked(row *savedRow) {
	t.completeFrom = max(t.completeFrom, min(row.CompleteFrom, t.minute+1))
	for i := range row.Queues {
		q := &row.Queues[i]
		c := t.atLocked(q.QueueName)
		if c == nil {
			c = t.ofLocked(&Queue{Kind: KindOf(q.QueueName), Name: q.Name})
		}
		if c == nil {
			continue // there is no room
		}

		// The windows subtract from the counts those when a minute or hour began.
		ring, now := c.minutes[:], t.minute
		if row.Hour {
			ring, now = c.hours[:], t.minute/60
		}
		size := int64(len(ring))
		for began := now - size + 1; began <= min(row.At, now); began++ {
			ring[began%size] = ring[began%size].Since(&q.Traffic)
		}
	}
}

// dropLocked empties the windows.
func (t *traffic) dropLocked() {
	t.eachLocked(func(_ fdbpq.QueueName, c *counted) {
		c.unsaved = [2]subjects.Traffic{}
		fill(c.minutes[:], t.minute-minutes, t.minute, c.Traffic)
		fill(c.hours[:], t.minute/60-hours, t.minute/60, c.Traffic)
	})
}
