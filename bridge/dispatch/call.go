package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// call is the Replier of a request whose caller waits for the answer.
type call struct {
	done    chan struct{} // closed when there is an answer, unless the caller has gone
	ended   atomic.Bool   // there is an answer, or the caller has gone
	results []fdbpq.Result
	err     error
}

func newCall() *call { return &call{done: make(chan struct{})} }

// wait waits for the answer.
func (c *call) wait(ctx context.Context) ([]fdbpq.Result, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.ended.Swap(true) {
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		}
		<-c.done
	}
	return c.results, c.err
}

// Answer implements Replier.
func (c *call) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	c.results = slices.Clone(results)
	if c.ended.Swap(true) {
		r.Queue.lane.d.requeueLate(r.Queue, ops, c.results)
		return
	}
	close(c.done)
}

// Fail implements Replier.
func (c *call) Fail(_ *Request, _ []fdbpq.Op, err error) {
	c.err = err
	if !c.ended.Swap(true) {
		close(c.done)
	}
}
