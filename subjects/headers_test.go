package subjects

import (
	"strings"
	"testing"
)

// A request may have the Pq- headers of a push, exactly as they are spelled, and no others.
func TestRequestHeaderKnown(t *testing.T) {
	for want, names := range map[bool][]string{
		true: {
			HeaderPriority, HeaderDelay, HeaderMsgID, HeaderGroup, HeaderWeight, "Content-Type", "",
			"Pq", "Pqueue",
		},
		false: {
			"pq-delay", HeaderID, HeaderPushedAt, "Pq-", "Pq-Lease", "PQ-Wait", "pq-priority",
			"Pq-Priority-2",
		},
	} {
		for _, name := range names {
			if got := RequestHeaderKnown(name); got != want {
				t.Errorf("%q: got %v, want %v", name, got, want)
			}
		}
	}
}

// A push keeps a header only if no NATS server acts on it, whatever the case of its name.
func TestHeaderFate(t *testing.T) {
	for _, test := range []struct {
		want   Fate
		names  string
		values []string
	}{
		{
			Kept,
			"Content-Type traceparent Nats Natsuki-Id Nats-Msg-Id nats-msg-id Nats-Stream",
			[]string{"x"},
		},
		{Kept, "KV-Operation", []string{"PURGE"}},
		{Kept, "Nats-TTL Nats-Last-Sequence", []string{"1"}},
		{
			Refused,
			"Nats-Trace-Dest nats-trace-dest NATS-TRACE-DEST Nats-Trace-Only Nats-Stream-Source",
			[]string{"x"},
		},
		{Refused, "Nats-Trace-Dest", []string{TraceDisabled, "x"}},
		{Refused, "Nats-Trace-Dest", []string{"trace disabled "}},
		{Refused, "Nats-Rollup nats-rollup", []string{"all"}},
		{
			Refused,
			"Nats-Expected-Last-Sequence Nats-Expected-Stream-2 Nats-Schedule-Target Nats-Batch-Id",
			[]string{"x"},
		},
		{Refused, HeaderError + " Nats- Nats-Msg-Id-2", []string{"x"}},
		{Refused, "Nats-Unheard-Of", nil},
		{Checked, "Nats-Expected-Stream nats-expected-stream", []string{"x"}},
		{Followed, "Nats-Schedule nats-schedule", []string{"@at 2026-01-01T00:00:00Z"}},
		{Dropped, "Nats-Trace-Dest", []string{TraceDisabled}},
		{Dropped, "Nats-Trace-Dest", []string{"_R_.abc.def"}},
		{
			Dropped,
			"Nats-Trace-Hop Nats-Request-Info nats-request-info Nmqtt-Pub nmqtt-anything",
			[]string{"1.2"},
		},
	} {
		for name := range strings.FieldsSeq(test.names) {
			if got := HeaderFate(name, test.values); got != test.want {
				t.Errorf("%s %q: got %d, want %d", name, test.values, got, test.want)
			}
		}
	}

	if got := HeaderFate("", nil); got != Kept {
		t.Errorf("no name: got %d", got)
	}
}

// The error about a refused header says why, and what to do instead.
func TestWhyRefused(t *testing.T) {
	for name, want := range map[string]string{
		"Nats-Expected-Last-Sequence": "condition",
		"nats-expected-x":             "condition",
		"Nats-Batch-Id":               "push.batch",
		"NATS-ROLLUP":                 "never removes",
		"Nats-Schedule-Target":        "Nats-Schedule alone",
		"Nats-Rollup-2":               "act on it",
	} {
		if got := WhyRefused(name); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want it to say %q", name, got, want)
		}
	}
}
