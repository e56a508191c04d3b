package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// reply waits for the batches that run started, in their order, and answers
// their requests.
func (l *lane) reply() {
	var e encoder
	for b := range l.started {
		results, err := b.pending.Wait()
		b.cancel()
		l.setDurable(b)
		if err == nil {
			l.answer(&e, b, results)
		} else {
			l.fail(b, err)
		}
		l.finish(b)
	}
}

// setDurable notes that only the answers of the batch are missing.
func (l *lane) setDurable(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.durable = true
	l.mu.changed.Signal()
}

func (l *lane) answer(e *encoder, b *batch, results []fdbpq.Result) {
	l.b.metrics.batchSize.Observe(float64(len(b.ops)))
	now := time.Now()
	largest, items := 0, false
	l.b.unconfirmed.begin(b)
	for i := range results {
		r, result := &b.requests[i], &results[i]
		if result.Err != nil {
			l.b.send(l.b.refusal(r, result.Err))
			r.origin.answered()
			continue
		}
		kind := b.ops[i].Kind
		items = items || returnsItem(kind)
		size := len(result.Item.Value) + headerSize(result.Item.Headers)
		largest = max(largest, r.size, size)
		b.itemBytes += size
		err := l.b.answer(e, r, result, kind)
		if err != nil {
			err = fmt.Errorf("%w: the reply could not be sent: %w", ErrUnavailable, err)
		}
		r.endpoint.done(now.Sub(r.received), refusalOf(err))
		r.origin.answered()
		if err != nil {
			l.b.replyFailed(err)
			l.restore(r, kind, &result.Item)
			result.Err = err // done with
		}
	}
	b.results = results
	l.observe(largest, items)
}

// restore pushes an item again that was popped for a reply which NATS did not
// take, because the connection has been away for too long, carries only smaller
// messages by now, or must not carry it. It comes after the others of its
// priority.
func (l *lane) restore(r *request, kind fdbpq.OpKind, item *fdbpq.Item) {
	if kind != fdbpq.OpPop {
		return
	}
	verb := subjects.Push
	if r.queue.kind == subjects.FIFO {
		verb = subjects.Enqueue
	}
	again := request{
		queue:    r.queue,
		endpoint: l.b.endpoints.of(&subjects.Request{Kind: r.queue.kind, Verb: verb}),
		received: time.Now(),
		size:     len(item.Value) + headerSize(item.Headers),
		restores: true,
	}
	op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: r.queue.target, Priority: item.ID.Priority, Message: item.Message}
	if !l.readd(&again, &op) {
		l.b.refuse(&again, fmt.Errorf("%w: item %s of queue %s is lost: its reply could not be sent and the lane has ended",
			ErrUnavailable, item.ID, r.queue.name))
	}
}

// observe corrects what a pop is expected to return: up to the largest message
// seen at once, down slowly, so that a batch of pops of large items neither
// fills the memory nor becomes more than a transaction can put back.
func (l *lane) observe(largest int, items bool) {
	expected := l.popSize.Load()
	if int64(largest) > expected {
		l.popSize.Store(int64(largest))
	} else if items {
		l.popSize.Store(expected - (expected-int64(largest)+7)/8)
	}
}

// fail answers a batch that was not run, or of which nobody knows.
func (l *lane) fail(b *batch, err error) {
	if b.writes {
		l.b.writes.note(err)
	}
	switch {
	case kv.MaybeCommitted(err):
		err = fmt.Errorf("%w: a push may or may not be in the queue, and what a pop took is put back: %w", ErrUnknownOutcome, err)
		l.setUnsettled()
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: the store did not answer in time, the request was not run: try again", ErrUnavailable)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%w: the service is shutting down, the request was not run: try again", ErrUnavailable)
	}
	l.b.quiet.store.warn("a batch failed", "requests", len(b.requests), "error", err)
	for i := range b.requests {
		r := &b.requests[i]
		// An item is pushed again until it is stored, unless it may be already.
		if r.restores && !errors.Is(err, ErrUnknownOutcome) && l.readd(r, &b.ops[i]) {
			continue
		}
		l.b.refuse(r, err)
	}
}

// refuseWaiting answers all that wait because the store is not available. They
// were not run.
func (l *lane) refuseWaiting(err error) {
	var refused []request
	l.mu.Lock()
	kept := slices.DeleteFunc(l.mu.waiting[l.mu.head:], func(w waiting) bool {
		if !w.restores {
			refused = append(refused, w.request)
		}
		return !w.restores
	})
	l.mu.waiting = l.mu.waiting[:l.mu.head+len(kept)]
	l.mu.others = 0 // those kept are pushes
	l.mu.Unlock()
	err = fmt.Errorf("%w: the request was not run: try again: %w", ErrUnavailable, err)
	for i := range refused {
		l.b.load.release(1, refused[i].size)
		l.b.refuse(&refused[i], err)
	}
}

// finish gives up what the batch held, but for what is kept until its replies are
// confirmed.
func (l *lane) finish(b *batch) {
	bytes := 0
	for i := range b.requests {
		bytes += b.requests[i].size
		b.ops[i] = fdbpq.Op{Kind: b.ops[i].Kind}
	}
	l.b.load.release(len(b.requests), bytes)
	l.mu.Lock()
	if b.silent {
		l.mu.silent--
	}
	if l.mu.newest == b {
		l.mu.newest = nil
	}
	l.mu.unconfirmed++
	l.mu.changed.Signal()
	l.mu.Unlock()
	b.lane = l
	if b.tracked {
		l.b.unconfirmed.sent(b)
	} else {
		l.confirmed(b)
	}
}

// confirmed takes back a batch that nothing more will come of.
func (l *lane) confirmed(b *batch) {
	l.mu.Lock()
	l.mu.unconfirmed--
	l.mu.changed.Signal()
	l.mu.Unlock()
	clear(b.requests)
	*b = batch{requests: b.requests[:0], ops: b.ops[:0]}
	l.spare.Put(b)
}
