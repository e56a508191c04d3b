package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	// enoughMemory is what the process takes at most with the defaults. See
	// docs/operations.md.
	enoughMemory = 448 << 20
	// leastMemory has room for a few of the largest messages.
	leastMemory = 64 << 20
	// fdbMemory is roughly what FoundationDB's client takes. Pages of /queues, of 1,000 queues
	// each, take most of it.
	fdbMemory = 64 << 20
	// fdbLaneMemory is what it takes besides for each lane. A transaction that pushes 4,096 items
	// with unique keys takes the most.
	fdbLaneMemory = 26 << 20
)

// memoryLimit returns how many bytes of memory the process may use: the limit of its cgroup,
// which is that of its container, or GOMEMLIMIT if that is less.
func memoryLimit() int64 {
	limit := int64(math.MaxInt64)
	if os.Getenv("GOMEMLIMIT") != "" { // else the limit that the runtime has is tuneGC's own
		limit = debug.SetMemoryLimit(-1)
	}
	if cgroup, err := memlimit.FromCgroup(); err == nil && cgroup < uint64(limit) {
		limit = int64(cgroup)
	}
	return limit
}

// fitMemory shrinks buffers and limits that nobody has configured in proportion to the
// memory that there is, if that is less than enough for their defaults.
func (c *config) fitMemory(limit int64, logger *slog.Logger) error {
	if limit >= enoughMemory {
		return nil
	}

	if limit < leastMemory {
		return fmt.Errorf("this process may use %d bytes of memory (the limit of its container or cgroup, or GOMEMLIMIT): want at least %d, and %d for full speed",
			limit, leastMemory, enoughMemory)
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

// shrinkTo multiplies the default in value by the part of enoughMemory that there is, unless
// the variable is set, and notes the result.
func shrinkTo[T int | int64](noted *[]any, variable string, value *T, limit int64) {
	if _, set := os.LookupEnv(variable); set {
		return
	}
	*value = T(int64(*value) * (limit >> 10) / (enoughMemory >> 10))
	*noted = append(*noted, variable, *value)
}

// heapRoom is how much of the memory Go's heap may take. The rest is for the engine's own
// memory, and an eighth for stacks of threads and what the limit is exceeded by.
func heapRoom(c *config, limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return max(limit/8*7-engineMemory(c), limit/4)
}

// leafMemory is how many bytes of the room for Go's heap the leaf node connection may take: a fifth,
// or 0 if there is none.
func (c *config) leafMemory(room int64) int64 {
	if c.LeafURL == "" {
		return 0
	}
	return min(room/5, leaf.MostMemory)
}

// engineMemory is what the engine takes outside of Go's heap, in bytes.
func engineMemory(c *config) int64 {
	if c.Store == storeFDB {
		return fdbMemory + fdbLaneMemory*int64(cmp.Or(c.Lanes, bridge.DefaultLanes))
	}
	return c.EmbeddedCacheSize + 4*c.EmbeddedMemTableSize - storeHeap(c)
}
