package main

import (
	"math"
	"testing"
)

// The limit grows with the configuration and never becomes negative.
func TestHeapLimit(t *testing.T) {
	c := config{MaxPending: 16384, MaxPendingBytes: 64 << 20, MaxBatchBytes: 4 << 20}
	limit := heapLimit(&c, false)
	if limit < 200<<20 || limit > 400<<20 {
		t.Errorf("%d bytes with the defaults", limit)
	}

	c.MaxPendingBytes += 1 << 30
	if more := heapLimit(&c, false); more != limit+1<<30 {
		t.Errorf("%d bytes for 1 GiB more requests, without them %d", more, limit)
	}

	c.MaxPendingBytes, c.MaxPending, c.Lanes = math.MaxInt, math.MaxInt, 1024
	if most := heapLimit(&c, true); most < 1<<60 {
		t.Errorf("%d bytes for as much as can be configured", most)
	}
}
