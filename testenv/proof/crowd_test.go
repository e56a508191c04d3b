package proof_test

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// Transactions rarely lack room for the requests of clients that send them one by one. In a crowd
// one client sends several at once, so that most of them share a transaction.
const (
	maxCrowd = 10 // requests with leases, and as many others
	// The same in a history, because the search for an order would be slow with more.
	maxSmallCrowd = 2
	maxCrowdBatch = 6  // items that one pops or leases
	maxNext       = 4  // items that a +NXT asks for
	minCrowd      = 8  // leases to begin with, in accounts
	crowdEvery    = 10 // a history has a crowd about every so many requests of a client
)

// crowd returns up to most requests with leases of these queues that the client has, each used
// once, and up to most others.
func (w *workload) crowd(
	c *caller, queues []string, most int, next func(queue string) books.Operation,
) (requests []pending) {
	for _, queue := range queues {
		var list []*grip
		for _, g := range c.grips {
			if g.queue == queue && w.random.IntN(4) > 0 {
				list = append(list, g)
			}
		}

		for len(list) > 0 {
			r := pending{op: w.useOf(list[0]), token: list[0].AckSubject()}
			if r.op.Kind == books.Ack || r.op.Kind.Takes() {
				r.op.Kind = books.NextMin
				if list[0].back {
					r.op.Kind = books.NextMax
				}

				others := list[1:][:w.random.IntN(min(len(list), 4))]
				for _, g := range others {
					r.op.Also = append(r.op.Also,
						books.Item{Value: g.item.Value, ID: g.item.ID, Fence: g.item.Fence})
					r.also = append(r.also, tokenOf(g.AckSubject()))
				}

				if n := 1 + w.random.IntN(maxNext); n > 1 {
					r.op.Batch = n
				}

				w.limitBytes(&r.op)
				list = list[len(others):]
			}

			list = list[1:]
			requests = append(requests, r)
		}
	}

	w.random.Shuffle(len(requests),
		func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	requests = requests[:min(len(requests), most)]

	for range 2 + w.random.IntN(most-1) {
		requests = append(requests, pending{op: next(queues[w.random.IntN(len(queues))])})
	}

	w.random.Shuffle(len(requests),
		func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	return requests
}

// crowd sends a crowd of requests, unless the history has too many of unknown outcome, and returns
// how many there were.
func (b *burster) crowd(w *workload, open *openPops, meter *odometer) int {
	queues := slices.Clone(w.queues)
	w.random.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })

	all := w.crowd(
		b.caller,
		queues[:1+w.random.IntN(2)],
		maxSmallCrowd,
		func(queue string) books.Operation {
			op := books.Operation{Queue: queue}
			op.Kind = []books.Kind{
				books.LeaseMin, books.LeaseMin, books.LeaseMax, books.PopMin, books.Push,
			}[w.random.IntN(5)]

			if isFIFO(queue) {
				op.Kind = fromFront(op.Kind)
			}
			if books.IsTraced(queue) {
				op.Kind = leased(op.Kind)
			}

			if w.fill(&op); op.Kind == books.Push {
				w.fillPush(b.caller, &op)
			}

			return op
		},
	)

	asked := map[string]int{}
	for i := range all {
		if op := &all[i].op; op.Kind.Takes() {
			asked[op.Queue] += max(1, op.Batch)
		}
	}

	if !open.reserve(asked) {
		return 0
	}

	again := false
	b.sendAll(all, func(string) int { return w.padding() }, nothing, func(r *pending) {
		b.ops = append(b.ops, r.op)
		b.note(w, &r.op)
		open.add(r.op.Queue, r.op.Untold())
		meter.add()
		again = again || broken(&r.op)
	})

	for queue, n := range asked {
		open.add(queue, -n)
	}

	if again {
		b.await()
	}

	return len(all)
}
