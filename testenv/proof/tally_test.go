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
)

// tally counts what the tests have done, by name.
type tally struct {
	mu      sync.Mutex
	counts  map[string]int
	started time.Time
}

func newTally() *tally { return &tally{counts: map[string]int{}, started: time.Now()} }

func (y *tally) add(name string, n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[name] += n
}

// operation counts an operation that n items were in, and how it was made.
func (y *tally) operation(op *books.Operation, n int) {
	how := ""
	switch {
	case op.JetStream:
		how = " as JetStream"
	case len(op.Also) > 0:
		how = " of several"
	}

	switch {
	case op.Outcome != books.Done:
	case op.Kind == books.Result:
		y.add("told that a job is "+string(op.State), 1)
	case op.Kind == books.Rerun:
		y.add("run again", 1)
	case len(op.Next) > 0:
		y.add("successors", len(op.Next))
	}

	y.add("operations", n)
	y.add("operation "+string(op.Kind)+how, n)
	y.add("outcome "+string(op.Outcome)+how, n)
}

// String is the report.
func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "in %v:", time.Since(y.started).Round(time.Second))

	for _, name := range slices.Sorted(maps.Keys(y.counts)) {
		fmt.Fprintf(&b, " %s: %d;", name, y.counts[name])
	}

	return b.String()
}

// resources counts the resources of a process.
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
	return func() resources {
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
}

// wantNoMore fails if much more is held than at the start, and stays so: what a busy
// queue needs is released after some seconds.
func wantNoMore(t *testing.T, whose string, start resources, measure func() resources) {
	t.Helper()
	testenv.Eventually(t, func() error {
		now := measure()
		if now.goroutines > start.goroutines+moreGoroutines || now.files > start.files+moreFiles ||
			now.memory > start.memory+moreMemory {
			return fmt.Errorf("%s held %+v at the start and now holds %+v", whose, start, now)
		}

		t.Logf("%s held %+v at the start, %+v at the end", whose, start, now)
		return nil
	})
}
