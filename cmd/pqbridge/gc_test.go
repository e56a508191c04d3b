package main

import (
	"math"
	"runtime"
	"testing"
)

// TestIdleMemoryIsReturned: once the process is idle, the memory of a flood goes back to
// the system. Go by itself would take minutes.
func TestIdleMemoryIsReturned(t *testing.T) {
	const flood = 200 << 20
	var m idleMemory
	m.release()
	_, before := readMemory()
	garbage := make([][]byte, flood>>20)
	for i := range garbage {
		garbage[i] = make([]byte, 1<<20)
		for page := 0; page < len(garbage[i]); page += 4096 {
			garbage[i][page] = 1
		}
	}
	if _, held := readMemory(); held < before+flood/2 {
		t.Fatalf("%d bytes held before the flood, %d in it", before, held)
	}
	runtime.KeepAlive(garbage)
	clear(garbage)
	for range 10 { // collections, from the flood or by chance, make it look busy
		m.release()
	}
	if _, held := readMemory(); held > before+idleSlack {
		t.Errorf("%d bytes are held, %d were before the flood", held, before)
	}
	if needed := m.needed; needed == 0 {
		t.Error("it has not noted what it needs")
	}
}

// TestHeapLimit: the limit grows with the configuration and never becomes negative.
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
