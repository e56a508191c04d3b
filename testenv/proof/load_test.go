package proof_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// pushAll pushes many items.
func (w *teller) pushAll() {
	random := w.workload.random
	requests := make([]pending, 1+random.IntN(maxBurst))

	for i := range requests {
		op := &requests[i].op
		op.Kind, op.Queue = books.Push, w.someQueue(share{5, w.scarce}, share{5, w.unique},
			share{5, w.purged}, share{5, w.mortal}, share{5, w.limited}, share{8, w.large},
			share{8, w.grouped}, share{4, w.rated}, share{8, w.traced}, share{4, w.brief},
			share{4, w.retried})
		rated := slices.Contains(w.rated, op.Queue)
		unique := slices.Contains(w.unique, op.Queue)

		if unique {
			op.Unique = strconv.Itoa(random.IntN(uniqueKeys))
		}

		requests[i].once = !unique && random.IntN(3) == 0
		if random.IntN(10) == 0 {
			op.Delay = random.Int64N(int64(accountDelay))
		}

		if !unique && !rated && random.IntN(8) == 0 {
			op.Batch = 1 + random.IntN(maxPushed)
			for range op.Batch {
				value := strconv.FormatInt(w.books.New(), 10)
				op.Items = append(op.Items,
					books.Item{Value: value, Group: groupOf(op.Queue, value)})
			}
			w.drawJoin(op)
		} else {
			op.Value = strconv.FormatInt(w.books.New(), 10)
			w.drawMember(op)
			if rated {
				op.TTL = int64(fdbpq.MinTTL) + random.Int64N(int64(maxRateTTL))
			} else if !books.IsTraced(op.Queue) && random.IntN(10) == 0 {
				most := accountTTLs[random.IntN(len(accountTTLs))]
				op.TTL = int64(fdbpq.MinTTL) + random.Int64N(int64(most))
			}
		}

		if !isFIFO(op.Queue) {
			op.Priority = random.Int64N(4) - 1
		}
	}

	w.burst(requests)
}

// crowd has requests for large items, and pushes of some, come at once.
func (w *teller) crowd() {
	random := w.workload.random
	if w.countGrips(w.large) < minCrowd {
		w.prepareCrowd()
	}

	w.burst(w.workload.crowd(w.caller, w.large, maxCrowd, func(queue string) books.Operation {
		op := w.take(random.IntN(4) == 0)
		op.Batch = min(op.Batch, maxCrowdBatch)

		if random.IntN(4) == 0 {
			op = books.Operation{Kind: books.Push, Value: strconv.FormatInt(w.books.New(), 10)}
		}

		if op.Queue = queue; isFIFO(queue) {
			op.Kind = fromFront(op.Kind)
		}

		return op
	}))
}

// prepareCrowd pushes and leases large items.
func (w *teller) prepareCrowd() {
	random := w.workload.random
	queue := w.large[random.IntN(len(w.large))]
	pushes, leases := make([]pending, 2*minCrowd), make([]pending, minCrowd/2)

	for i := range pushes {
		pushes[i].op = books.Operation{
			Kind:  books.Push,
			Queue: queue,
			Value: strconv.FormatInt(w.books.New(), 10),
		}
	}

	for i := range leases {
		leases[i].op = books.Operation{
			Kind:  books.LeaseMin,
			Queue: queue,
			Batch: 2,
			Wait:  w.waits * int64(waits[len(waits)-1]),
		}
	}

	w.burst(pushes)
	w.burst(leases)
}

func (w *teller) countGrips(queues []string) (n int) {
	for _, g := range w.grips {
		if slices.Contains(queues, g.queue) {
			n++
		}
	}
	return n
}

// useAll uses most of the worker's tokens. The other leases run out, and the worker uses
// their tokens too late.
func (w *teller) useAll() {
	random := w.workload.random
	now := time.Now()
	asksLate := random.IntN(3) == 0 // and waits for answers that do not come
	var requests []pending

	for i, g := range w.grips {
		tooLate := g.Until.Before(now)
		switch {
		case !tooLate && random.IntN(10) == 0, !tooLate && g.subject != "" && random.IntN(6) == 0:
			w.late = append(w.late, g)
			w.grips[i] = nil
			continue
		case tooLate && random.IntN(2) == 0:
			continue
		}

		r := pending{op: w.use(g)}
		if !tooLate && random.IntN(2) == 0 && !books.IsTraced(g.queue) {
			r.silent = true
			r.op = operationOf(g, books.Ack)
		}

		w.ackAsJetStream(g, &r.op)
		if r.op.JetStream && (r.op.Kind.Takes() || r.op.Kind == books.Ack && random.IntN(8) == 0) {
			requests = append(requests, ackAndPull(g, r.op)...)
			continue
		}

		r.token = g.acksTo(&r.op)
		r.silent = r.silent || r.op.JetStream && (tooLate && !asksLate || random.IntN(8) == 0)

		if r.asks() {
			w.grips[i] = nil // nothing else uses its token, so an answer is due if the item is gone
		}

		requests = append(requests, r)
	}

	used := slices.DeleteFunc(w.grips, func(g *grip) bool { return g == nil })
	w.grips = nil
	w.burst(w.addLost(w.share(requests)))

	if random.IntN(4) == 0 { // they are used once more
		w.grips = append(w.grips, used...)
	}

	late := slices.IndexFunc(w.late, func(g *grip) bool { return g.Until.After(now) })
	if late < 0 {
		late = len(w.late)
	}

	w.grips = append(w.grips, w.late[:late]...)
	w.late = slices.Delete(w.late, 0, late)
}

func (w *teller) burst(requests []pending) {
	padding := func(queue string) int {
		some := books.IsTraced(queue) && w.workload.random.IntN(10) == 0
		if some || slices.Contains(w.large, queue) {
			return largePadding(w.workload.random)
		}

		if w.workload.random.IntN(5000) == 0 {
			return 120_000
		}

		return w.workload.random.IntN(100)
	}

	for i := range requests {
		w.decorate(&requests[i].op)
	}

	var undecided []*pending
	w.sendAll(requests, padding,
		func(r *pending) {
			r.intent = w.books.Begin(&r.op)
			w.joins.begin(&r.op)
		},
		func(r *pending) {
			if r.undecided() {
				undecided = append(undecided, r)
				return
			}

			w.end(&r.op, r.intent)
			w.noteAnswer(r)
			w.remember(&r.op)
			w.rememberJoin(&r.op)
			w.learn(r)

			if r.op.Kind.Takes() {
				w.note(w.workload, &r.op)
			}
		})

	w.repeat(slices.Clone(undecided), padding)
	for _, r := range undecided {
		w.end(&r.op, r.intent)
	}
}

// share is how many percent of the requests are for some of the queues.
type share struct {
	percent int
	queues  []string
}

// someQueue returns a queue: one of the shares, or a full one.
func (w *teller) someQueue(shares ...share) string {
	random, from := w.workload.random, w.full
	x := random.IntN(100)

	for _, s := range shares {
		if len(s.queues) == 0 {
			continue
		}
		if x -= s.percent; x < 0 {
			from = s.queues
			break
		}
	}

	return from[random.IntN(len(from))]
}

// use returns an operation with a token.
func (w *teller) use(g *grip) books.Operation {
	op := w.useOf(g)
	if !strings.HasSuffix(g.queue, "-dead") && w.workload.random.IntN(12) == 0 &&
		!w.books.IsBack(op.Value) {
		return operationOf(g, books.Term)
	}

	if slices.Contains(w.retried, op.Queue) && w.workload.random.IntN(2) == 0 {
		op = operationOf(g, books.Nak)
	}

	if op.Kind == books.Nak && !op.Snooze && op.Delay == 0 {
		w.retry(g, &op)
	}

	return op
}

// retry has a negative acknowledgement name no delay, if the queue has a backoff, and half of them
// a retry delay.
func (w *teller) retry(g *grip, op *books.Operation) {
	random := w.workload.random
	if random.IntN(2) == 0 {
		op.Retry = int64(minRetry) + random.Int64N(int64(maxRetry-minRetry))
	}

	after := books.RetryAfter(op.Queue, g.item.Deliveries, time.Duration(op.Retry))
	op.Backoff = after > 0 && after <= accountDelay
	if !op.Backoff {
		op.Retry, after = 0, 0
	}

	op.Delay = int64(after)
}

// useSome returns an operation with one token or several.
func (w *teller) useSome() books.Operation {
	random := w.workload.random
	g := w.grips[random.IntN(len(w.grips))]
	op := w.use(g)

	if random.IntN(3) == 0 {
		return op
	}

	op = operationOf(g, books.NextMin)
	if g.back {
		op.Kind = books.NextMax
	}

	w.addOthers(w.caller, &op, maxTogether-1)
	if len(op.Also) > 0 && random.IntN(4) == 0 {
		op.Expires = int64(minExpires) + random.Int64N(int64(maxExpires-minExpires))
	}

	w.limitBytes(&op)
	return op
}

// take returns a pop or a lease.
func (w *teller) take(pop bool) (op books.Operation) {
	random := w.workload.random
	op.Queue = w.someQueue(share{15, w.scarce}, share{5, w.unique}, share{5, w.purged},
		share{15, w.dead}, share{10, w.mortal}, share{3, w.limited}, share{12, w.large},
		share{8, w.grouped}, share{6, w.rated}, share{8, w.traced}, share{6, w.brief},
		share{6, w.retried})
	few := !slices.Contains(w.full, op.Queue)

	// An item that comes back after a pop is not refused.
	if pop && !slices.Contains(w.limited, op.Queue) && !books.IsTraced(op.Queue) {
		op.Kind = []books.Kind{books.PopMin, books.PopMax}[random.IntN(2)]
	} else {
		op.Kind = []books.Kind{books.LeaseMin, books.LeaseMax}[random.IntN(2)]
		op.Wait = w.waits * int64(waits[random.IntN(len(waits))])
	}

	if isFIFO(op.Queue) {
		op.Kind = fromFront(op.Kind)
	}

	if few && random.IntN(2) == 0 || random.IntN(10) == 0 {
		op.Expires = int64(minExpires) + random.Int64N(int64(maxExpires-minExpires))
	}

	most := maxServed
	if op.Expires > 0 {
		most = maxAwaited
	}

	if n := 1 + random.IntN(most); n > 1 {
		op.Batch = n
	}

	w.limitBytes(&op)
	w.pullInAccounts(&op)
	return op
}
