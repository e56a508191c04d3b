package proof_test

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// toRead is how long a bridge may take to read the counts of others, before there are none.
const toRead = 10 * time.Second

// counts has how many items were pushed to each queue, by its name.
type counts struct {
	mu     sync.Mutex
	pushed map[string]*pushCount
}

type pushCount struct{ known, maybe int64 }

func newCounts() *counts { return &counts{pushed: map[string]*pushCount{}} }

// end counts what an operation has pushed, or may have.
func (c *counts) end(op *books.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(queue string, n int64, known, maybe bool) {
		if c.pushed[queue] == nil {
			c.pushed[queue] = &pushCount{}
		}
		switch {
		case known:
			c.pushed[queue].known += n
		case maybe:
			c.pushed[queue].maybe += n
		}
	}

	if op.Kind == books.Push {
		// A duplicate may be one of this push, whose first answer was lost.
		maybe := op.Open() || op.Outcome == books.Duplicate
		add(op.Queue, int64(max(1, op.Batch)), op.Outcome == books.Done, maybe)
	}
	counted := op.Counts() || len(op.Items) > 0
	for _, next := range op.Next {
		add(next.Queue, 1, counted, op.Open())
	}
}

// checkCounts asks a bridge that starts after all others have ended what was pushed in the last
// day. No push counts twice; where nothing breaks, each counts. A bridge that was killed takes the
// counts of its last minute with it.
func (b *bank) checkCounts(db kv.Database) {
	nc := newLine(b.t, b.env.NATS.URL()).nc
	last := b.startBridge(b.env.NATS.URL(), db, patience)
	defer b.stopBridge(last)

	ask := func(payload []byte) (*subjects.BridgeStats, error) {
		reply, err := nc.Request("$SRV.STATS.pqbridge", payload, patience)
		if err != nil {
			return nil, err
		}
		stats, err := subjects.ParseBridgeStats(reply.Data)
		if err == nil && !stats.Ready {
			err = errors.New("not ready: " + stats.Why)
		}
		return stats, err
	}

	// It reads what others have saved after it has begun to answer. If all of them were killed in
	// their first minute, there is nothing.
	giveUp := time.Now().Add(toRead)
	testenv.Eventually(b.t, func() error {
		stats, err := ask([]byte(subjects.StatsOfQueues))
		if err == nil && stats.Total.Day.In == 0 &&
			(len(b.faults) == 0 || time.Now().Before(giveUp)) {
			err = errors.New("nothing was counted")
		}
		return err
	})

	for _, name := range b.living() {
		kind := subjects.Priority
		if isFIFO(name) {
			kind = subjects.FIFO
		}
		b.counts.mu.Lock()
		want := b.counts.pushed[name]
		b.counts.mu.Unlock()
		if want == nil {
			want = &pushCount{}
		}

		// It may have read what one of the others has saved, and not yet the rest.
		var in int64
		testenv.Eventually(b.t, func() error {
			stats, err := ask(subjects.StatsOfQueue(kind, name))
			must(b.t, err)
			if len(stats.Queues) != 1 {
				b.t.Fatalf("queue %s is not counted by itself", name)
			}

			in = stats.Queues[0].Day.In
			if len(b.faults) == 0 && in < want.known {
				return b.miscounted(name, in, want)
			}
			return nil
		})
		if in > want.known+want.maybe {
			b.t.Error(b.miscounted(name, in, want))
		}
		b.tally.add("pushes counted in minutes", int(in))
		b.tally.add("pushes to count", int(want.known))
	}
}

func (b *bank) miscounted(queue string, in int64, want *pushCount) error {
	return fmt.Errorf("queue %s counts %d items that were pushed in the last day: want %d, and up "+
		"to %d more\nmake a similar run: %s", queue, in, want.known, want.maybe, b.again())
}
