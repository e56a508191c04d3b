package peers

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Waits says that a pop may wait for items on this bridge, so the peers ring from now on.
func (r *Router) Waits() {
	if !r.bell.waits.Swap(true) {
		signal.To(r.helloNow)
	}
}

// Filled says that this bridge has made items of a queue available. Items that are due later ring
// at once: the waiters look, and then know when.
func (r *Router) Filled(q *dispatch.Queue) {
	if r.bell.peersWait.Load() {
		r.publish("bell."+q.Kind.Short()+"."+q.Name, []byte(r.p.config.Self.ID))
	}
}

// AwaitsJobs says that a request waits here for the outcome of a job, so the peers tell from now
// on.
func (r *Router) AwaitsJobs() {
	if r.p.config.Shared && !r.endings.waits.Swap(true) {
		signal.To(r.helloNow)
	}
}

// JobsEnded tells peers that wait for outcomes which jobs have ended here.
func (r *Router) JobsEnded(jobs []fdbpq.QueueJob) { r.endings.tell(jobs) }

// hearEnded handles the tells of all bridges, including this one.
func (r *Router) hearEnded(m *nats.Msg) {
	id, number, jobs, err := parseEndings(string(m.Data))
	if id == r.p.config.Self.ID {
		return // its own batches have told
	}
	if err != nil {
		r.p.config.Warn("another bridge sent a message that cannot be read", "error", err)
	}

	// A peer that is not known yet is heard again. Until then nothing of it counts as heard.
	r.mu.Lock()
	missed := false
	if p := r.mu.peers[id]; p != nil {
		expected := p.ended
		if len(jobs) > 0 {
			expected++
		}
		missed, p.ended = err != nil || number != expected, number
	}
	r.mu.Unlock()

	if missed {
		r.p.config.LookAll()
	}
	if len(jobs) > 0 {
		r.p.config.Told(jobs)
	}
}

// Cancel tells peers that the client of a request that waits, maybe there, has cancelled it.
func (r *Router) Cancel(key string) { r.tell("cancel", key) }

// SourceChanged tells peers that this bridge has changed the source of a queue. The owner, which
// may be another one than this bridge thinks, may have looked for sources before.
func (r *Router) SourceChanged(queue fdbpq.QueueName) {
	r.tell("source", dispatch.KindOf(queue).Short()+" "+queue.Name)
}

// tell sends peers the id of this bridge and what there is to tell.
func (r *Router) tell(subject, what string) {
	if r.p.config.Shared && !r.is(phaseAway) {
		r.publish(subject, []byte(r.p.config.Self.ID+" "+what))
	}
}

// hearCancel handles a cancel that another bridge was asked for.
func (r *Router) hearCancel(m *nats.Msg) {
	if from, key, ok := strings.Cut(string(m.Data), " "); ok && from != r.p.config.Self.ID {
		r.p.config.Cancel(key)
	}
}

// hearSource handles a change of a source by another bridge.
func (r *Router) hearSource(m *nats.Msg) {
	from, queue, _ := strings.Cut(string(m.Data), " ")
	short, name, _ := strings.Cut(queue, " ")
	if kind, ok := subjects.ParseShort(short); ok && from != r.p.config.Self.ID {
		r.p.config.SourceChanged(dispatch.NameOf(kind, name))
	}
}
