package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

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
func (c *Config) queue(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	kind, err := parsePath(r.PathValue("kind"), name)
	if err != nil {
		return nil, err
	}

	info, at, err := c.Info(ctx, kind, name)
	if err != nil {
		return nil, err
	}

	return queueLoad{
		Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed,
		OldestAge: age(info.Oldest, at), Work: info.Ready + info.Leased,
	}, nil
}

// parseLimit returns how many queues a page of /queues has at most.
func parseLimit(text string) (int, error) {
	if text == "" {
		return subjects.MaxList, nil
	}

	n, err := subjects.ParsePriority(text) // an integer
	if err != nil || n < 1 || n > subjects.MaxList {
		return 0, fmt.Errorf("%w: limit %+.64q: want an integer from 1 to %d",
			errBadRequest, text, subjects.MaxList)
	}
	return int(n), nil
}

// parseAfter returns the queue that the page before ended with, "" for the first page.
func parseAfter(text string) (kind subjects.Kind, name string, err error) {
	if text == "" {
		return subjects.Priority, "", nil
	}

	short, name, _ := strings.Cut(text, "/")
	if kind, err = parsePath(short, name); err != nil {
		err = fmt.Errorf("after %+.150q: %w", text, err)
	}
	return kind, name, err
}

// list answers GET /queues?after=<kind>/<name>&limit=<n>: a page of the queues with items or
// settings, kind pq before kind q.
func (c *Config) list(ctx context.Context, r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := parseLimit(query.Get("limit"))
	if err != nil {
		return nil, err
	}
	kind, after, err := parseAfter(query.Get("after"))
	if err != nil {
		return nil, err
	}

	loads := queueLoads{Queues: []namedLoad{}}
	for ; kind <= subjects.FIFO; kind, after = kind+1, "" {
		// A page that is full already reads one more, to know whether there is a next one.
		left := limit - len(loads.Queues)
		o := subjects.ListOptions{After: after, Limit: max(left, 1)}
		page, err := c.Queues(ctx, kind, o)
		if err != nil {
			return nil, err
		}

		for _, q := range page.Queues[:min(left, len(page.Queues))] {
			loads.Queues = append(loads.Queues, namedLoad{kind.Short(), q, q.Ready + q.Leased})
		}

		next := ""
		switch {
		case left > 0 && page.Next != nil:
			next = kind.Short() + "/" + *page.Next
		case left == 0 && (page.Next != nil || len(page.Queues) > 0):
			last := loads.Queues[limit-1]
			next = last.Kind + "/" + last.Queue
		}
		if next != "" {
			loads.Next = &next
			break
		}
	}

	return loads, nil
}

// page answers with what read returns. An error has the same code and text as in a reply over NATS.
func (c *Config) page(
	read func(context.Context, *http.Request) (any, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), c.Timeout)
		defer cancel()
		body, err := read(ctx, r)
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, body)
		case errors.Is(err, errBadRequest):
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		default:
			code, text := c.Failure(err)
			writeJSON(w, code, map[string]string{"error": text})
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // people read it: NATS's "pq.>" stays that
	_ = e.Encode(v)        // fails only if the client is gone
}
