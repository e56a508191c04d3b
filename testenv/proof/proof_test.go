package proof_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// system is a kind of system to test.
type system struct {
	name  string
	start func(*rig)
	// share: this many systems share the rounds of a short test.
	share int
}

// systems returns all kinds of systems, those on FoundationDB only if it is installed.
func systems() []system {
	return append([]system{
		{"mem-faults", startMem, 1},
		{"embedded-kill", startKill, 1},
		{"embedded-disk", startDisk, 1},
		{"embedded-power", startPower, 1},
	}, fdbSystems()...)
}

// firstFDB returns one system on FoundationDB, if that is installed.
func firstFDB() []system { return fdbSystems()[:min(1, len(fdbSystems()))] }

// some returns the systems with these names, and the ones on FoundationDB, unless all are asked
// for.
func some(list []system, names ...string) []system {
	return slices.DeleteFunc(list, func(s system) bool {
		return !flags.all() && !slices.Contains(names, s.name) && !strings.HasPrefix(s.name, "fdb")
	})
}

// maxSlice is how long a long test stays with one system before the next one.
const maxSlice = time.Minute

// Whatever clients see of systems that break under load agrees with the promises. Each system makes
// -rounds histories; with -duration, systems are started again with other seeds until that time is
// over.
func TestProof(t *testing.T) {
	seed := flags.firstSeed(t)
	all := newTally()
	defer func() { t.Logf("all systems, %v", all) }()
	begin := time.Now()
	found := false

	for again := uint64(0); ; again++ {
		for _, s := range some(systems(), "mem-faults", "embedded-kill") {
			t.Run(s.name, func(t *testing.T) {
				found = true
				slice := min(maxSlice, flags.duration/time.Duration(len(systems())))
				s.makeHistories(t, seed+again, all, slice, begin.Add(flags.duration))
			})
		}
		if !found {
			t.Error("there is no such system")
		}

		if t.Failed() || flags.duration == 0 || time.Since(begin) >= flags.duration {
			return
		}
	}
}

// makeHistories starts a system, and makes histories for a slice of time that ends by then; or
// -rounds histories if there is no -duration.
func (s system) makeHistories(
	t *testing.T, seed uint64, y *tally, slice time.Duration, end time.Time,
) {
	s.runFor(t, seed, y, func(r *rig) {
		r.tighten(20_000, 70_000)
		r.serveJetStream()
	}, func(r *rig) {
		if r.run(slice, end); !r.t.Failed() {
			r.finish()
		}
	})
}

// run starts a system, has it work, and reports its operations.
func (s system) run(t *testing.T, seed uint64, prepare, work func(*rig)) {
	y := newTally()
	s.runFor(t, seed, y, prepare, work)
	t.Logf("%s, %v", s.name, y)
}

// runFor runs a system, and adds to a tally.
func (s system) runFor(t *testing.T, seed uint64, y *tally, prepare, work func(*rig)) {
	before := own(t)()
	t.Run("run", func(t *testing.T) {
		r := newRig(t, s.name, seed, y)
		r.share = s.share
		prepare(r)
		s.start(r)
		r.start()
		work(r)
	})
	wantNoMore(t, "the test", before, own(t))
}

// run makes histories for as long as makeHistories says. What the bridge holds after the
// first ones is the measure for what it may hold at the end.
func (r *rig) run(slice time.Duration, end time.Time) {
	random := rand.New(rand.NewPCG(r.seed, 5))
	var start resources
	measure := r.measure

	if measure == nil {
		measure = own(r.t)
	}

	until := time.Now().Add(slice)
	if until.After(end) {
		until = end
	}
	for n := 0; !r.t.Failed(); n++ {
		if n == 2 { // by now there are connections and caches
			start = measure()
		}

		if flags.duration == 0 && n*r.share >= flags.rounds ||
			flags.duration > 0 && n > 0 && time.Now().After(until) {
			break
		}

		faults := maxFaults
		switch {
		case flags.calm:
			faults = max(0, 1-n%4)
		case n >= len(r.faults):
			faults = random.IntN(maxFaults + 1)
		}

		r.round(faults)
	}
	if start.goroutines > 0 {
		wantNoMore(r.t, "the service", start, measure)
	}
}

// serviceResources asks a process what it holds.
func serviceResources(t *testing.T, s *service) resources {
	t.Helper()
	reply, err := http.Get("http://" + s.http + "/metrics")
	must(t, err)
	defer func() {
		_ = reply.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	}()

	text, err := io.ReadAll(reply.Body)
	must(t, err)

	value := func(name string) (v float64) {
		_, after, _ := strings.Cut(string(text), "\n"+name+" ")
		_, err := fmt.Sscan(after, &v)
		must(t, err)
		return v
	}

	return resources{
		goroutines: int(value("go_goroutines")),
		files:      int(value("process_open_fds")),
		memory:     uint64(value("go_memstats_heap_alloc_bytes")),
	}
}
