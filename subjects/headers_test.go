package subjects

import "testing"

func TestRequestHeaderKnown(t *testing.T) {
	for name, want := range map[string]bool{
		HeaderPriority:  true,
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
