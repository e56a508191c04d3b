package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Do runs operations on a queue in one transaction and returns their results, for callers that can wait.
// It sets the Queue of the operations. The error says that none was done or, if it wraps
// ErrUnknownOutcome or kv.ErrCommitUnknown, that this is unknown: also if ctx ends first. What a pop or
// lease takes after that goes to Options.GiveBack; without it, such operations outlast ctx.
func (d *Dispatcher) Do(ctx context.Context, q *Queue, ops []fdbpq.Op) ([]fdbpq.Result, error) {
	size := 0
	for i := range ops {
		ops[i].Queue = q.Target
		size += sizeOf(&ops[i].Message)
	}

	c := newCall()
	if err := d.Submit(&Request{Queue: q, Replier: c, Received: time.Now(), Size: size}, ops); err != nil {
		return nil, err
	}
	if !q.lane.mayAnswer(ops) {
		<-c.done
	}
	return c.wait(ctx)
}

// call is the Replier of a request whose caller waits for the answer.
type call struct {
	done    chan struct{} // closed when there is an answer, unless the caller has gone
	over    atomic.Bool   // there is an answer, or the caller has gone
	results []fdbpq.Result
	err     error
}

func newCall() *call { return &call{done: make(chan struct{})} }

// wait waits for the answer.
func (c *call) wait(ctx context.Context) ([]fdbpq.Result, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.over.Swap(true) {
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		}
		<-c.done
	}
	return c.results, c.err
}

// Answer implements Replier.
func (c *call) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	c.results = slices.Clone(results)
	if c.over.Swap(true) {
		r.Queue.lane.giveBack(r.Queue, ops, c.results)
		return
	}
	close(c.done)
}

// Fail implements Replier.
func (c *call) Fail(_ *Request, _ []fdbpq.Op, err error) {
	c.err = err
	if !c.over.Swap(true) {
		close(c.done)
	}
}
