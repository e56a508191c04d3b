package dispatch

import (
	"errors"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A request that only reads is tried again as a whole if any of its operations had no room, a
// request that writes only if nothing was done.
func TestToRetry(t *testing.T) {
	info := fdbpq.Op{Kind: fdbpq.OpInfo}
	consumers := fdbpq.Op{Kind: fdbpq.OpConsumers}
	pop := fdbpq.Op{Kind: fdbpq.OpPop}
	full := fdbpq.ErrNoRoom

	for _, c := range []struct {
		ops    []fdbpq.Op
		errors []error
		want   int
	}{
		{[]fdbpq.Op{info, consumers}, []error{nil, nil}, 0},
		{[]fdbpq.Op{info, consumers}, []error{nil, full}, 2},
		{[]fdbpq.Op{info, consumers}, []error{full, nil}, 2},
		{[]fdbpq.Op{info, consumers}, []error{nil, errors.New("other")}, 0},
		{[]fdbpq.Op{pop, pop}, []error{nil, full}, 0},
		{[]fdbpq.Op{pop, pop}, []error{full, full}, 2},
	} {
		results := make([]fdbpq.Result, len(c.ops))
		for i := range results {
			results[i].Err = c.errors[i]
		}
		if got := len(toRetry(c.ops, results)); got != c.want {
			t.Errorf("%v with %v: %d to try again, want %d", c.ops, c.errors, got, c.want)
		}
	}
}
