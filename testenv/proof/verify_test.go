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

// Every system keeps its promises while it breaks under load, in accounts and histories by turns,
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

	done := map[string]*verifiedSystem{}
	begin, violations := time.Now(), 0
	end := begin.Add(flags.duration)
	verify := func(s system, seed uint64) bool {
		if done[s.name] == nil {
			done[s.name] = &verifiedSystem{newTally(), newTally()}
		}
		of, turn := done[s.name], time.Now()
		share := min(2*maxSlice, flags.duration/time.Duration(len(list)))
		accounts := t.Run(s.name+"/accounts", func(t *testing.T) {
			s.keepAccounts(t, seed, of.accounts, share/3)
		})
		took := time.Since(turn)
		slice := max(took, share-took) // at least half of the time
		histories := accounts && t.Run(s.name+"/histories", func(t *testing.T) {
			s.makeHistories(t, seed, of.histories, slice, time.Now().Add(slice))
		})
		if flags.duration > 0 {
			fmt.Printf("%v: on %s %d operations of histories and %d of accounts so far\n",
				time.Since(begin).Round(time.Second), s.name,
				of.histories.counts["operations"], of.accounts.counts["operations"])
		}
		return histories
	}

	for n := 0; violations == 0 && (n < len(list) || time.Now().Before(end)); n++ {
		if !verify(list[n%len(list)], seed+uint64(n)) { // clocks are wrong with some seeds only
			violations++
		}
	}

	for _, s := range list {
		if violations == 0 && done[s.name].isIdle() {
			t.Errorf("%s: nothing was verified: histories %v; accounts %v",
				s.name, done[s.name].histories, done[s.name].accounts)
		}
	}
	fmt.Print(verified(done, seed, time.Since(begin), violations))
}

// verifiedSystem has what was done on a system in histories, which judge the order of items, and in
// accounts, which do not.
type verifiedSystem struct{ histories, accounts *tally }

// isIdle reports whether nothing was done in one of both, or nothing broke.
func (v *verifiedSystem) isIdle() bool {
	return v.histories.counts["operations"] == 0 || v.accounts.counts["operations"] == 0 ||
		v.histories.faults()+v.accounts.faults() == 0
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
	systems map[string]*verifiedSystem, seed uint64, took time.Duration, violations int,
) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nran for %v on %s/%s, with %s:\n",
		took.Round(time.Second), runtime.GOOS, runtime.GOARCH, runtime.Version())

	operations, faults := map[string]int{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(systems)) {
		of := systems[name]
		for what, y := range map[string]*tally{"histories": of.histories, "accounts": of.accounts} {
			operations[what] += y.counts["operations"]
			for counted, n := range y.counts {
				if kind, isFault := strings.CutPrefix(counted, "fault: "); isFault {
					faults[kind] += n
				}
			}
		}
		fmt.Fprintf(&b, "%10d operations of %d histories on %s, %d faults\n",
			of.histories.counts["operations"], of.histories.counts["histories"], name,
			of.histories.faults())
		fmt.Fprintf(&b, "%10d operations of accounts on %s, %d faults\n",
			of.accounts.counts["operations"], name, of.accounts.faults())
	}

	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "%10d × %s\n", faults[kind], kind)
	}

	fmt.Fprintf(&b, "operations of histories, with their order: %d\noperations of accounts: %d\n"+
		"violations: %d\nseed: %d\n",
		operations["histories"], operations["accounts"], violations, seed)

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

// The report names operations of histories and of accounts, faults, violations and the seed.
func TestVerifiedReport(t *testing.T) {
	mem, folder := verifiedSystem{newTally(), newTally()}, verifiedSystem{newTally(), newTally()}
	for range 3 {
		mem.histories.operation(&books.Operation{Kind: books.Push, Outcome: books.Done}, 1)
	}
	mem.accounts.operation(&books.Operation{Kind: books.Push, Outcome: books.Done}, 40)
	folder.histories.operation(&books.Operation{Kind: books.Push, Outcome: books.Done}, 2)
	mem.accounts.add("fault: power cut", 2)
	folder.histories.add("fault: power cut", 5)

	got := verified(map[string]*verifiedSystem{"mem": &mem, "folder": &folder}, 12, time.Minute, 1)
	for _, want := range []string{
		"\n         3 operations of 0 histories on mem, 0 faults\n",
		"\n        40 operations of accounts on mem, 2 faults\n", "\n         7 × power cut\n",
		"\noperations of histories, with their order: 5\noperations of accounts: 40\n",
		"\nviolations: 1\n", "\nseed: 12\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}

// A system counts as verified only if histories and accounts did something, and something broke.
func TestVerifiedIsNotIdle(t *testing.T) {
	v := verifiedSystem{newTally(), newTally()}
	for _, y := range []*tally{v.histories, v.accounts} {
		y.add("operations", 1)
	}
	if !v.isIdle() {
		t.Error("nothing broke, and it counts as verified")
	}

	v.accounts.add("fault: power cut", 1)
	if v.isIdle() {
		t.Error("it does not count as verified")
	}

	v.histories = newTally()
	if !v.isIdle() {
		t.Error("there were no histories, and it counts as verified")
	}
}
