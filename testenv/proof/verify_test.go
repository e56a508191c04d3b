package proof_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

const (
	// Accounts of make verify have at most that many operations before the system starts anew, and
	// few enough between two faults that the slowest system has some in each slice.
	verifiedOps     = 200_000
	verifiedBetween = 2_000
)

// Every system keeps its promises while it breaks under load, in histories and accounts by turns,
// until -duration is over; without it, one system does once. This is what make verify runs. Nothing
// counts as verified where nothing was done or nothing broke.
func TestVerify(t *testing.T) {
	seed := flags.firstSeed(t)
	if flags.duration > 0 {
		fmt.Printf("seed: %d\n", seed) // in case nothing else is said
	}
	must(t, flags.checkKeep())
	list := systems()
	if flags.duration == 0 {
		list = list[:1]
	}

	tallies := map[string]*tally{}
	begin, violations := time.Now(), 0
	end := begin.Add(flags.duration)
	verify := func(s system, seed uint64) bool {
		if tallies[s.name] == nil {
			tallies[s.name] = newTally()
		}
		slice := min(maxSlice, flags.duration/time.Duration(2*len(list)))
		histories := t.Run(s.name+"/histories", func(t *testing.T) {
			s.makeHistories(t, seed, tallies[s.name], slice, end)
		})
		accounts := histories && t.Run(s.name+"/accounts", func(t *testing.T) {
			s.keepAccounts(t, seed, tallies[s.name], slice)
		})
		if flags.duration > 0 {
			fmt.Printf("%v: %d operations on %s so far\n", time.Since(begin).Round(time.Second),
				tallies[s.name].counts["operations"], s.name)
		}
		return accounts
	}

	for n := 0; violations == 0 && (n < len(list) || time.Now().Before(end)); n++ {
		if again := uint64(n / len(list)); !verify(list[n%len(list)], seed+again) {
			violations++
		}
	}

	for _, s := range list {
		y := tallies[s.name]
		if violations == 0 && (y.counts["operations"] == 0 || y.faults() == 0) {
			t.Errorf("%s: nothing was verified: %v", s.name, y)
		}
	}
	fmt.Print(verified(tallies, seed, time.Since(begin), violations))
}

// keepAccounts keeps accounts on a system for about a slice of time, or for one short run.
func (s system) keepAccounts(t *testing.T, seed uint64, y *tally, slice time.Duration) {
	s.runFor(t, seed, y, (*rig).prepareAccounts, func(r *rig) {
		ops := flags.ops
		if slice > 0 {
			ops = verifiedOps
		}
		b := newBank(r, ops, slice)
		b.between = verifiedBetween
		allKinds(b)
		b.run()
	})
}

// verified returns the report of TestVerify.
func verified(
	tallies map[string]*tally, seed uint64, took time.Duration, violations int,
) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nran for %v on %s/%s, with %s:\n",
		took.Round(time.Second), runtime.GOOS, runtime.GOARCH, runtime.Version())

	operations, faults := 0, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		y := tallies[name]
		operations += y.counts["operations"]
		fmt.Fprintf(&b, "%10d operations on %s, %d histories and accounts, %d faults\n",
			y.counts["operations"], name, y.counts["histories"]+y.counts["accounts"], y.faults())
		for what, n := range y.counts {
			if kind, isFault := strings.CutPrefix(what, "fault: "); isFault {
				faults[kind] += n
			}
		}
	}

	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "%10d × %s\n", faults[kind], kind)
	}

	fmt.Fprintf(&b, "operations: %d\nviolations: %d\nseed: %d\n", operations, violations, seed)

	return b.String()
}

// faults returns how many faults there were.
func (y *tally) faults() (n int) {
	for what, count := range y.counts {
		if strings.HasPrefix(what, "fault: ") {
			n += count
		}
	}
	return n
}

// The report names operations, faults by kind, violations and the seed.
func TestVerifiedReport(t *testing.T) {
	mem, folder := newTally(), newTally()
	for range 3 {
		mem.operation(&books.Operation{Kind: books.Push, Outcome: books.Done}, 1)
	}
	folder.operation(&books.Operation{Kind: books.Push, Outcome: books.Done}, 2)
	mem.add("fault: power cut", 2)
	folder.add("fault: power cut", 5)

	got := verified(map[string]*tally{"mem": mem, "folder": folder}, 12, time.Minute, 1)
	for _, want := range []string{
		"\n         3 operations on mem, ", "\n         7 × power cut\n",
		"\noperations: 5\n", "\nviolations: 1\n", "\nseed: 12\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}
