package fdbpq

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func TestStanding(t *testing.T) {
	serves, skips := func(int) int { return 0 }, func(n int) int { return n - 1 }
	for name, test := range map[string]struct {
		standing standing
		random   func(n int) int
		want     course
	}{
		"newcomer":                {standing{}, serves, popDirectly},
		"newcomer, line":          {standing{line: 40}, serves, popDirectly}, // it will find out
		"leader, no line":         {standing{role: leader}, serves, popDirectly},
		"leader skips":            {standing{role: leader, line: 1}, skips, popDirectly},
		"leader serves":           {standing{role: leader, line: 1}, serves, serveLine},
		"leader, long line":       {standing{role: leader, line: MaxSkipped}, skips, popDirectly},
		"leader, too long a line": {standing{role: leader, line: MaxSkipped + 1}, skips, serveLine},
		"follower":                {standing{role: follower}, serves, standInLine},
		"another pop leads":       {standing{role: leader, leading: true}, serves, standInLine},
	} {
		if got := test.standing.chooseCourse(test.random); got != test.want {
			t.Errorf("%s: course %d, want %d", name, got, test.want)
		}
	}
	var s standing
	if first, second := s.chooseCourse(serves), s.chooseCourse(serves); first != popDirectly || second != standInLine {
		t.Errorf("two pops at once: courses %d and %d", first, second)
	}
	for role, want := range map[role]bool{newcomer: false, leader: true, follower: false} {
		s := standing{role: role}
		if !s.maySkip(0) || s.maySkip(1) != want || s.line != 1 {
			t.Errorf("role %d: may skip a line of 1: want %t", role, want)
		}
	}
	for answer, want := range map[bool]role{true: leader, false: follower} {
		s := standing{leading: true}
		if s.ledTo(answer); s != (standing{role: want}) {
			t.Errorf("an attempt with answer %t leads to %+v", answer, s)
		}
	}
}

// Leaders serve a line of n requests with one pop in 2n+1.
func TestSkipsOfALine(t *testing.T) {
	const draws = 100_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, line := range []int{1, 7, MaxSkipped} {
		served := 0
		for range draws {
			s := standing{role: leader, line: line}
			if s.chooseCourse(random.IntN) == serveLine {
				served++
			}
		}
		if want := draws / (skipsPerRequest*line + 1); served < want*9/10 || served > want*11/10 {
			t.Errorf("a line of %d is served %d times of %d, want about %d", line, served, draws, want)
		}
	}
}

// A request serves the line if it is the first, and no leader takes items, or after its patience.
func TestShouldServe(t *testing.T) {
	pair := func(key string) []kv.KeyValue { return []kv.KeyValue{{Key: []byte(key)}} }
	now := time.Unix(1_790_000_000, 0)
	r := newRequest(fuzzLayout(false, RawValues), Front, now)
	r.key = []byte("own")
	r.seeClaim(nil)
	for i, look := range []struct {
		first, claim string
		after        time.Duration
		want         bool
	}{
		{"other", "", 0, false},
		{"own", "", 0, true},
		{"own", "a", 0, false},
		{"own", "b", 0, false},
		{"own", "b", 0, true},
		{"own", "c", MaxPatience, true},
		{"other", "c", 0, false},
		{"other", "d", MaxPatience, true},
	} {
		now = now.Add(look.after)
		r.see(pair(look.first), pair(look.claim), now)
		if got := r.shouldServe(now); got != look.want {
			t.Errorf("look %d, %+v: should serve: %t", i, look, got)
		}
	}
}

func TestPausesBetweenChecks(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		waited, expected, slowest time.Duration
		soonFirst                 bool
		want                      time.Duration
	}{
		{0, 2 * ms, 0, false, 3 * ms / 2},
		{0, 40 * ms, 0, false, 30 * ms},
		{0, 40 * ms, 0, true, minPoll},
		{0, 40 * ms, 5 * ms, true, 5 * ms},
		{40 * ms, 40 * ms, 0, false, 10 * ms},
		{ms, 40 * ms, 0, false, minPoll},
		{time.Hour, 40 * ms, time.Hour, false, maxPoll},
	} {
		r := request{soonFirst: test.soonFirst, slowest: test.slowest}
		if got := r.pause(test.waited, test.expected); got != test.want {
			t.Errorf("%s: pause %v", fmt.Sprintf("%+v", test), got)
		}
	}
}
