package kv_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A range is empty unless it begins below its end.
func TestRangeEmpty(t *testing.T) {
	for _, test := range []struct {
		begin, end string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"a", "a\x00", false},
		{"b", "a", true},
		{"a", "", true},
	} {
		r := kv.Range{Begin: []byte(test.begin), End: []byte(test.end)}
		if got := r.Empty(); got != test.want {
			t.Errorf("Empty of %q to %q is %t", test.begin, test.end, got)
		}
	}

	r := kv.SingleKey(key)
	_ = append(r.Begin, 'x')
	if string(r.Begin) != "key" || string(r.End) != "key\x00" {
		t.Errorf("SingleKey(%q) = %q", key, r)
	}
}
