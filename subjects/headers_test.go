package subjects

import "testing"

func TestRequestHeaderKnown(t *testing.T) {
	for name, want := range map[string]bool{
		HeaderPriority:  true,
		HeaderDelay:     true,
		"pq-delay":      false,
		HeaderMsgID:     true,
		"Content-Type":  true,
		"":              true,
		"Pq":            true,
		"Pqueue":        true,
		HeaderID:        false,
		HeaderPushedAt:  false,
		"Pq-":           false,
		"Pq-Lease":      false,
		"PQ-Wait":       false,
		"pq-priority":   false,
		"Pq-Priority-2": false,
	} {
		if got := RequestHeaderKnown(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

func TestHeaderFate(t *testing.T) {
	x := []string{"x"}
	for _, test := range []struct {
		name   string
		values []string
		want   Fate
	}{
		{"", x, Kept},
		{"Content-Type", x, Kept},
		{"traceparent", x, Kept},
		{"Nats", x, Kept},
		{"Natsuki-Id", x, Kept},
		{"KV-Operation", []string{"PURGE"}, Kept},
		{HeaderMsgID, x, Kept},
		{"nats-msg-id", x, Kept},
		{"Nats-TTL", []string{"1h"}, Kept},
		{"Nats-Stream", x, Kept},
		{"Nats-Last-Sequence", []string{"1"}, Kept},

		{HeaderTraceDest, x, Refused},
		{"nats-trace-dest", x, Refused},
		{"NATS-TRACE-DEST", x, Refused},
		{HeaderTraceDest, []string{TraceDisabled, "x"}, Refused},
		{HeaderTraceDest, []string{"trace disabled "}, Refused},
		{"Nats-Trace-Only", []string{"false"}, Refused},
		{"Nats-Stream-Source", x, Refused},
		{"Nats-Rollup", []string{"all"}, Refused},
		{"nats-rollup", []string{"sub"}, Refused},
		{"Nats-Expected-Last-Sequence", x, Refused},
		{"Nats-Expected-Stream-2", x, Refused},
		{"Nats-Schedule-Target", x, Refused},
		{"Nats-Batch-Id", x, Refused},
		{HeaderError, x, Refused},
		{"Nats-", x, Refused},
		{"Nats-Msg-Id-2", x, Refused},
		{"Nats-Unheard-Of", nil, Refused},

		{HeaderExpectedStream, x, Checked},
		{"nats-expected-stream", x, Checked},
		{HeaderSchedule, []string{"@at 2026-01-01T00:00:00Z"}, Followed},
		{"nats-schedule", x, Followed},

		{HeaderTraceDest, []string{TraceDisabled}, Dropped},
		{HeaderTraceDest, []string{"_R_.abc.def"}, Dropped},
		{"Nats-Trace-Hop", []string{"1.2"}, Dropped},
		{"Nats-Request-Info", []string{"{}"}, Dropped},
		{"nats-request-info", []string{"{}"}, Dropped},
		{"Nmqtt-Pub", []string{"1"}, Dropped},
		{"nmqtt-anything", x, Dropped},
	} {
		if got := HeaderFate(test.name, test.values); got != test.want {
			t.Errorf("%s %q: got %d, want %d", test.name, test.values, got, test.want)
		}
	}
}
