package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	// enoughMemory is the most that the process takes with the defaults: see docs/install.md.
	enoughMemory = 448 << 20
	// leastMemory has room for a few of the largest messages.
	leastMemory = 64 << 20
	// fdbMemory is roughly what FoundationDB's client takes. Pages of /queues, of 1,000 queues
	// each, take most of it.
	fdbMemory = 64 << 20
	// fdbLaneMemory is what it takes in addition for each lane. A transaction that pushes 4,096
	// items with unique keys takes the most.
	fdbLaneMemory = 26 << 20
)

// memoryLimit returns how many bytes of memory the process may use: the limit of its cgroup, as set
// for its container, or GOMEMLIMIT if that is less.
func memoryLimit() int64 {
	limit := int64(math.MaxInt64)
	if os.Getenv("GOMEMLIMIT") != "" { // otherwise the runtime has the limit of tuneGC
		limit = debug.SetMemoryLimit(-1)
	}
	if cgroup, err := memlimit.FromCgroup(); err == nil && cgroup < uint64(limit) {
		limit = int64(cgroup)
	}
	return limit
}

// fitMemory shrinks the buffers and limits that are not configured, if there is not enough memory
// for their defaults, in proportion to the memory that there is.
func (c *config) fitMemory(limit int64, logger *slog.Logger) error {
	if limit >= enoughMemory {
		return nil
	}

	if limit < leastMemory {
		return fmt.Errorf("this process may use %d bytes of memory "+
			"(the limit of its container or cgroup, or GOMEMLIMIT): "+
			"want at least %d, and %d for full speed", limit, leastMemory, enoughMemory)
	}

	shrunk := []any{"memory", limit}
	shrinkTo(&shrunk, "PQ_EMBEDDED_CACHE", &c.EmbeddedCacheSize, limit)
	shrinkTo(&shrunk, "PQ_EMBEDDED_MEMTABLE", &c.EmbeddedMemTableSize, limit)
	shrinkTo(&shrunk, "PQ_MAX_BATCH_BYTES", &c.MaxBatchBytes, limit)
	shrinkTo(&shrunk, "PQ_MAX_PENDING_BYTES", &c.MaxPendingBytes, limit)
	shrinkTo(&shrunk, "PQ_MAX_PENDING", &c.MaxPending, limit)
	shrinkTo(&shrunk, "PQ_MAX_WAITERS", &c.MaxWaiters, limit)

	if c.Store == storeFDB && c.Lanes == 0 {
		c.Lanes = max(1, int(bridge.DefaultLanes*(limit>>10)/(enoughMemory>>10)))
		shrunk = append(shrunk, "PQ_LANES", c.Lanes)
	}

	logger.Info("there is little memory, so these are smaller than their defaults", shrunk...)
	return nil
}

// shrinkTo multiplies a default by limit/enoughMemory, unless the variable is set, and adds the
// result to noted.
func shrinkTo[T int | int64](noted *[]any, name string, value *T, limit int64) {
	if _, set := os.LookupEnv(name); set {
		return
	}
	*value = T(int64(*value) * (limit >> 10) / (enoughMemory >> 10))
	*noted = append(*noted, name, *value)
}

// heapRoom returns how much of the memory Go's heap may take. The rest is for the engine's own
// memory, and an eighth is for stacks of threads and for exceeding the limit.
func heapRoom(c *config, limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return max(limit/8*7-engineMemory(c), limit/4)
}

// leafMemory returns how many bytes of the room for Go's heap the leaf node connection may take: a
// fifth, or 0 without a connection.
func (c *config) leafMemory(room int64) int64 {
	if c.LeafURL == "" {
		return 0
	}
	return min(room/5, leaf.MostMemory)
}

// engineMemory returns how many bytes the engine takes outside of Go's heap.
func engineMemory(c *config) int64 {
	if c.Store == storeFDB {
		return fdbMemory + fdbLaneMemory*int64(cmp.Or(c.Lanes, bridge.DefaultLanes))
	}
	return c.EmbeddedCacheSize + 4*c.EmbeddedMemTableSize - storeHeap(c)
}

const (
	// heapBase is Go heap for everything but requests and batches.
	heapBase = 96 << 20
	// requestHeap is roughly what a request takes beyond its payload and headers.
	requestHeap = 1 << 10
	// waiterHeap is roughly what a waiting pop takes, more than most need.
	waiterHeap = 1 << 10
	// devHeap is for the NATS server of -dev.
	devHeap = 128 << 20
)

// tuneGC trades memory for processor time: the live heap is usually small, so collections may be
// rarer than Go's default. During a flood of requests the heap is not small, and a memory limit
// makes collections more frequent. GOGC overrides the first. GOMEMLIMIT overrides the second, but
// has to cover what the engine takes outside of the heap.
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

// heapLimit returns the soft limit for Go's heap, in bytes.
func heapLimit(c *config, dev bool) int64 {
	limit := float64(heapBase + storeHeap(c))
	limit += float64(c.MaxPendingBytes) + requestHeap*float64(c.MaxPending)
	inFlight := 2 * float64(max(c.Lanes, bridge.DefaultLanes)) // batches
	limit += inFlight * float64(c.MaxBatchBytes)
	if dev {
		limit += devHeap
	}
	return int64(min(limit, 1<<62))
}

// limitInterval is how often limitMemory looks.
const limitInterval = 5 * time.Second

// limitMemory adjusts the limit for Go's heap to the number of waiting pops, until ctx ends. They
// live long, so with many of them the limit has to grow, but not beyond the room that there is.
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
