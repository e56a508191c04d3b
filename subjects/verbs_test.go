package subjects

import (
	"slices"
	"strings"
	"testing"
)

// Service discovery lists an endpoint for each form of request, in this order.
func TestEndpoints(t *testing.T) {
	var got []string
	for _, e := range defaultGrammar(t).Endpoints() {
		got = append(got, e.Name+" "+e.Subject)
	}

	want := []string{
		"push pq.*.push", "push-priority pq.*.push.*", "push-batch pq.*.push.batch",
		"pop-min pq.*.pop.min", "pop-max pq.*.pop.max", "peek-min pq.*.peek.min",
		"peek-max pq.*.peek.max", "len pq.*.len", "ack pq.*.ack.*", "config pq.*.config",
		"info pq.*.info", "get pq.*.get", "result pq.*.result", "remove pq.*.remove",
		"rank pq.*.rank",
		"move pq.*.move", "items pq.*.items", "release pq.*.release", "schedule pq.*.schedule",
		"schedules pq.*.schedules", "unschedule pq.*.unschedule", "purge pq.*.purge",
		"redrive pq.*.redrive", "list pq.list",
		"fifo-push q.*.push", "fifo-push-batch q.*.push.batch", "fifo-pop q.*.pop",
		"fifo-peek q.*.peek", "fifo-len q.*.len", "fifo-ack q.*.ack.*", "fifo-config q.*.config",
		"fifo-info q.*.info", "fifo-get q.*.get", "fifo-result q.*.result",
		"fifo-remove q.*.remove",
		"fifo-rank q.*.rank", "fifo-items q.*.items", "fifo-release q.*.release",
		"fifo-schedule q.*.schedule", "fifo-schedules q.*.schedules",
		"fifo-unschedule q.*.unschedule", "fifo-purge q.*.purge", "fifo-redrive q.*.redrive",
		"fifo-list q.list",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A subject that an endpoint matches is parsed to the kind and the verb of that endpoint.
func TestEndpointsMatchTheGrammar(t *testing.T) {
	g := defaultGrammar(t)
	for _, e := range g.Endpoints() {
		subject := strings.Replace(e.Subject, "*", "jobs", 1)
		subject = strings.Replace(subject, "*", "5", 1)

		r, err := g.Parse(subject)
		if err != nil || r.Kind != e.Kind || r.Verb != e.Verb || r.HasPriority != e.HasPriority {
			t.Errorf("%+v: %s parsed to %+v, %v", e, subject, r, err)
		}
	}
}
