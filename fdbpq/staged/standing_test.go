package staged

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// always and never have leaders serve each line that they may skip, and none.
func always(int) int  { return 0 }
func never(n int) int { return n - 1 }

// The role of a Popper and the line it saw decide how its next pop begins, and only a leader may
// skip a line.
func TestStanding(t *testing.T) {
	for name, test := range map[string]struct {
		random  func(n int) int
		role    role
		line    int  // requests in line
		leading bool // another pop leads
		want    course
	}{
		"newcomer": {random: always, role: newcomer, want: popDirectly},
		// A newcomer that loses to the line finds out then.
		"newcomer, line":  {random: always, role: newcomer, line: 40, want: popDirectly},
		"leader, no line": {random: always, role: leader, want: popDirectly},
		"leader skips":    {random: never, role: leader, line: 1, want: popDirectly},
		"leader serves":   {random: always, role: leader, line: 1, want: serveLine},
		"leader, long line": {
			random: never,
			role:   leader,
			line:   maxSkipped,
			want:   popDirectly,
		},
		"leader, too long a line": {
			random: never,
			role:   leader,
			line:   maxSkipped + 1,
			want:   serveLine,
		},
		"follower": {random: always, role: follower, want: standInLine},
		"another pop of this Popper leads": {
			random:  always,
			role:    leader,
			leading: true,
			want:    standInLine,
		},
	} {
		s := standing{random: test.random, role: test.role, line: test.line, leading: test.leading}
		if got := s.chooseCourse(); got != test.want {
			t.Errorf("%s: course %d, want %d", name, got, test.want)
		}
	}

	for role, want := range map[role]bool{newcomer: false, leader: true, follower: false} {
		s := standing{role: role}
		if !s.maySkip(0) || s.maySkip(1) != want || s.line != 1 {
			t.Errorf("role %d: may skip a line of 1: want %t", role, want)
		}
	}
}

// Leaders serve a line of n requests with one pop in 2n+1.
func TestSkipsOfALine(t *testing.T) {
	const draws = 100_000
	random := rand.New(rand.NewPCG(1, 2))

	for _, line := range []int{1, 7, maxSkipped} {
		served := 0
		for range draws {
			s := standing{random: random.IntN, role: leader, line: line}
			if s.chooseCourse() == serveLine {
				served++
			}
		}
		if want := draws / (skipsPerRequest*line + 1); served < want*9/10 || served > want*11/10 {
			t.Errorf("a line of %d is served %d times of %d, want about %d",
				line, served, draws, want)
		}
	}
}

// A request serves the line if it is the first and no leader takes items, or when its patience is
// over.
func TestShouldServe(t *testing.T) {
	pair := func(key string) []kv.KeyValue { return []kv.KeyValue{{Key: []byte(key)}} }
	now := time.Unix(1_790_000_000, 0)
	r := &request{key: []byte("own"), patience: maxPatience / 2}

	for _, look := range []struct {
		name         string
		first, claim string        // the first in line, and the newest claim of a leader
		after        time.Duration // since the look before
		want         bool
	}{
		{"another is first", "other", "", 0, false},
		{"it is first", "own", "", 0, true},
		{"a leader takes an item", "own", "a", 0, false},
		{"and another item", "own", "b", 0, false},
		{"and no more", "own", "b", 0, true},
		{"and goes on for too long", "own", "c", maxPatience, true},
		{"another is first since now", "other", "c", 0, false},
		{"and for too long", "other", "d", maxPatience, true},
	} {
		now = now.Add(look.after)
		r.see(pair(look.first), pair(look.claim), now)
		if got := r.shouldServe(now); got != look.want {
			t.Errorf("%s: should serve: %t, want %t", look.name, got, look.want)
		}
	}
}

// Pauses between checks grow with the wait, within their bounds.
func TestPausesBetweenChecks(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		waited, expected, slowest time.Duration
		soonFirst                 bool
		want                      time.Duration
	}{
		// The first pause is three quarters of the expected wait, unless the request is soon first.
		{0, 2 * ms, 0, false, 3 * ms / 2},
		{0, 40 * ms, 0, false, 30 * ms},
		{0, 40 * ms, 0, true, minPoll},
		{0, 40 * ms, 5 * ms, true, 5 * ms}, // a leader gets the time of the slowest transaction

		// Later ones are a quarter of the wait so far.
		{40 * ms, 40 * ms, 0, false, 10 * ms},
		{ms, 40 * ms, 0, false, minPoll},
		{time.Hour, 40 * ms, time.Hour, false, maxPoll},
	} {
		r := request{soonFirst: test.soonFirst, slowest: test.slowest}
		if got := r.pause(test.waited, test.expected); got != test.want {
			t.Errorf("%+v: the pause is %v", test, got)
		}
	}
}

// leads makes p a leader that has seen n requests in line.
func (p *Popper) leads(n int, random func(int) int) *Popper {
	p.standing.role, p.standing.line, p.standing.random = leader, n, random
	return p
}

// A leader skips a line, and takes the first item, or serves the line first, each request from its
// own end.
func TestLeaderSkipsOrServes(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.fill("a", "b", "c", "d", "e", "f")
		p := f.popper().leads(0, never)
		f.registerAbandoned(fdbpq.Front, fdbpq.Back)

		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMax, "f")
		f.wantStored(stored{requests: 2, claims: 1})

		p.standing.random = always
		f.wantPop(p.PopMax, "d") // after "b" and "e" for the line
		f.wantStored(stored{answers: 2, values: 2, claims: 1})
		f.wantPop(p.PopMin, "c")
		f.wantEmpty(p)
		wantEqual(f.T, "role", p.standing.role, leader)
	})
}

// A leader serves a line that is too long to skip, request by request, until there are no more
// items. Then its own request goes to the end of the line.
func TestLeaderServesLongLine(t *testing.T) {
	for _, items := range []int{0, 20, maxSkipped + 1, maxSkipped + 2} {
		t.Run(fmt.Sprint("items=", items), func(t *testing.T) {
			f := onMem(t)
			p := f.popper().leads(0, never)

			for range maxSkipped {
				f.registerAbandoned(fdbpq.Front)
			}

			f.push(0, "skips")
			f.wantPop(p.PopMin, "skips")

			f.registerAbandoned(fdbpq.Front)
			f.push(0, "skips, too")
			f.wantPop(p.PopMin, "skips, too")

			for i := range items {
				f.push(0, fmt.Sprint(i))
			}

			f.clock.stepping(maxPatience / 8)
			answered := min(items, maxSkipped+1)
			if items > answered {
				f.wantPop(p.PopMin, fmt.Sprint(answered))
			} else {
				f.wantEmpty(p)
				answered = maxSkipped + 1
			}

			f.wantStored(stored{answers: answered, values: min(items, answered), claims: 1})
		})
	}
}

// A Popper follows after it has lost, or found a line, and another has answered. It leads again
// once it has served the line.
func TestLeadersAndFollowers(t *testing.T) {
	f := onMem(t)
	store := faultkv.New(f.db, faultkv.Options{})
	f.fill("a", "b", "c", "d", "e", "f")
	p, other := f.popperOf(store), f.popper().leads(1, always)
	role := func(want role) { t.Helper(); wantEqual(t, "role", p.standing.role, want) }
	role(newcomer)

	f.wantPop(p.PopMin, "a")

	role(leader)
	store.Next(faultkv.Conflict)
	f.wantPop(p.PopMin, "b") // nobody else is there

	role(leader)

	// p loses, and stands in line behind an abandoned request until other, a leader, serves both.
	f.registerAbandoned(fdbpq.Front)
	store.Next(faultkv.Conflict)
	var wg sync.WaitGroup
	wg.Go(func() { f.wantPop(p.PopMin, "d") })

	for f.stored().requests < 2 {
		runtime.Gosched()
	}
	f.wantPop(other.PopMin, "e")

	wg.Wait()
	role(follower)
	f.wantPop(p.PopMin, "f")

	role(leader)
}
