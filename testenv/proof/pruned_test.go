package proof_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// keptItems is how many finished jobs some queues keep.
const keptItems = 20

// pruned has the jobs that were acknowledged in queues that keep only the newest few.
type pruned struct {
	mu   sync.Mutex
	jobs map[string]string     // ids, by value
	acks map[string]*prunedAck // by id
}

// prunedAck is the acknowledgement of a job.
type prunedAck struct {
	queue   string
	call    int64 // when it was sent
	counted bool  // and kept the job; else it may have
}

func newPruned() *pruned {
	return &pruned{jobs: map[string]string{}, acks: map[string]*prunedAck{}}
}

// end records an operation in one of these queues.
func (p *pruned) end(op *books.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op.Kind.Leases() {
		for _, item := range op.Items {
			p.jobs[item.Value] = item.Job
		}
	}
	if !op.Kind.Acks() {
		return
	}

	for n, part := range op.Parts() {
		counted := part.Counts()
		if !counted && !part.Open() {
			continue
		}
		id := p.jobs[part.Value]
		if known := p.acks[id]; known == nil || !known.counted {
			isKept := counted && !slices.Contains(op.NotKept, n)
			p.acks[id] = &prunedAck{op.Queue, op.Call, isKept}
		}
	}
}

// configurePruned has these queues keep few jobs.
func (b *bank) configurePruned(set func(queues []string, s client.Settings)) {
	set(b.brief, client.Settings{Keep: keepFor, KeepItems: keptItems})
}

// checkPruned checks that each of these queues keeps its newest jobs, once the last minute is over.
func (b *bank) checkPruned(ctx context.Context, db kv.Database) {
	b.pruned.mu.Lock()
	defer b.pruned.mu.Unlock()
	later := time.Now().Add(2 * time.Minute)

	for _, name := range b.brief {
		for more := true; more; {
			more = b.apply(ctx, db, name, later, fdbpq.Op{Kind: fdbpq.OpSweep}).Swept.More
		}

		there, oldest := map[string]bool{}, int64(math.MaxInt64)
		must(b.t, eachDone(ctx, db, name, func(i *fdbpq.Browsed) {
			id := i.Job().String()
			if a := b.pruned.acks[id]; a == nil || a.queue != name || there[id] {
				b.t.Errorf("job %s of %s is done, and its acknowledgement is %+v; twice: %t",
					id, name, a, there[id])
			}
			there[id] = true
			oldest = min(oldest, i.Finished.Order.Sub(b.zero).Nanoseconds())
		}))
		if len(there) > keptItems {
			b.t.Errorf("queue %s keeps %d jobs, and keep_items is %d", name, len(there), keptItems)
		}

		gone := 0
		for id, a := range b.pruned.acks {
			if a.queue != name || !a.counted || there[id] {
				continue
			}
			gone++
			isNewer := a.call > oldest+int64(2*b.skew+10*time.Millisecond)
			if isNewer || len(there) < keptItems {
				b.t.Errorf("job %s of %s, acknowledged at %v, is gone: %d jobs are kept, the "+
					"first of %v\nmake a similar run: %s", id, name, time.Duration(a.call),
					len(there), time.Duration(oldest), b.again())
			}
		}
		b.tally.add("finished jobs beyond keep_items", gone)
	}
}
