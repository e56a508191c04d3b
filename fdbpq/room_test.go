package fdbpq_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A batch leases what it has room for, and at least one item.
func TestLimitRoom(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.batcher.LimitRoom(25_000)
		q := f.queue("jobs")
		for range 5 {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(10_000)})
		}
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}
		results := f.apply(lease, lease, lease)
		wantError(t, results[0].Err, nil)
		wantError(t, results[1].Err, nil)
		wantError(t, results[2].Err, fdbpq.ErrNoRoom)
		if text := results[2].Err.Error(); errors.Is(results[2].Err, fdbpq.ErrMaxBytes) || strings.Contains(text, "asked") {
			t.Errorf("nobody asked for few bytes: %q", text)
		}
		// A push takes the room of all but the first.
		results = f.apply(lease, lease, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(30_000)})
		wantError(t, results[0].Err, nil)
		wantError(t, results[1].Err, fdbpq.ErrNoRoom)
		wantError(t, results[2].Err, nil)
	})
}
