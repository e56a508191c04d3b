package proof_test

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// tally counts what the tests have done.
type tally struct {
	mu sync.Mutex
	tallied
	started time.Time
}

type tallied struct {
	operations map[string]int // by kind
	outcomes   map[string]int
	faults     map[string]int
	histories  int
	queues     int // histories of one queue each
	scans      int // checks of a whole keyspace
	undecided  int
	violations int
}

func newTally() *tally {
	return &tally{started: time.Now(), tallied: tallied{
		operations: map[string]int{}, outcomes: map[string]int{}, faults: map[string]int{},
	}}
}

func (y *tally) fault(name string, n int) { y.add(func() { y.faults[name] += n }) }

func (y *tally) add(fn func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	fn()
}

// history counts a history that was checked.
func (y *tally) history(h *proof.History, queues int) {
	y.add(func() {
		y.histories++
		y.queues += queues
		for i := range h.Operations {
			op := &h.Operations[i]
			y.operations[string(op.Kind)+ofSeveral(op)]++
			y.outcomes[string(op.Outcome)+ofSeveral(op)]++
		}
	})
}

// ofSeveral is what is added to the name of acknowledgements of several leases, and of what goes through the JetStream face.
func ofSeveral(op *books.Operation) string {
	if op.JetStream {
		return " as JetStream"
	}
	if len(op.Also) > 0 {
		return " of several"
	}
	return ""
}

// String is the report.
func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	took := time.Since(y.started)
	var b strings.Builder
	line := func(name string, counts map[string]int) {
		if len(counts) == 0 { // Workers make no operations of histories
			return
		}
		total := 0
		for _, n := range counts {
			total += n
		}
		fmt.Fprintf(&b, "%s: %d (%.1f a second):", name, total, float64(total)/took.Seconds())
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, " %s %d;", key, counts[key])
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "in %v:\n", took.Round(time.Second))
	line("operations", y.operations)
	line("outcomes", y.outcomes)
	line("faults", y.faults)
	if y.histories > 0 {
		fmt.Fprintf(&b, "histories checked: %d, of %d queues (%.1f a second); undecided: %d\n",
			y.histories, y.queues, float64(y.queues)/took.Seconds(), y.undecided)
	}
	fmt.Fprintf(&b, "whole keyspaces scanned: %d; violations: %d", y.scans, y.violations)
	return b.String()
}

// resources are those that a process holds.
type resources struct {
	goroutines int
	files      int
	memory     uint64 // heap in use, in bytes
}

// How much more may be held at the end than at the start: temporary connections and
// timers, and caches that fill up to their limits.
const (
	moreGoroutines = 12
	moreFiles      = 12
	moreMemory     = 64 << 20
)

// own returns the function that measures this process.
func own(t *testing.T) func() resources {
	return func() resources { return ownResources(t) }
}

func ownResources(t *testing.T) resources {
	t.Helper()
	runtime.GC()
	runtime.GC() // collects what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil && !os.IsNotExist(err) { // no such folder on other systems
		t.Fatal(err)
	}
	return resources{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

func (r resources) String() string {
	return fmt.Sprintf("%d goroutines, %d open files, %.1f MiB", r.goroutines, r.files, float64(r.memory)/(1<<20))
}

// wantNoMore fails if much more is held than at the start, and stays so: what a busy
// queue needs is released after some seconds.
func wantNoMore(t *testing.T, whose string, start resources, measure func() resources) {
	t.Helper()
	testenv.Eventually(t, func() error {
		now := measure()
		if now.goroutines > start.goroutines+moreGoroutines || now.files > start.files+moreFiles ||
			now.memory > start.memory+moreMemory {
			return fmt.Errorf("%s held %v at the start and now holds %v", whose, start, now)
		}
		t.Logf("%s held %v at the start, %v at the end", whose, start, now)
		return nil
	})
}
