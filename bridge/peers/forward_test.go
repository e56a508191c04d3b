package peers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// forwarding is a bridge that forwards pops to another over a NATS that loses some
// messages, and what became of each pop.
type forwarding struct {
	random   *rand.Rand
	intake   *intake
	peer     *peer
	next     uint64
	running  map[uint64]bool // with the receiver, not answered yet
	answered map[uint64]bool // by the receiver
	relayed  map[uint64]bool // the answer comes back through the sender
	passed   map[uint64]bool // and has come
	refused  map[uint64]bool // the receiver answers before it says that the pop waits
	failed   map[uint64]error
}

// forwardedTo returns a peer to which the pops with those numbers were forwarded.
func forwardedTo(numbers ...uint64) *peer {
	p := newPeer(0)
	for _, n := range numbers {
		p.add(forward{number: n})
	}

	return p
}

// waiterAt returns a forwarded pop that waits until then.
func waiterAt(number uint64, until time.Time) forward {
	return forward{Request: dispatch.Request{Wait: &dispatch.Wait{Until: until}}, number: number}
}

func (f *forwarding) send(lost bool) {
	n := f.next
	f.next++
	waits := f.random.IntN(2) == 0

	pop := forward{number: n}
	if waits {
		pop = waiterAt(n, time.Unix(1000, 0))
	}
	pop.relayed = f.random.IntN(2) == 0
	f.relayed[n] = pop.relayed
	f.peer.add(pop)

	if lost {
		return
	}

	if f.intake == nil {
		f.intake = newIntake(n, 1<<20, func() {})
	}

	if !f.intake.arrive(n) {
		panic("a pop that arrived in order was refused")
	}

	if waits {
		if f.refused[n] = f.random.IntN(10) == 0; !f.refused[n] {
			f.intake.waits(n, dispatch.WaitHandle{})
		}
	}

	f.running[n] = true
}

// answer answers a pop. NATS may lose an answer that comes back through the sender. A refusal that
// is lost is noticed when the time of the pop is over, so none is lost here.
func (f *forwarding) answer() {
	for n := range f.running { // in any order
		delete(f.running, n)
		f.answered[n] = true
		f.intake.answered(n)

		pop := f.peer.find(n)
		if f.relayed[n] && pop != nil && (f.refused[n] || f.random.IntN(4) > 0) {
			pop.ended, f.passed[n] = true, true
			delete(f.peer.waiting, n)
		}
		return
	}
}

// report sends a report that covers only what the limit allows.
func (f *forwarding) report(t *testing.T, delivered bool, limit int) {
	if f.intake == nil {
		return
	}

	whole, _, _ := f.intake.report()
	for _, part := range whole.split(3) {
		part, err := ParseReport(part.Encode(limit))
		if err != nil {
			t.Fatal(err)
		}

		if delivered {
			f.fail(t, f.peer.applyReport(part, 0))
		}
	}
}

func (f *forwarding) fail(t *testing.T, lost []forward) {
	for _, l := range lost {
		if f.failed[l.number] != nil {
			t.Errorf("pop %d failed twice", l.number)
		}
		f.failed[l.number] = l.err
	}
}

// Every pop, whether it waits or not, is answered by exactly one of the two bridges while both
// live, whatever is lost. So is one whose answer comes back through the other, if that is lost
// too. A pop that is answered as not run has not been run. Once the other bridge is gone, this one
// answers what the other has not.
func TestForwardsAreAnsweredOnce(t *testing.T) {
	for range harness.Times(60, 300) {
		seed := rand.Uint64()
		f := &forwarding{
			random:   rand.New(rand.NewPCG(seed, 0)),
			peer:     newPeer(0),
			running:  map[uint64]bool{},
			answered: map[uint64]bool{},
			relayed:  map[uint64]bool{},
			passed:   map[uint64]bool{},
			refused:  map[uint64]bool{},
			failed:   map[uint64]error{},
		}

		first := 1 + f.random.Uint64N(1000)
		f.next = first
		losses := f.random.IntN(90)

		for range 2000 {
			switch f.random.IntN(5) {
			case 0, 1:
				f.send(f.random.IntN(100) < losses)
			case 2, 3:
				f.answer()
			default:
				f.report(t, f.random.IntN(2) == 0, f.random.IntN(40))
			}
		}

		if f.intake == nil {
			continue
		}

		f.intake.sentUpTo(f.next - 1) // the last may have been lost
		f.report(t, true, 1<<20)

		for n := first; n < f.next; n++ {
			if twice := f.passed[n] && f.failed[n] != nil; twice || f.relayed[n] &&
				f.answered[n] && !f.passed[n] && f.failed[n] == nil {
				t.Errorf("pop %d: passed on: %t, failed: %v", n, f.passed[n], f.failed[n])
			}
			if f.passed[n] {
				continue
			}

			unknown := errors.Is(f.failed[n], dispatch.ErrUnknownOutcome)
			if got := f.answered[n] || f.running[n]; got == (f.failed[n] != nil) && !unknown {
				t.Errorf("pop %d: arrived: %t, failed: %v", n, got, f.failed[n])
			}
		}

		for _, pop := range f.peer.forwards {
			if !f.running[pop.number] {
				t.Errorf("pop %d is still with the other bridge", pop.number)
			}
		}

		f.fail(t, f.peer.abandonAll(errPeerGone))
		for n := range f.running {
			if f.failed[n] == nil {
				t.Errorf("pop %d is with a bridge that is gone, and nobody answers it", n)
			}
		}
		if len(f.peer.forwards)+len(f.peer.waiting)+f.peer.newWaits > 0 {
			t.Error("some pops are with a bridge that is gone")
		}
		if t.Failed() {
			t.Fatalf("the seed is %d", seed)
		}
	}
}

// A pop that was reported lost is not run when it arrives after all.
func TestForwardThatComesLate(t *testing.T) {
	l := newIntake(5, 100, func() {})
	if !l.arrive(5) || !l.arrive(7) || l.arrive(6) || l.arrive(7) || !l.arrive(8) {
		t.Error("5, 7 and 8 are to be run, a late 6 and a second 7 are not")
	}

	r, _, _ := l.report()
	want := Report{Floor: 5, High: 8, Lost: []Span{{6, 6}}, Pending: []uint64{5, 7, 8}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// An intake keeps a limited number of lost spans. Numbers below the floor are unknown.
func TestAccountIsBounded(t *testing.T) {
	l := newIntake(1, 100, func() {})
	for n := uint64(1); n < 1000; n += 2 {
		l.arrive(n)
		l.answered(n)
	}

	r, due, _ := l.report()
	if len(r.Lost) > maxLost || !due || len(r.Pending) > 0 {
		t.Errorf("%d spans, due: %t, %d pending", len(r.Lost), due, len(r.Pending))
	}

	lost := forwardedTo(2, 998).applyReport(r, 0)
	if len(lost) != 2 || lost[0].err != errPeerSilent || lost[1].err != errForwardLost {
		t.Errorf("%v", lost)
	}

	if _, due, idle := l.report(); due || idle != 1 {
		t.Errorf("nothing new is reported: due: %t, idle for %d", due, idle)
	}
}

// After many answers, an intake asks for a report.
func TestAccountAsksForAReport(t *testing.T) {
	asked := 0
	l := newIntake(1, 3, func() { asked++ })

	for n := range uint64(7) {
		l.arrive(n + 1)
		l.answered(n + 1)

		if n == 3 {
			l.report()
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

// A report arrives as it was sent. One that is too long covers only the lower numbers.
func TestReportsOverTheWire(t *testing.T) {
	for _, r := range []Report{
		{},
		{Floor: 1, High: 1 << 63, Final: true},
		{
			Floor:   10,
			High:    1000,
			Lost:    []Span{{11, 11}, {13, 200}},
			Pending: []uint64{3, 4, 12, 999},
		},
		{Floor: 10, High: 1000, Ended: []uint64{3, 10, 11, 999}},
	} {
		if got, err := ParseReport(r.Encode(1 << 20)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v, %v: want %+v", got, err, r)
		}
	}

	long := Report{Floor: 1, High: 5000}
	for n := range uint64(5000) {
		long.Pending = append(long.Pending, n+1)
	}

	got, err := ParseReport(long.Encode(500)) // four digits and a comma each
	if err != nil || len(got.Pending) != 100 || got.High != 100 {
		t.Errorf("cut off: high %d, %d pending, %v", got.High, len(got.Pending), err)
	}
}

// FuzzReport: a report of a hostile peer either is refused, or can be applied and sent again.
func FuzzReport(f *testing.F) {
	f.Add([]byte{})
	f.Add(Report{Floor: 3, High: 9, Lost: []Span{{4, 5}}, Pending: []uint64{6, 9}}.Encode(100))
	f.Add(Report{Floor: 3, High: 9, Ended: []uint64{4, 9}}.Encode(100))

	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReport(data)
		if err != nil {
			return
		}

		again, err := ParseReport(r.Encode(1 << 20))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}

		p := forwardedTo(r.Floor, r.High)
		p.add(waiterAt(r.High+1, time.Time{}))
		p.applyReport(r, 0)
	})
}

// A pop that has ended without a report is forgotten some time after its end. If the other
// bridge may not have got it, it is answered then.
func TestForwardedWaitersExpire(t *testing.T) {
	p := newPeer(0)
	until := time.Unix(1000, 0)

	for n := range uint64(4) {
		p.add(waiterAt(n+1, until.Add(time.Duration(n)*time.Minute)))
	}
	if lost := p.applyReport(Report{Floor: 1, High: 2}, 0); lost != nil || p.newWaits != 2 {
		t.Errorf("arrived: %v, %d not known of", lost, p.newWaits)
	}

	for i, after := range []time.Duration{waiterGrace - 1, waiterGrace, time.Hour} {
		if p.expireWaiting(until.Add(after)); len(p.waiting) != 2-i {
			t.Errorf("after %v: %d left", after, len(p.waiting))
		}
	}
	if lost := p.expire(1, until); lost != nil {
		t.Errorf("they may still wait there: %v", lost)
	}

	lost := p.expire(1, until.Add(time.Hour))
	if len(lost) != 2 || lost[0].number != 3 || lost[1].number != 4 ||
		lost[0].err != errPeerSilent {
		t.Errorf("not known to the other: %v", lost)
	}

	if lost := p.applyReport(Report{Floor: 1, High: 4, Lost: []Span{{3, 4}}}, 0); lost != nil {
		t.Errorf("answered twice: %v", lost)
	}
}

// An intake does not list the pops that wait, and is kept while there are some.
func TestAccountOfPopsThatWait(t *testing.T) {
	a := newIntake(1, 100, func() {})
	for n := range uint64(3) {
		a.arrive(n + 1)
		a.waits(n+1, dispatch.WaitHandle{})
	}

	a.answered(2)
	r, due, _ := a.report()

	want := Report{Floor: 1, High: 3, Ended: []uint64{2}, Ends: 1}
	if !due || !reflect.DeepEqual(r, want) {
		t.Errorf("due: %t, %+v, want %+v", due, r, want)
	}

	for range 2 * intakeLife {
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

// Silent peers are considered gone after a number of this bridge's own heartbeats,
// however long those take: a bridge that was frozen first reads what its peers sent
// meanwhile.
func TestPeersAreForgottenByHeartbeats(t *testing.T) {
	r := newTest(t).Router
	here := func(id string) { r.hearHeartbeat(&nats.Msg{Data: []byte("here " + id)}) }

	want := func(what string, n int) {
		t.Helper()
		if got := len(*r.bridges.Load()); got != n {
			t.Errorf("%s: %d bridges, want %d", what, got, n)
		}
	}

	here("a")
	here("b")
	here("not an id")

	want("two others", 3)

	for range peerLife {
		r.agePeers()
	}
	want("not heard for some heartbeats", 3)

	here("a")
	r.agePeers()
	want("one was heard", 2)

	r.hearHeartbeat(&nats.Msg{Data: []byte("left a")})
	want("it left", 1)

	here("a")
	want("it is back", 2)

	r.hearHeartbeat(&nats.Msg{Data: []byte("left c")})
	r.hearHeartbeat(&nats.Msg{Data: []byte("nonsense a")})
	want("nothing new", 2)
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
