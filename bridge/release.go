package bridge

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// release ends the lease of an item that nobody received, and does not count the delivery. It does nothing if the token
// does not hold any more. It tries once: otherwise the lease runs out.
func (b *Bridge) release(q *dispatch.Queue, token *fdbpq.Token, why reason) {
	r := dispatch.Request{Queue: q, Replier: &releasing{b, why}, Received: time.Now(), Size: itemOverhead}
	op := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q.Target, Token: *token, Uncounted: true}
	_ = b.dispatcher.Requeue(&r, []fdbpq.Op{op}) // only once the bridge has ended
}

// releasing is the dispatch.Replier of a release.
type releasing struct {
	b      *Bridge
	reason reason
}

// Answer implements dispatch.Replier.
func (r *releasing) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if results[0].Err == nil {
		r.b.metrics.givenBack[r.reason].Inc()
	}
}

// Deliver is never called: a release does not wait.
func (r *releasing) Deliver(*dispatch.Request, []fdbpq.Op, []fdbpq.Result) (more bool) { return false }

// Heartbeat is never called.
func (r *releasing) Heartbeat(*dispatch.Request, int) {}

// Fail leaves it to the lease to end.
func (r *releasing) Fail(*dispatch.Request, []fdbpq.Op, error) {}
