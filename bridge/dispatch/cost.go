package dispatch

import "github.com/pqbridge/pqbridge/fdbpq"

// opOverhead is roughly how many bytes an operation adds to a transaction.
const opOverhead = 256

// sweepBytes is roughly how many bytes a purge or redrive adds to a transaction.
const sweepBytes = 1 << 20

// sweepPage is how many queues the Sweeper sweeps at a time.
const sweepPage = 32

// expectedBytes estimates the bytes that the request adds to a transaction.
func (l *lane) expectedBytes(r *Request, ops []fdbpq.Op) int {
	bytes := r.Size + opOverhead*len(ops)
	if r.Pops > 1 {
		bytes += (r.Pops - 1) * l.popCost()
	}

	for i := range ops {
		switch kind := ops[i].Kind; {
		case movesItem(kind):
			bytes += int(l.popSize.Load())
		case kind == fdbpq.OpPurge || kind == fdbpq.OpRedrive:
			bytes += sweepBytes
		case kind == fdbpq.OpSweep: // those of a batch share their room
			bytes += sweepBytes / sweepPage
		}
	}
	return bytes
}

// popCost is about how many bytes a pop adds to a transaction.
func (l *lane) popCost() int { return int(l.popSize.Load()) + opOverhead }

// observeSizes adjusts the expected size of an item: up to the largest message at once, down
// slowly. So a batch has no more pops than there is room for: see fdbpq.Batcher.LimitReturned.
func (l *lane) observeSizes(largest int, items bool) {
	expected := l.popSize.Load()
	if int64(largest) > expected {
		l.popSize.Store(int64(largest))
	} else if items {
		l.popSize.Store(expected - (expected-int64(largest)+7)/8)
	}
}
