package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pqbridge/pqbridge/subjects"
)

// queuePages are the pages below /queues.
type queuePages struct{ config *Config }

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

// errBadRequest: the request is wrong and would be wrong every time.
var errBadRequest = errors.New("bad request")

// parsePath returns the kind of the queue that a path names.
func parsePath(kind, name string) (subjects.Kind, error) {
	if k, known := subjects.ParseShort(kind); known {
		return k, subjects.ValidateQueueName(name)
	}
	return 0, fmt.Errorf("%w: no kind %+.64q of queue: want pq or q", errBadRequest, kind)
}

// queue answers GET /queues/<kind>/<name>. A queue that was never used has zeros.
func (p *queuePages) queue(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	kind, err := parsePath(r.PathValue("kind"), name)
	if err != nil {
		return nil, err
	}

	info, at, err := p.config.Info(ctx, kind, name)
	if err != nil {
		return nil, err
	}

	return queueLoad{
		Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed,
		OldestAge: age(info.Oldest, at), Work: info.Ready + info.Leased,
	}, nil
}

// listQuery is the query of /queues.
type listQuery struct {
	kind  subjects.Kind
	after string // in the list of that kind; those of earlier kinds are not wanted
	limit int
}

func parseQuery(query url.Values) (q listQuery, err error) {
	q = listQuery{kind: subjects.Priority, limit: subjects.MaxList}

	if text := query.Get("limit"); text != "" {
		n, err := subjects.ParsePriority(text) // an integer
		if err != nil || n < 1 || n > subjects.MaxList {
			return q, fmt.Errorf("%w: limit %+.64q: want an integer from 1 to %d",
				errBadRequest, text, subjects.MaxList)
		}
		q.limit = int(n)
	}

	if text := query.Get("after"); text != "" {
		kind, name, _ := strings.Cut(text, "/")
		if q.kind, err = parsePath(kind, name); err != nil {
			return q, fmt.Errorf("after %+.150q: %w", text, err)
		}
		q.after = name
	}

	return q, nil
}

// list answers GET /queues?after=<kind>/<name>&limit=<n>: the queues with items or settings, those
// of kind pq before those of kind q.
func (p *queuePages) list(ctx context.Context, r *http.Request) (any, error) {
	query, err := parseQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return p.read(ctx, query)
}

// read reads one page, which may have queues of both kinds.
func (p *queuePages) read(ctx context.Context, query listQuery) (loads queueLoads, err error) {
	loads.Queues = []namedLoad{}
	for kind, after := query.kind, query.after; kind <= subjects.FIFO; kind, after = kind+1, "" {
		// A page that is full already reads one more, to know whether there is a next one.
		left := query.limit - len(loads.Queues)
		o := subjects.ListOptions{After: after, Limit: max(left, 1)}
		page, err := p.config.Queues(ctx, kind, o)
		if err != nil {
			return loads, err
		}

		for _, q := range page.Queues[:min(left, len(page.Queues))] {
			loads.Queues = append(loads.Queues, namedLoad{kind.Short(), q, q.Ready + q.Leased})
		}

		if page.Next != nil || left < len(page.Queues) {
			last := loads.Queues[len(loads.Queues)-1]
			next := last.Kind + "/" + last.Queue
			loads.Next = &next
			break
		}
	}

	return loads, nil
}

// page answers with what read returns. An error has the same code and text as in a reply over NATS.
func (p *queuePages) page(
	read func(context.Context, *http.Request) (any, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
		defer cancel()
		body, err := read(ctx, r)
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, body)
		case errors.Is(err, errBadRequest):
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		default:
			code, text := p.config.Failure(err)
			writeJSON(w, code, map[string]string{"error": text})
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client is gone
}
