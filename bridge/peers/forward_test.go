package peers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// forwarding is a bridge that forwards pops to another over a NATS that loses some
// messages, and what became of each pop.
type forwarding struct {
	random   *rand.Rand
	account  *account
	peer     peer
	next     uint64
	running  map[uint64]bool // with the receiver, not answered yet
	answered map[uint64]bool // by the receiver
	failed   map[uint64]error
}

// forwardedTo returns a peer to which the pops with those numbers were forwarded.
func forwardedTo(numbers ...uint64) *peer {
	p := &peer{}
	for _, n := range numbers {
		p.forwards = append(p.forwards, forward{number: n})
	}
	return p
}

func (f *forwarding) lose(rate int) bool { return f.random.IntN(100) < rate }

func (f *forwarding) send(lost bool) {
	n := f.next
	f.next++
	f.peer.forwards = append(f.peer.forwards, forward{number: n})
	if lost {
		return
	}
	if f.account == nil {
		f.account = newAccount(n, 1<<20, func() {})
	}
	if !f.account.arrive(n) {
		panic("a pop that arrived in order was refused")
	}
	f.running[n] = true
}

func (f *forwarding) answer() {
	for n := range f.running { // in any order
		delete(f.running, n)
		f.answered[n] = true
		f.account.answered(n)
		return
	}
}

// report sends a report that covers only what the limit allows.
func (f *forwarding) report(t *testing.T, limit int) {
	if f.account == nil {
		return
	}
	r, _, _ := f.account.report()
	r, err := ParseReport(r.Encode(limit))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range f.peer.applyReport(r, 0) {
		f.failed[l.number] = l.err
	}
}

// Every pop is answered by exactly one of the two bridges, whatever is lost. A pop that
// is answered as not run has not been run.
func TestForwardsAreAnsweredOnce(t *testing.T) {
	for range race.Times(200, 50) {
		seed := rand.Uint64()
		f := &forwarding{
			random: rand.New(rand.NewPCG(seed, 0)), next: 1 + rand.Uint64N(1000),
			running: map[uint64]bool{}, answered: map[uint64]bool{}, failed: map[uint64]error{},
		}
		first := f.next
		losses := f.random.IntN(90)
		for range 2000 {
			switch f.random.IntN(5) {
			case 0, 1:
				f.send(f.lose(losses))
			case 2, 3:
				f.answer()
			default:
				if !f.lose(50) {
					f.report(t, f.random.IntN(40))
				}
			}
		}
		if f.account != nil {
			f.account.sentUpTo(f.next - 1) // the last may have been lost
		}
		for len(f.running) > 0 {
			f.answer()
		}
		f.report(t, 1<<20)
		for n := first; n < f.next && f.account != nil; n++ {
			err := f.failed[n]
			if f.answered[n] == (err != nil) && !errors.Is(err, kv.ErrCommitUnknown) {
				t.Errorf("seed %d: pop %d: answered: %t, failed: %v", seed, n, f.answered[n], err)
			}
		}
		if f.account != nil && len(f.peer.forwards) > 0 {
			t.Errorf("seed %d: %d pops are still with the other bridge", seed, len(f.peer.forwards))
		}
	}
}

// A pop that was reported lost is not run when it arrives after all.
func TestForwardThatComesLate(t *testing.T) {
	l := newAccount(5, 100, func() {})
	if !l.arrive(5) || !l.arrive(7) || l.arrive(6) || l.arrive(7) || !l.arrive(8) {
		t.Error("5, 7 and 8 are to be run, a late 6 and a second 7 are not")
	}
	r, _, _ := l.report()
	want := Report{Floor: 5, High: 8, Lost: []Span{{6, 6}}, Pending: []uint64{5, 7, 8}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// An account keeps a limited number of lost spans. Numbers below the floor are unknown.
func TestAccountIsBounded(t *testing.T) {
	l := newAccount(1, 100, func() {})
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

// After many answers, an account asks for a report.
func TestAccountAsksForAReport(t *testing.T) {
	asked := 0
	l := newAccount(1, 3, func() { asked++ })
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

func TestReportsOverTheWire(t *testing.T) {
	for _, r := range []Report{
		{},
		{Floor: 1, High: 1 << 63, Final: true},
		{Floor: 10, High: 1000, Lost: []Span{{11, 11}, {13, 200}}, Pending: []uint64{3, 4, 12, 999}},
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
	got, err := ParseReport(long.Encode(100))
	if err != nil || len(got.Pending) != 100 || got.High != 100 {
		t.Errorf("cut off: high %d, %d pending, %v", got.High, len(got.Pending), err)
	}
}

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
		p.waiters.add(r.High, &dispatch.Request{})
		p.applyReport(r, 0)
	})
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
