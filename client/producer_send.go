package client

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// send pushes what is pending, until nothing is.
func (p *Producer) send() {
	for batch := p.take(); len(batch) > 0; batch = p.take() {
		p.push(batch)
		runtime.Gosched() // whoever waited for these can push the next ones
	}
}

// take returns all that is pending, once what it returned before has ended. If that is nothing, the sender has ended.
func (p *Producer) take() []*PushFuture {
	p.mu.Lock()
	defer p.mu.Unlock()
	batch := p.pending
	p.pending = nil
	p.sending = len(batch) > 0
	closeAll(p.flushing)
	p.flushing, p.flushes = p.flushes, nil
	if !p.sending {
		closeAll(p.flushing)
		p.flushing = nil
	}
	return batch
}

func closeAll(list []chan struct{}) {
	for _, c := range list {
		close(c)
	}
}

// push pushes items, in order, and returns when all have ended. Batches get smaller when the bridge refuses
// one, to find the item at fault, or to fill a queue that is nearly full, and then larger again.
func (p *Producer) push(rest []*PushFuture) {
	var wait pause
	for n := len(rest); len(rest) > 0; {
		if p.killed.Err() != nil {
			p.endAll(rest, fmt.Errorf("%w: %w", ErrNotSent, ErrProducerClosed))
			return
		}
		batch := rest[:p.fit(rest, n)]
		err := p.try(batch)
		switch {
		case err == nil:
			rest = rest[len(batch):]
			n, wait = 2*len(batch), pause{}
		case refused(err) && len(batch) > 1:
			n = len(batch) / 2
		case passing(err), p.killed.Err() != nil:
			left := p.endOverdue(batch, err)
			rest = append(left, rest[len(batch):]...)
			n = len(rest)
			if errors.Is(err, ErrOverloaded) {
				n = max(1, len(batch)/2)
			}
			wait.take(p.killed)
		default:
			p.endAll(batch, err)
			rest = rest[len(batch):]
			n = len(batch)
		}
	}
}

// fit returns how many of the first n items go into one batch.
func (p *Producer) fit(items []*PushFuture, n int) int {
	maxPayload := p.queue.client.maxPayload()
	n = min(n, len(items), mostItems(maxPayload))
	bytes := 0
	for i, f := range items[:n] {
		if bytes += len(f.frame); bytes > batchBytes(maxPayload) {
			return max(1, i)
		}
	}
	return max(1, n)
}

// try pushes a batch, and ends its items if that is done.
func (p *Producer) try(batch []*PushFuture) error {
	var payload []byte
	for _, f := range batch {
		payload = append(payload, f.frame...)
	}
	// A batch that closing gives up has an unknown outcome, unless it was not sent.
	ids, duplicates, err := p.queue.pushFrames(p.killed, p.verb, len(batch), payload)
	if errors.Is(err, ErrUnknownOutcome) {
		for _, f := range batch {
			f.unknown = true
		}
	}
	if err != nil {
		return err
	}
	for i, f := range batch {
		p.end(f, PushAck{Queue: p.queue.name, ID: ids[i], Priority: f.priority, Duplicate: slices.Contains(duplicates, i)}, nil)
	}
	return nil
}

// passing reports whether what failed may succeed later.
func passing(err error) bool {
	for _, one := range []error{ErrOverloaded, ErrUnavailable, ErrNoBridge, ErrUnknownOutcome, ErrNotSent} {
		if errors.Is(err, one) {
			return !hopeless(err)
		}
	}
	return false
}

// endOverdue ends those items that must not be tried again, and returns the others.
func (p *Producer) endOverdue(batch []*PushFuture, err error) (left []*PushFuture) {
	unknown := errors.Is(err, ErrUnknownOutcome)
	for _, f := range batch {
		if unknown && !f.hasMsgID || !time.Now().Before(f.until) {
			p.end(f, PushAck{}, err)
		} else {
			left = append(left, f)
		}
	}
	return left
}

// endAll ends items with an error.
func (p *Producer) endAll(items []*PushFuture, err error) {
	for _, f := range items {
		p.end(f, PushAck{}, err)
	}
}

// end ends a push.
func (p *Producer) end(f *PushFuture, ack PushAck, err error) {
	if err != nil && f.unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w of an earlier attempt; the last one: %w", ErrUnknownOutcome, err)
	}
	f.ack, f.err = ack, err
	close(f.done)
	p.giveRoom(f.room)
	if p.o.Done != nil {
		p.o.Done(f)
	}
}
