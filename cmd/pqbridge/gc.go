package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapBase is what Go's heap may take besides requests and batches.
	heapBase = 96 << 20
	// requestHeap is about what a request takes besides what counts as its bytes.
	requestHeap = 1 << 10
	// devHeap is what the NATS server of -dev may take more.
	devHeap = 128 << 20
)

// tuneGC lets the heap grow to more of its live part between collections, unless
// GOGC says otherwise: the live part is small and the processor is what is
// short. Under a flood it is not small: from a limit on, which GOMEMLIMIT
// overrides, memory is what is short.
func tuneGC(c *config, dev bool) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit(c, dev))
	}
}

// heapLimit is how much Go's heap should be at most, in bytes.
func heapLimit(c *config, dev bool) int64 {
	limit := float64(heapBase + storeHeap(c))
	limit += float64(c.MaxPendingBytes) + requestHeap*float64(c.MaxPending)
	limit += 2 * float64(max(c.Lanes, defaultLanes)) * float64(c.MaxBatchBytes) // under way, in each lane
	if dev {
		limit += devHeap
	}
	return int64(min(limit, 1<<62)) // those were only checked to be positive
}

// defaultLanes is the most lanes that PQ_LANES=0 stands for.
const defaultLanes = 4

// idleMemory gives back to the system what a process that has become idle does not
// need any more. Go would keep it until it collects the next time, and an idle
// process hardly does.
type idleMemory struct {
	cycles uint64 // collections until the last look
	needed uint64 // bytes held when all that can be given back was
}

const (
	// idleLook is the time between two looks.
	idleLook = 5 * time.Second
	// idleSlack is how much more than it needs an idle process may hold.
	idleSlack = 32 << 20
)

func (m *idleMemory) run(ctx context.Context) {
	ticker := time.NewTicker(idleLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.look()
		}
	}
}

// look gives memory back if there is some to give and nothing was collected since
// the last look, which says that little was done.
func (m *idleMemory) look() {
	cycles, held := readMemory()
	if cycles == m.cycles && held > m.needed+idleSlack {
		debug.FreeOSMemory()
		cycles, m.needed = readMemory()
	}
	m.cycles = cycles
}

// readMemory returns the number of collections so far, and the bytes that Go
// holds.
func readMemory() (cycles, held uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64()
}
