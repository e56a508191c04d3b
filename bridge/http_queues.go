package bridge

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// queueLoad is the body of /queues/<kind>/<name>, for autoscalers.
type queueLoad struct {
	Ready     int64   `json:"ready"`
	Leased    int64   `json:"leased"`
	Delayed   int64   `json:"delayed"`
	OldestAge float64 `json:"oldest_age_s"` // 0 without a ready item
	Work      int64   `json:"work"`         // ready and leased
}

// queueLoads is the body of /queues.
type queueLoads struct {
	Queues []namedLoad `json:"queues"`
	Next   *string     `json:"next"` // the parameter after for the next page; nil if there is none
}

type namedLoad struct {
	Kind string `json:"kind"`
	subjects.QueueCounts
	Work int64 `json:"work"`
}

// httpKinds are the kinds of queues in paths, whatever the prefixes of subjects are.
var httpKinds = []struct {
	name string
	kind subjects.Kind
}{{"pq", subjects.Priority}, {"q", subjects.FIFO}}

// parsePath returns the queue that a path names.
func parsePath(kind, name string) (subjects.Kind, error) {
	for _, k := range httpKinds {
		if k.name == kind {
			return k.kind, subjects.ValidateQueueName(name)
		}
	}
	return 0, fmt.Errorf("%w: no kind %+.64q of queue: want pq or q", ErrBadRequest, kind)
}

// getQueue answers GET /queues/<kind>/<name>. A queue that was never used has zeros.
func (b *Bridge) getQueue(w http.ResponseWriter, r *http.Request) {
	kind, err := parsePath(r.PathValue("kind"), r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	q, err := b.target(kind, r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.options.HTTPTimeout)
	defer cancel()
	info, at, err := b.inspector.info(ctx, q)
	if err != nil {
		writeError(w, err)
		return
	}
	load := queueLoad{Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed, Work: info.Ready + info.Leased}
	if !info.Oldest.IsZero() {
		load.OldestAge = max(0, at.Sub(info.Oldest).Seconds())
	}
	writeJSON(w, http.StatusOK, load)
}

// target returns a queue without adding it to those in use.
func (b *Bridge) target(kind subjects.Kind, name string) (fdbpq.Target, error) {
	if kind == subjects.FIFO {
		return b.keyspace.Queue(name)
	}
	return b.keyspace.PriorityQueue(name)
}

// getQueues answers GET /queues?after=<kind>/<name>&limit=<n>: the queues with items or settings, those of
// kind pq before those of kind q.
func (b *Bridge) getQueues(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit := subjects.MaxList
	if text := query.Get("limit"); text != "" {
		n, err := subjects.ParsePriority(text) // an integer
		if err != nil || n < 1 || n > subjects.MaxList {
			writeError(w, fmt.Errorf("%w: limit %+.64q: want an integer from 1 to %d", ErrBadRequest, text, subjects.MaxList))
			return
		}
		limit = int(n)
	}
	afterKind, afterName := subjects.Priority, ""
	if text := query.Get("after"); text != "" {
		kind, name, _ := strings.Cut(text, "/")
		var err error
		if afterKind, err = parsePath(kind, name); err != nil {
			writeError(w, fmt.Errorf("after %+.150q: %w", text, err))
			return
		}
		afterName = name
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.options.HTTPTimeout)
	defer cancel()
	loads := queueLoads{Queues: []namedLoad{}}
	for _, k := range httpKinds {
		if k.kind < afterKind {
			continue
		}
		after := ""
		if k.kind == afterKind {
			after = afterName
		}
		full := len(loads.Queues) == limit
		page, err := b.inspector.read(ctx, k.kind, subjects.ListOptions{After: after, Limit: max(limit-len(loads.Queues), 1)})
		if err != nil {
			writeError(w, err)
			return
		}
		if full && len(page.Queues) > 0 {
			loads.next()
			break
		}
		for _, q := range page.Queues {
			loads.Queues = append(loads.Queues, namedLoad{k.name, q, q.Ready + q.Leased})
		}
		if page.Next != nil {
			loads.next()
			break
		}
	}
	writeJSON(w, http.StatusOK, loads)
}

// next says that more may come after these.
func (l *queueLoads) next() {
	last := l.Queues[len(l.Queues)-1]
	next := last.Kind + "/" + last.Queue
	l.Next = &next
}

// writeError answers with an error, with the same code and text as a reply over NATS.
func writeError(w http.ResponseWriter, err error) {
	f := newFailure(err)
	writeJSON(w, int(f.Code), map[string]string{"error": f.Text})
}
