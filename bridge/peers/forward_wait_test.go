package peers

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// waiterAt returns a forwarded pop that waits until then.
func waiterAt(until time.Time) *dispatch.Request {
	return &dispatch.Request{Wait: &dispatch.Wait{Until: until}}
}

// Every pop that waits is answered by exactly one of the two bridges while both live, whatever
// NATS loses between them. Once the other one is gone, this one answers at least all those that
// the other had not.
func TestForwardedWaitersAreAnsweredOnce(t *testing.T) {
	for range race.Times(200, 50) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		until := time.Unix(1000, 0)
		first := 1 + random.Uint64N(1000)
		next := first
		var a *account
		var w forwardedWaiters
		waiting, answered, failed := map[uint64]bool{}, map[uint64]bool{}, map[uint64]error{}
		fail := func(lost []failedForward) {
			for _, l := range lost {
				if failed[l.number] != nil {
					t.Errorf("seed %d: pop %d failed twice", seed, l.number)
				}
				failed[l.number] = l.err
			}
		}
		report := func(delivered bool, limit int) {
			if a == nil {
				return
			}
			r, _, _ := a.report()
			for _, part := range r.split(3) {
				part, err := ParseReport(part.Encode(limit))
				if err != nil {
					t.Fatal(err)
				}
				if delivered {
					fail(w.applyReport(part))
				}
			}
		}
		losses := random.IntN(90)
		for range 1000 {
			switch random.IntN(5) {
			case 0, 1:
				w.add(next, waiterAt(until))
				if random.IntN(100) >= losses {
					if a == nil {
						a = newAccount(next, 1<<20, func() {})
					}
					a.arrive(next)
					if random.IntN(10) > 0 { // else the next report still calls it pending
						a.waits(next)
					}
					waiting[next] = true
				}
				next++
			case 2, 3:
				for n := range waiting {
					delete(waiting, n)
					answered[n] = true
					a.answered(n)
					break
				}
			default:
				report(random.IntN(2) == 0, random.IntN(40))
			}
		}
		if a == nil {
			continue
		}
		a.sentUpTo(next - 1)
		report(true, 1<<20)
		for n := first; n < next; n++ {
			unknown := errors.Is(failed[n], kv.ErrCommitUnknown)
			if got := answered[n] || waiting[n]; got == (failed[n] != nil) && !unknown {
				t.Errorf("seed %d: pop %d: arrived: %t, failed: %v", seed, n, got, failed[n])
			}
			if waiting[n] && failed[n] == nil && w.of[n] == nil {
				t.Errorf("seed %d: pop %d waits, and nobody answers it if the other bridge dies", seed, n)
			}
		}
		if gone := w.abandon(errPeerGone); len(w.of) > 0 || len(gone) < len(waiting)-len(failed) {
			t.Errorf("seed %d: %d pops were given up of %d", seed, len(gone), len(waiting))
		}
	}
}

// A pop that has ended without a report is forgotten some time after its end. If the other
// bridge may not have got it, it is answered.
func TestForwardedWaitersExpire(t *testing.T) {
	var w forwardedWaiters
	until := time.Unix(1000, 0)
	for n := range uint64(4) {
		w.add(n+1, waiterAt(until.Add(time.Duration(n)*time.Minute)))
	}
	if lost := w.applyReport(Report{Floor: 1, High: 2}); lost != nil {
		t.Errorf("arrived: %v", lost)
	}
	if lost := w.expire(until.Add(waiterGrace - 1)); lost != nil || len(w.of) != 4 {
		t.Errorf("before its time: %v, %d left", lost, len(w.of))
	}
	if lost := w.expire(until.Add(waiterGrace)); lost != nil || len(w.of) != 3 {
		t.Errorf("known to the other: %v, %d left", lost, len(w.of))
	}
	lost := w.expire(until.Add(time.Hour))
	if numbers := failedNumbers(lost); !slices.Equal(numbers, []uint64{3, 4}) || len(w.of) != 0 || lost[0].err != errPeerSilent {
		t.Errorf("not known to the other: %v", lost)
	}
	if lost := w.applyReport(Report{Floor: 1, High: 4, Lost: []Span{{3, 4}}}); lost != nil {
		t.Errorf("answered twice: %v", lost)
	}
}

func failedNumbers(lost []failedForward) []uint64 {
	numbers := map[uint64]bool{}
	for _, l := range lost {
		numbers[l.number] = true
	}
	return slices.Sorted(maps.Keys(numbers))
}

// An account does not list the pops that wait, and is kept while there are some.
func TestAccountOfPopsThatWait(t *testing.T) {
	a := newAccount(1, 100, func() {})
	for n := range uint64(3) {
		a.arrive(n + 1)
		a.waits(n + 1)
	}
	a.answered(2)
	r, due, _ := a.report()
	if want := (Report{Floor: 1, High: 3, Ended: []uint64{2}}); !due || !reflect.DeepEqual(r, want) {
		t.Errorf("due: %t, %+v, want %+v", due, r, want)
	}
	for range 2 * accountLife {
		if r, due, idle := a.report(); due || idle > 0 || r.Ended != nil {
			t.Fatalf("nothing new: due: %t, idle for %d, %+v", due, idle, r)
		}
	}
	a.answered(1)
	a.answered(3)
	if r, due, _ := a.report(); !due || !slices.Equal(r.Ended, []uint64{1, 3}) {
		t.Errorf("due: %t, %+v", due, r)
	}
	if _, _, idle := a.report(); idle != 1 {
		t.Errorf("idle for %d", idle)
	}
}
