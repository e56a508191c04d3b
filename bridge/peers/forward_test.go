package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// forwarding is a bridge that forwards pops to another over a NATS that loses some messages, and
// what became of each pop.
type forwarding struct {
	t        *testing.T
	random   *rand.Rand
	requests float64 // which part of the pops and marks is lost
	reports  float64 // and of the reports and the answers through the sender

	intake   *intake
	peer     *peer
	next     uint64
	running  []uint64        // with the receiver, not answered yet
	answered map[uint64]bool // by the receiver
	passed   map[uint64]bool // the answer came through the sender
	failed   map[uint64]error
	messages int // marks and reports
}

// newForwarding returns bridges whose first pop has a random number.
func newForwarding(t *testing.T, requests, reports float64) *forwarding {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed is %d", seed)
		}
	})
	random := rand.New(rand.NewPCG(seed, 0))
	first := 1 + random.Uint64N(1000)
	return &forwarding{
		t: t, random: random, requests: requests, reports: reports,
		peer: newPeer(first - 1), next: first,
		answered: map[uint64]bool{}, passed: map[uint64]bool{}, failed: map[uint64]error{},
	}
}

// waiterAt returns a forwarded pop that waits until then.
func waiterAt(number uint64, until time.Time) *forward {
	return &forward{Request: dispatch.Request{Wait: &dispatch.Wait{Until: until}}, number: number}
}

func (f *forwarding) lost(part float64) bool { return f.random.Float64() < part }

// intakeFrom returns the intake, which begins with that number if there is none yet.
func (f *forwarding) intakeFrom(first uint64) *intake {
	if f.intake == nil {
		f.intake = newIntake(first, 1<<20, func() {})
	}
	return f.intake
}

// send forwards a pop.
func (f *forwarding) send() {
	pop := &forward{number: f.next}
	if f.random.IntN(2) == 0 {
		pop = waiterAt(f.next, time.Unix(1000, 0))
	}
	pop.relayed = f.random.IntN(2) == 0
	f.next++
	f.peer.add(pop)
	if f.lost(f.requests) {
		return
	}

	if !f.intakeFrom(pop.number).arrive(pop.number) {
		f.t.Errorf("pop %d arrived in order and was refused", pop.number)
	}
	f.running = append(f.running, pop.number)
}

// answer answers one of the pops.
func (f *forwarding) answer() {
	if len(f.running) == 0 {
		return
	}
	i := f.random.IntN(len(f.running))
	n := f.running[i]
	f.running = slices.Delete(f.running, i, i+1)
	f.answered[n] = true
	f.intake.answered(n)

	pop := f.peer.forwards[n]
	if pop != nil && pop.relayed && !f.lost(f.reports) {
		f.peer.remove(pop)
		f.passed[n] = true
	}
}

// mark is the sender's part of a heartbeat.
func (f *forwarding) mark() {
	if !f.peer.owesMark() {
		return
	}
	f.messages++
	f.peer.said = f.peer.heard
	if !f.lost(f.requests) {
		f.intakeFrom(f.peer.last+1).mark(f.peer.last, f.peer.heard)
	}
}

// report is the receiver's part of a heartbeat or, unless all, a report between two.
func (f *forwarding) report(all bool) {
	if f.intake == nil {
		return
	}
	pieces, _ := f.intake.report(all, 3)
	for _, piece := range pieces {
		f.messages++
		if !f.lost(f.reports) {
			f.fail(f.peer.applyReport(piece))
		}
	}
}

func (f *forwarding) fail(lost []*forward) {
	for _, l := range lost {
		if f.failed[l.number] != nil || f.passed[l.number] {
			f.t.Errorf("pop %d was answered and fails: %v", l.number, l.err)
		}
		f.failed[l.number] = l.err
	}
}

// heal has the bridges exchange what they owe each other, without losses.
func (f *forwarding) heal() {
	f.requests, f.reports = 0, 0
	for range 4 {
		f.mark()
		f.report(true)
	}
}

// check checks that each pop was answered by one of the bridges, or that both know that it is not.
func (f *forwarding) check(first uint64) {
	for n := first; n < f.next; n++ {
		pop, err := f.peer.forwards[n], f.failed[n]
		notRun, unknown := err == errForwardLost, errors.Is(err, dispatch.ErrUnknownOutcome)
		var want bool
		switch {
		case slices.Contains(f.running, n):
			want = pop != nil && err == nil
		case f.passed[n]:
			want = pop == nil && err == nil
		case f.answered[n]: // and if it is relayed, the answer was lost
			want = pop == nil && (err == nil || err == errAnswerLost)
		default: // below the floor nothing is known
			want = pop == nil && (notRun || unknown && n < f.intake.mu.floor)
		}
		if !want {
			f.t.Errorf("pop %d: runs: %t, answered: %t, passed on: %t, open: %t, failed: %v", n,
				slices.Contains(f.running, n), f.answered[n], f.passed[n], pop != nil, err)
		}
	}
}

// Every pop, whether it waits or not, is answered by exactly one of the two bridges while both
// live, whatever is lost: requests, marks, reports, and answers that come back through the sender.
// A pop that is answered as not run has not been run. Once the other bridge is gone, this one
// answers what the other has not.
func TestForwardsAreAnsweredOnce(t *testing.T) {
	for i := range harness.Times(60, 300) {
		f := newForwarding(t, 0.05, 0.25)
		if i%2 > 0 {
			f.requests, f.reports = f.random.Float64()*0.9, f.random.Float64()*0.9
		}

		first := f.next
		for range 2000 {
			switch f.random.IntN(8) {
			case 0, 1, 2:
				f.send()
			case 3, 4, 5:
				f.answer()
			case 6:
				f.mark()
				f.report(true)
			default:
				f.report(false)
			}
		}
		f.heal()
		f.check(first)

		f.fail(f.peer.end(errPeerGone, func(*forward) bool { return true }))
		for _, n := range f.running {
			if f.failed[n] == nil {
				t.Errorf("pop %d is with a bridge that is gone, and nobody answers it", n)
			}
		}
		same(t, "pops with a bridge that is gone", len(f.peer.forwards)+f.peer.waits, 0)
		if t.Failed() {
			return
		}
	}
}

// While pops wait and nothing happens, bridges send each other only heartbeats. So it is once all
// have ended.
func TestForwardedWaitsAtRest(t *testing.T) {
	f := newForwarding(t, 0.05, 0.25)
	for range 10_000 {
		f.send()
	}
	f.heal()
	waiting := len(f.running)

	f.messages = 0
	for range 10_000 {
		f.mark()
		f.report(true)
	}
	same(t, "messages at rest", f.messages, 0)
	same(t, "pops that the sender knows of", len(f.peer.forwards), waiting)

	for range waiting {
		f.answer()
	}
	f.heal()
	f.messages = 0
	f.heal()
	same(t, "messages once all have ended", f.messages, 0)
	same(t, "pops that are open", len(f.peer.forwards), 0)
}

// A pop that is lost is noticed with the next heartbeat of the sender, even if it was the last, and
// reported at once.
func TestLastForwardIsLost(t *testing.T) {
	f := newForwarding(t, 0, 0)
	woken := 0
	f.intakeFrom(f.next).wake = func() { woken++ }
	f.send()
	f.requests = 1
	f.send()
	f.requests = 0

	f.mark()
	same(t, "reports that are wanted at once", woken, 1)
	f.report(false)
	same(t, "the lost pop fails", f.failed[f.next-1], errForwardLost)
	same(t, "the other one", f.failed[f.next-2], nil)
}

// A pop that was reported lost is not run when it arrives after all.
func TestForwardThatComesLate(t *testing.T) {
	a := newIntake(5, 100, func() {})
	if !a.arrive(5) || !a.arrive(7) || a.arrive(6) || a.arrive(7) || !a.arrive(8) {
		t.Error("5, 7 and 8 are to be run, a late 6 and a second 7 are not")
	}

	pieces, _ := a.report(true, 100)
	want := []Report{{Floor: 5, High: 8, Lost: []Span{{6, 6}}, After: 4, All: true}}
	if !reflect.DeepEqual(pieces, want) {
		t.Errorf("%+v, want %+v", pieces, want)
	}
}

// reportsOf lets an intake report once for each of some heartbeats. It returns how many reports
// there were, and whether the intake is no longer needed at the end.
func reportsOf(a *intake, beats int) (reports int, gone bool) {
	for range beats {
		var pieces []Report
		pieces, gone = a.report(true, 100)
		reports += len(pieces)
	}
	return reports, gone
}

// What a peer does not confirm is repeated for a while, and no longer.
func TestReportsToASilentPeer(t *testing.T) {
	a := newIntake(1, 100, func() {})
	a.arrive(1)
	a.arrive(2)

	reports, _ := reportsOf(a, 3*intakeLife)
	same(t, "reports at first", reports, 0)

	a.answered(2)
	reports, _ = reportsOf(a, 3*intakeLife)
	same(t, "reports of a pop", reports, intakeLife)

	a.mark(2, 0)
	reports, _ = reportsOf(a, 3*intakeLife)
	same(t, "reports after a mark", reports, 1)
}

// An intake is kept while pops are open, and then as long as the peer may come back.
func TestLifeOfAnIntake(t *testing.T) {
	a := newIntake(1, 100, func() {})
	a.arrive(1)
	_, gone := reportsOf(a, 3*intakeLife)
	same(t, "gone while a pop is open", gone, false)

	a.answered(1)
	_, gone = reportsOf(a, intakeLife)
	same(t, "gone while the peer may come back", gone, false)
	_, gone = reportsOf(a, 1)
	same(t, "gone after that", gone, true)
}

// A report that is too long goes in pieces. Unless the peer has got all of them, they come again.
func TestReportInPieces(t *testing.T) {
	a, p := newIntake(1, 100, func() {}), newPeer(0)
	for n := range uint64(10) {
		a.arrive(n + 1)
		a.answered(n + 1)
		p.add(&forward{number: n + 1})
	}

	pieces, _ := a.report(true, 4)
	same(t, "pieces", len(pieces), 3)
	p.applyReport(pieces[0])
	p.applyReport(pieces[2]) // the second was lost
	same(t, "open", len(p.forwards), 4)
	same(t, "heard", p.heard, 4)

	a.mark(10, p.heard)
	pieces, _ = a.report(true, 100)
	same(t, "pieces after a mark", len(pieces), 1)
	same(t, "position", pieces[0].After, 4)
	p.applyReport(pieces[0])
	same(t, "open at the end", len(p.forwards), 0)
	a.mark(10, p.heard)
	pieces, _ = a.report(true, 100)
	same(t, "reported again", len(pieces[0].Done), 0)
}

// The pops of a lost span end, however long it is and wherever it ends, and no others.
func TestLostSpan(t *testing.T) {
	for span, want := range map[Span][]uint64{
		{4, 4}:                           {4},
		{0, 2}:                           {1, 2},
		{9, 1_000}:                       {9, 10},
		{0, math.MaxUint64}:              {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
		{math.MaxUint64, math.MaxUint64}: nil,
		{7, 6}:                           nil,
	} {
		p := newPeer(0)
		for n := range uint64(10) {
			p.add(&forward{number: n + 1})
		}

		var ended []uint64
		for _, f := range p.applyReport(Report{Lost: []Span{span}}) {
			ended = append(ended, f.number)
		}
		slices.Sort(ended)
		same(t, fmt.Sprint("ended by ", span), fmt.Sprint(ended), fmt.Sprint(want))
		same(t, fmt.Sprint("left by ", span), len(p.forwards), 10-len(want))
	}
}

// What a peer confirms of an earlier intake, or cannot have heard, confirms nothing.
func TestOldMark(t *testing.T) {
	for _, heard := range []uint64{0, 3, 8, 12, 1 << 63, math.MaxUint64} {
		a := newIntake(10, 100, func() {})
		a.arrive(10)
		a.answered(10)
		a.report(true, 100)

		a.mark(10, heard)
		pieces, _ := a.report(true, 100)
		same(t, fmt.Sprint("reported again after ", heard), len(pieces[0].Done), 1)
	}
}

// After many answers, an intake asks for a report.
func TestIntakeAsksForAReport(t *testing.T) {
	asked := 0
	a := newIntake(1, 3, func() { asked++ })

	answer := func(numbers ...uint64) {
		for _, number := range numbers {
			a.arrive(number)
			a.answered(number)
		}
	}

	answer(1, 2)
	same(t, "asked after two", asked, 0)
	answer(3, 4)
	same(t, "asked after four", asked, 1)

	a.report(false, 100)
	answer(5, 6)
	same(t, "asked after two more", asked, 1)
	answer(7)
	same(t, "asked after three more", asked, 2)
}

// FuzzReport: a report of a hostile peer either is refused, or can be applied.
func FuzzReport(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(`{"floor":3,"high":9,"lost":[{"First":4,"Last":5}],"done":"6 9","after":1}`))
	f.Add([]byte(`{"high":18446744073709551615,"after":18446744073709551615,"all":true}`))

	f.Fuzz(func(t *testing.T, data []byte) {
		var r Report
		if json.Unmarshal(data, &r) != nil {
			return
		}

		p := newPeer(0)
		p.add(&forward{number: r.Floor})
		p.add(waiterAt(r.High, time.Time{}))
		p.applyReport(r)
	})
}

// failures is a Replier that counts by error what was not done.
type failures map[error]int

func (f failures) Answer(*dispatch.Request, []fdbpq.Op, []fdbpq.Result) {}

func (f failures) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) { f[err]++ }

// A pop of which the peer says nothing is answered some time after its end, with an unknown
// outcome.
func TestForwardsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTest(t).Router
		r.p.muted.Store(true)
		answers := failures{}
		r.mu.peers["a"] = newPeer(0)
		for n, wait := range []*dispatch.Wait{nil, {Until: time.Now().Add(time.Minute)}} {
			f := &forward{number: uint64(n + 1), relayed: n > 0, owner: "a"}
			f.Replier, f.Wait = answers, wait
			f.due = r.mu.beats + r.forwardLife(f)
			r.mu.peers["a"].add(f)
		}

		for _, step := range []struct {
			after time.Duration
			want  int
		}{
			{r.p.config.RequestTimeout + heartbeat, 0},
			{r.p.config.RequestTimeout + 4*time.Second, 1},
			{time.Minute + waiterGrace, 1},
			{time.Minute + waiterGrace + 4*time.Second, 2},
		} {
			for time.Duration(r.mu.beats)*heartbeat < step.after {
				r.mu.peers["a"].silent = 0
				r.failLost(r.agePeers())
			}
			same(t, fmt.Sprint("answered after ", step.after), answers[errPeerSilent], step.want)
		}
	})
}

// hearSaid lets a bridge hear heartbeats.
func (r *Router) hearSaid(heartbeats ...string) {
	for _, text := range heartbeats {
		r.hearHeartbeat(&nats.Msg{Data: []byte(text)})
	}
}

// Silent peers are considered gone after a number of this bridge's own heartbeats,
// however long those take: a bridge that was frozen first reads what its peers sent
// meanwhile.
func TestPeersAreForgottenByHeartbeats(t *testing.T) {
	r := newTest(t).Router
	r.hearSaid("here a", "here b")
	same(t, "bridges", len(r.Bridges()), 3)

	for range peerLife {
		r.agePeers()
	}
	same(t, "bridges, not heard for some heartbeats", len(r.Bridges()), 3)

	r.hearSaid("here a")
	r.agePeers()
	same(t, "bridges of which one was heard", len(r.Bridges()), 2)
}

// A peer that says that it has left gets no more queues, until it says that it is back.
func TestPeerLeavesAndComesBack(t *testing.T) {
	r := newTest(t).Router
	r.hearSaid("here a", "left a")
	same(t, "bridges after it left", len(r.Bridges()), 1)

	r.hearSaid("here a")
	same(t, "bridges after it came back", len(r.Bridges()), 2)
}

// Heartbeats that cannot be read, or that unknown bridges leave with, change nothing.
func TestHeartbeatsThatSayNothing(t *testing.T) {
	r := newTest(t).Router
	r.hearSaid("here a", "here not an id", "left c", "nonsense a")
	same(t, "bridges", len(r.Bridges()), 2)
}

// A bridge that starts waits for one that is frozen. Only a bridge that may be in the way makes
// that shorter: not one with other subjects, and not one that leaves.
func TestWhoIsAStranger(t *testing.T) {
	m := newTest(t).Members
	m.mu.self.Subjects = []string{subjects.DefaultPriorityPrefix + ".>"}

	for _, step := range []struct {
		id, subjects string
		state        State
		want         time.Duration
	}{
		{"unrelated", "other.>", Serving, silenceTime},
		{"leaving", subjects.DefaultPriorityPrefix + ".>", gone, silenceTime},
		{"there", subjects.DefaultPriorityPrefix + ".>", Starting, strangersTime},
	} {
		m.enroll(announcement{
			Self:  Self{ID: step.id, Subjects: []string{step.subjects}},
			State: step.state,
		})
		if got := m.waitTime(); got != step.want {
			t.Errorf("%s: it waits %v, want %v", step.id, got, step.want)
		}
	}
}

// A bridge that is too far behind with reading to hear even itself does not consider
// its peers gone.
func TestRouterWaitsToHearItself(t *testing.T) {
	r := newTest(t).Router
	r.enter(phaseHere)
	r.p.config.Online = func() bool { return true }
	hear := func(id string) {
		r.hearHeartbeat(&nats.Msg{Data: []byte(string(phaseHere) + " " + id)})
	}

	look := func(want int, when string) {
		t.Helper()
		if n := r.Count(); n != want {
			t.Errorf("%s: %d bridges, want %d", when, n, want)
		}
	}

	hear("other")
	look(2, "at first")

	for range 10 * peerLife {
		r.agePeers()
	}

	look(2, "after a time without hearing anything")
	for range peerLife + 1 {
		hear(r.p.config.Self.ID)
		r.agePeers()
	}

	look(1, "when only the other is not heard")
}
