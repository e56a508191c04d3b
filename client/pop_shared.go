package client

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// sharedPops has pops of one queue and end share requests: those that are called while maxUnderWay requests are under way go
// with the next one, as one pop of several items.
type sharedPops struct {
	mu    sync.Mutex
	lines map[popLineKey]*popLine // those with requests under way
	slow  time.Duration           // after which a request is slow; 0 means slowPop
}

type popLineKey struct {
	kind subjects.Kind
	name string
	verb subjects.Verb
}

// popLine is the pops of one queue and end.
type popLine struct {
	popLineKey
	open    int        // requests under way
	busy    int        // those that are not slow, up to maxUnderWay
	waiting []*popCall // for the next request
}

// popCall is a pop that waits to share a request, or for the answer to it.
type popCall struct {
	result   chan popResult // has room for it
	deadline time.Time      // its request is given up after the latest of those of its calls
	gone     bool           // nobody waits for the result any more
}

type popResult struct {
	item *Item
	err  error
}

// slowPop is how long a request holds up those who wait for the next one: it may have gone to a bridge that is gone.
const slowPop = 250 * time.Millisecond

// popOne pops one item.
func (q *queue) popOne(ctx context.Context, verb subjects.Verb) (*Item, error) {
	subject, err := q.subject(verb)
	if err == nil {
		err = q.client.usable(ctx, &nats.Msg{Subject: subject})
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := q.client.bound(ctx) // also in the line, and though others of its request may wait longer
	defer cancel()
	s := &q.client.pops
	deadline, _ := ctx.Deadline()
	line, call := s.enter(popLineKey{q.kind, q.name, verb}, deadline)
	if call == nil {
		defer s.underWay(q.client, line)()
		return q.item(ctx, verb)
	}
	select {
	case r := <-call.result:
		return r.item, r.err
	case <-ctx.Done():
		return s.giveUp(ctx, line, call)
	}
}

// enter returns a pop that waits in the line, or nil for one that makes a request at once.
func (s *sharedPops) enter(key popLineKey, deadline time.Time) (*popLine, *popCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[key]
	if line == nil {
		line = &popLine{popLineKey: key}
		if s.lines == nil {
			s.lines = map[popLineKey]*popLine{}
		}
		s.lines[key] = line
	}
	if line.busy < maxUnderWay {
		line.begin()
		return line, nil
	}
	call := &popCall{result: make(chan popResult, 1), deadline: deadline}
	line.waiting = append(line.waiting, call)
	return line, call
}

// begin counts a request. The lock is held.
func (l *popLine) begin() {
	l.open++
	l.busy++
}

// underWay watches a request that has begun. The function that it returns ends it.
func (s *sharedPops) underWay(c *Client, line *popLine) (end func()) {
	notBusy := sync.OnceFunc(func() { line.busy-- })
	slow := time.AfterFunc(cmp.Or(s.slow, slowPop), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		notBusy()
		s.next(c, line)
	})
	return func() {
		slow.Stop()
		runtime.Gosched() // those who got an item may be back in time for the next request
		s.mu.Lock()
		defer s.mu.Unlock()
		notBusy()
		line.open--
		s.next(c, line) // also after a slow one: some of its calls may wait again
	}
}

// next makes requests of those who wait, in place of those that are answered or slow. The lock is held.
func (s *sharedPops) next(c *Client, line *popLine) {
	for line.busy < maxUnderWay && len(line.waiting) > 0 {
		n := min(len(line.waiting), subjects.MaxPopBatch)
		line.begin()
		go s.request(c, line, line.waiting[:n:n])
		line.waiting = line.waiting[n:]
	}
	if line.open == 0 {
		delete(s.lines, line.popLineKey)
	}
}

// request makes one request for all of these pops.
func (s *sharedPops) request(c *Client, line *popLine, calls []*popCall) {
	defer s.underWay(c, line)()
	latest := slices.MaxFunc(calls, func(a, b *popCall) int { return a.deadline.Compare(b.deadline) }).deadline
	ctx, cancel := context.WithDeadline(context.Background(), latest.Add(slowPop)) // the calls end first, each with its own cause
	defer cancel()
	items, err := (&queue{c, line.kind, line.name}).pops(ctx, line.verb, len(calls), nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items { // in the order of the calls
		if calls = s.give(calls, popResult{item: item}); calls == nil {
			line.waiting = s.give(line.waiting, popResult{item: item}) // rather than lose it
		}
	}
	if err == nil && len(items) > 0 { // there may be more: only an answer without items says that there are not
		calls = slices.DeleteFunc(calls, func(call *popCall) bool { return call.gone })
		line.waiting = append(calls, line.waiting...)
		return
	}
	for len(calls) > 0 {
		calls = s.give(calls, popResult{err: err})
	}
}

// give gives a result to the first of the calls that somebody waits for, and returns those behind it.
func (s *sharedPops) give(calls []*popCall, r popResult) []*popCall {
	for i, call := range calls {
		if !call.gone {
			call.result <- r
			return calls[i+1:]
		}
	}
	return nil
}

// giveUp ends a pop whose context has ended.
func (s *sharedPops) giveUp(ctx context.Context, line *popLine, call *popCall) (*Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(line.waiting, call); i >= 0 {
		line.waiting = slices.Delete(line.waiting, i, i+1)
		return nil, fmt.Errorf("waited for other pops: %w", endOf(ctx))
	}
	call.gone = true
	select {
	case r := <-call.result:
		return r.item, r.err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, endOf(ctx))
	}
}
