package fdbpqtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// joins is what the queues have stored about joins.
type joins struct {
	waiting table[codec.JoinCounts] // of joiners, by queue and id
	members table[int64]            // by queue of the joiner, its id, and queue of the members
}

// join takes a key of a joiner: its place, with the number of a counter or without, or "m" with the
// name of the joiner's queue before it.
func (q *queue) join(key tuple.Tuple, value []byte) error {
	j := &q.checker.joins
	if key[0] == "m" {
		of, err := number(value)
		name := q.checker.queueNamed(q, key[1].(string))
		j.members.set(name+string(key[2:].Pack())+q.name, of)
		return err
	}

	places := len(q.placeForm())
	id := q.name + string(key[:places].Pack())
	counts, waits := j.waiting[id]
	if len(key) == places {
		j.waiting.set(id, counts)
		return nil
	}

	n, numberErr := number(value)
	at := key[places].(int64)
	if !waits || numberErr != nil || at < 0 || at >= int64(len(counts)) {
		return fmt.Errorf("counter of a join: %w", numberErr)
	}
	counts[at] = n
	j.waiting.set(id, counts)
	return nil
}

// placeForm is the elements of a place.
func (q *queue) placeForm() string {
	if q.fifo {
		return "ir"
	}
	return "iir"
}

// queueNamed is how problems name another queue of the same kind.
func (c *checker) queueNamed(like *queue, name string) string {
	return fmt.Sprintf("%s %q", like.root, name)
}

// checkJoins compares the joiners and the counters of members with the items.
func (c *checker) checkJoins() {
	joiners := 0
	open, members := map[string]int64{}, map[string]int64{}
	for _, q := range c.queues {
		for id, m := range q.messages {
			if of := m.Joiner; of != nil {
				joiner := c.queueNamed(q, of.Queue) + q.idKey(&of.ID)
				open[joiner]++
				members[joiner+q.name]++
			}
			_, waits := c.joins.waiting[q.name+id]
			if waits {
				joiners++
			}
			if waits != (m.Join > 0) {
				q.problem("item %x waits for %v, and says %v", id, waits, m.Join)
			}
			if m.Join > 0 && !q.held[id] {
				q.problem("item %x waits for its members, and is not held", id)
			}
		}
	}

	if len(c.joins.waiting) != joiners {
		c.problem("%d joiners, of which %d are items", len(c.joins.waiting), joiners)
	}
	for joiner, counts := range c.joins.waiting {
		ended := counts[codec.JoinAll] - counts[codec.JoinOpen]
		if counts[codec.JoinOpen] != open[joiner] ||
			ended < counts[codec.JoinDead]+counts[codec.JoinGone] {
			c.problem("joiner %q: %v, want open=%d", joiner, counts, open[joiner])
		}
	}
	if !maps.Equal(c.joins.members, members) {
		c.problem("members by queue: %v, want %v", c.joins.members, members)
	}
}

// dropMarks drops the entries of the time index that are marks of joiners, which need not be there,
// and may be there after their joiner has run.
func (q *queue) dropMarks() {
	for what, times := range q.marks {
		delete(q.due, what)
		if falls, held := q.falls[what]; held && slices.Contains(times, falls) {
			q.due.set(what, falls)
		}
	}
}
