// Package staged pops from queues that many processes pop from at the same time: the published
// recipe's extension for high contention.
//
//	pop.go       pops, and their first attempts
//	wait.go      pops that stand in line
//	settle.go    pops that were given up
//	popper.go    Popper
//	serve.go     answers to all requests in line, in one transaction
//	request.go   what a pop knows of its request; deadlines and limits
//	standing.go  whether a pop stands in line
package staged

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many processes pop from at the same time. Plain pops from one queue
// conflict, and most of their work is wasted. A pop of a Popper can register a request for an item
// from its end of the queue, and another pop serves all requests in line in one transaction.
//
// As long as conflicts are rare, pops need no line. A Popper leads while its pops succeed at the
// first attempt: each takes its item itself, in a single transaction, as a plain pop does. If an
// attempt loses to a conflict, or a new Popper finds a line, the Popper follows: its pops register
// at once. It leads again when one of them has served the line. So usually one Popper leads, the
// others follow, and nothing conflicts.
//
// A leader that saw n requests in line, at most 32, skips them with 2n pops of 2n+1, and serves the
// line with the other one, before it takes its own item. So among few processes two pops of three
// take a single transaction; among many nearly all stand in line, which gives the highest rate.
// More than 30n+15 pops skip a request once in a million times.
//
// A pop in line checks for its answer, an item or "empty", until there is one. It serves the line
// itself if its request is the first and no other Popper has taken an item between two checks. Nor
// does it wait for a leader, or for the owner of the first request, longer than about a second.
//
// A process that dies strands nothing. Requests expire after 10 seconds, and an item that is not
// collected within 30 seconds returns to its old place with the next pop of anybody. These
// deadlines compare clocks of different machines, which must agree to a few seconds.
//
// Order is best effort among items in flight: the pops served by one transaction get the first
// items of the queue, but one may return the second item before another has collected the first.
//
// A Popper that serves the line does not go by Settings.MaxLeasedPerGroup, Rate and RatePerGroup. Set
// none of them for a queue that is popped from like this.
//
// A Popper is safe for concurrent use.
type Popper struct {
	db       kv.Database
	q        fdbpq.Target
	l        *codec.Layout
	now      func() time.Time
	standing standing

	mu struct {
		sync.Mutex
		oldClaims []expiringKey // of finished pops, to be removed
		unsettled []*request    // pops of unknown outcome
	}
}

// New returns a Popper for the queue q in db.
func New(db kv.Database, q fdbpq.Target) *Popper {
	return &Popper{db: db, q: q, l: q.Layout(), now: time.Now, standing: standing{random: rand.IntN}}
}

// SetNow gives the Popper another clock than time.Now. Call it before the first pop.
func (p *Popper) SetNow(now func() time.Time) { p.now = now }

// once runs fn, a step of a pop, in a transaction, without retries. It returns nil with an error.
func (p *Popper) once(ctx context.Context, fn func(kv.Transaction) (*fdbpq.Result, error)) (*fdbpq.Result, error) {
	tx, err := p.db.Begin(ctx, kv.BeginOptions{Shrinks: true})
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()

	result, err := fn(tx)
	if err != nil {
		return nil, err
	}
	if _, err = tx.Commit().Get(); err != nil {
		return nil, err
	}
	return result, nil
}
