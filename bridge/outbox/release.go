package outbox

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Release ends the lease of an item that nobody received, and does not count the delivery. It does
// nothing if the token does not hold any more. It tries once: otherwise the lease runs out.
func (o *Outbox) Release(q *dispatch.Queue, token *fdbpq.Token, why Reason) {
	r := dispatch.Request{Queue: q, Replier: &releasing{&o.config, why}, Received: time.Now(), Size: itemOverhead}
	op := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q.Target, Token: *token, Uncounted: true}
	_ = o.config.Dispatcher.Requeue(&r, []fdbpq.Op{op}) // only once the bridge has ended
}

// releasing is the dispatch.Replier of a release.
type releasing struct {
	config *Config
	reason Reason
}

// Answer implements dispatch.Replier.
func (r *releasing) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	if results[0].Err == nil {
		r.config.Returned(r.reason)
	}
}

// Fail leaves it to the lease to end.
func (r *releasing) Fail(*dispatch.Request, []fdbpq.Op, error) {}
