package main

import (
	"math"
	"slices"
)

// A queue is a closed loop. Its lane makes one batch after another, and each client has one request
// under way, which waits for the batch before to end, and then for its own. So at any time half of
// the clients are in batches, and the size of these follows from the clients and the lanes alone.
//
// What a batch takes is a sum: something for itself, for each operation, for each queue that it
// touches, and for the root of its operations, because the more requests and replies there are, the
// more of them share a wake-up. The processor time of each kind of process is such a sum too.
//
// Batches and processors each limit the rate. Where both limits are near each other, the rate stays
// below both: the squares of the times for an item add up.

// lanesOfBridge is PQ_LANES on FoundationDB, and maxBatch PQ_MAX_BATCH.
const (
	lanesOfBridge = 4
	maxBatch      = 1024
)

// shape is a system with a load.
type shape struct{ servers, bridges, clients, queues float64 }

// lanes is how many lanes an operation has. One bridge runs the pops of a queue, and all bridges
// its pushes and acknowledgements. A lease with its acknowledgement is half of each.
func (s shape) lanes(op string) float64 {
	one := min(s.queues, lanesOfBridge*s.bridges)
	all := min(s.queues, lanesOfBridge) * s.bridges
	switch op {
	case "push":
		return all
	case "pop":
		return one
	}
	return 2 / (1/one + 1/all)
}

// batch is how large the batches of an operation are.
type batch struct {
	lanes      float64 // that are in use at the same time
	operations float64
	queues     float64 // touched by a batch
}

// steps is how many operations an item takes.
func steps(op string) float64 {
	if op == "lease" { // and its acknowledgement
		return 2
	}
	return 1
}

func (s shape) batch(op string) batch {
	lanes := min(s.lanes(op), s.clients)
	return batchOf(lanes, min(max(s.clients/2/lanes, 1), maxBatch), s.queues*lanes/s.lanes(op))
}

// batchOf returns a batch in one of some lanes, which share queues.
func batchOf(lanes, operations, queues float64) batch {
	queues = max(queues/lanes, 1)
	return batch{lanes, operations, queues * (1 - math.Pow(1-1/queues, operations))}
}

// parts are what the time of a batch is a sum of.
func (b batch) parts() [4]float64 {
	return [4]float64{b.operations, 1, b.queues, math.Sqrt(b.operations)}
}

// sum is what a batch takes for each of its parts, in microseconds.
type sum [4]float64

// of is what a batch takes.
func (s sum) of(b batch) (all float64) {
	for i, n := range b.parts() {
		all += s[i] * n
	}
	return all
}

// costs are what an operation takes.
type costs struct {
	batch     sum            // from one batch of a lane to the next, if processors are idle
	processor map[string]sum // processor time of each kind of process
	thread    sum            // of the thread of a bridge that is busiest: FoundationDB's client
}

// forwarded is which share of its messages an item sends once more, to the owner of its queue: a
// pop and its answer, or one of the four messages of a lease and its acknowledgement.
func forwarded(op string, bridges float64) float64 {
	return map[string]float64{"pop": 1, "lease": 0.25}[op] * (1 - 1/bridges)
}

// perItem is the processor time of a kind of process for an item. What is forwarded costs the NATS
// server as much again, and the bridge what it costs a client.
func (c costs) perItem(kind, op string, b batch, bridges float64) float64 {
	each := func(kind string) float64 { return c.processor[kind].of(b) * steps(op) / b.operations }
	more := forwarded(op, bridges)
	switch kind {
	case "nats":
		return each(kind) * (1 + more)
	case "bridge":
		return each(kind) + each("client")*more
	}
	return each(kind)
}

// predict returns items a second on a machine with some processors.
func (c costs) predict(s shape, op string, processors float64) float64 {
	b := s.batch(op)
	own := c.batch.of(b) * steps(op) / b.operations / b.lanes // for an item, if nothing else limits
	all := 0.0
	for kind := range c.processor {
		all += c.perItem(kind, op, b, s.bridges)
	}
	busy := busiest(all, c.perItem("fdb", op, b, s.bridges), processors, s.servers)
	return 1e6 / math.Hypot(own, busy)
}

// busiest is the time for an item at a machine, or at its fdbservers, which are a thread each.
func busiest(all, fdb, processors, servers float64) float64 {
	return max(all/processors, fdb/servers)
}

// alone is the time of an item that is left if processors did not limit it.
func alone(measured, busy float64) float64 {
	return measured * math.Sqrt(max(1-busy*busy/measured/measured, 0.01))
}

// fit returns what fits the measured values of batches best, each by its ratio. No part is
// negative.
func fit(batches []batch, values []float64) (best sum) {
	parts := []int{0, 1, 2, 3}
	for {
		best = sum{}
		for i, x := range solve(parts, batches, values) {
			best[parts[i]] = x
		}
		least := slices.Index(best[:], slices.Min(best[:]))
		if best[least] >= 0 {
			return best
		}
		parts = slices.DeleteFunc(parts, func(part int) bool { return part == least })
	}
}

// solve returns the least squares for some parts of a sum, by elimination.
func solve(parts []int, batches []batch, values []float64) []float64 {
	n := len(parts)
	m := make([][]float64, n) // the normal equations, with the right side last
	for i := range m {
		m[i] = make([]float64, n+1)
	}
	for k, b := range batches {
		all := b.parts()
		for i, part := range parts {
			for j, other := range parts {
				m[i][j] += all[part] * all[other] / values[k] / values[k]
			}
			m[i][n] += all[part] / values[k]
		}
	}

	for i := range m {
		for k := range m {
			if factor := m[k][i] / m[i][i]; k != i {
				for j := range m[k] {
					m[k][j] -= factor * m[i][j]
				}
			}
		}
	}
	x := make([]float64, n)
	for i := range m {
		x[i] = m[i][n] / m[i][i]
	}
	return x
}
