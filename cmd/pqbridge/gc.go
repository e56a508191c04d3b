package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
)

const (
	// heapBase is Go heap for everything but requests and batches.
	heapBase = 96 << 20
	// requestHeap is roughly what a request takes beyond its payload and headers.
	requestHeap = 1 << 10
	// waiterHeap is roughly what a pop that waits takes, more than most need.
	waiterHeap = 1 << 10
	// devHeap is for the NATS server of -dev.
	devHeap = 128 << 20
)

// tuneGC trades memory for processor time: the live heap is usually small, so collections may be
// rarer than Go's default. During a flood of requests the heap is not small; a memory limit then
// makes collections more frequent. GOGC overrides the one, GOMEMLIMIT the other, but what the
// engine takes beside the heap has to fit into that too.
func tuneGC(c *config, dev bool, room int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit := heapLimit(c, dev) + c.leafMemory(room)
	if os.Getenv("GOMEMLIMIT") != "" {
		limit = debug.SetMemoryLimit(-1)
	}
	debug.SetMemoryLimit(min(limit, room))
}

// heapLimit is the soft limit for Go's heap, in bytes.
func heapLimit(c *config, dev bool) int64 {
	limit := float64(heapBase + storeHeap(c))
	limit += float64(c.MaxPendingBytes) + requestHeap*float64(c.MaxPending)
	limit += 2 * float64(max(c.Lanes, bridge.DefaultLanes)) * float64(c.MaxBatchBytes) // in flight in each lane
	if dev {
		limit += devHeap
	}
	return int64(min(limit, 1<<62))
}

// limitInterval is how often limitMemory looks.
const limitInterval = 5 * time.Second

// limitMemory moves the limit for Go's heap with the number of pops that wait, until ctx ends: those live
// long, so with many of them the limit has to grow, but not beyond the room that there is.
func limitMemory(ctx context.Context, limit, room int64, waiters func() int) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ticker := time.NewTicker(limitInterval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			debug.SetMemoryLimit(min(limit+waiterHeap*int64(waiters()), room))
		}
	}
}
