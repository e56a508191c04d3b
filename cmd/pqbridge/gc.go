package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
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

// idleMemory returns memory to the system once the process has become idle. By itself Go
// would hold on to it until the next collection, which an idle process hardly ever has.
type idleMemory struct {
	// limit is the limit for Go's heap without pops that wait. Those live long, so with many
	// of them the limit has to grow, but not beyond the room that there is.
	limit   int64
	room    int64
	waiters func() int

	cycles uint64 // collections until the last check
	needed uint64 // bytes held after the last release
}

const (
	idleInterval = 5 * time.Second
	// idleSlack is how much an idle process may hold beyond what it needs.
	idleSlack = 32 << 20
)

func (m *idleMemory) run(ctx context.Context) {
	ticker := time.NewTicker(idleInterval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(min(m.limit+waiterHeap*int64(m.waiters()), m.room))
			}
			m.release()
		}
	}
}

// release returns memory to the system if there is enough of it and the process is idle:
// it has had no collection since the last check.
func (m *idleMemory) release() {
	cycles, held := readMemory()
	if cycles == m.cycles && held > m.needed+idleSlack {
		debug.FreeOSMemory()
		cycles, m.needed = readMemory()
	}
	m.cycles = cycles
}

// readMemory returns the number of collections so far, and the bytes that Go holds.
func readMemory() (cycles, held uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64()
}
