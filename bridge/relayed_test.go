package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// plainPops are options of pops without a lease, of all kinds.
var plainPops = []string{
	"",
	`{"batch":3}`,
	`{"batch":3,"frames":true}`,
	`{"expires":"1m"}`,
	`{"expires":"1m","batch":3}`,
	`{"expires":"1m","batch":3,"frames":true,"idle_heartbeat":"10s"}`,
}

// eachPlainPop runs a test for each of plainPops, in a bubble, with a ghost as the only peer of the
// bridge.
func eachPlainPop(t *testing.T, test func(s *shadow, options string)) {
	for _, options := range plainPops {
		t.Run(options, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) { test(newShadow(t), options) })
		})
	}
}

// shadow is a ghost in a bubble, the peer of one bridge.
type shadow struct {
	*ghost
	e     *testenv.Env
	id    string // of the bridge
	queue string // which the ghost owns
	leave func() // ends its heartbeats
}

func newShadow(t *testing.T) *shadow {
	e := testenv.New(t, testenv.Options{})
	s := &shadow{e: e, ghost: &ghost{t: t, nc: e.Connect()}}

	members := make(chan *nats.Msg, 1000)
	heard, err := s.nc.ChanSubscribe("_pqbridge.*.members", members)
	must(t, err)
	m := <-members
	must(t, heard.Unsubscribe())
	s.root, s.id = strings.TrimSuffix(m.Subject, "members"), senderID(m)
	for i := 0; s.queue == ""; i++ {
		name := fmt.Sprint("jobs-", i)
		if dispatch.Owner(subjects.Priority, name, []string{s.id, "ghost"}) == "ghost" {
			s.queue = name
		}
	}

	s.leave = s.keepAlive()
	s.settle()
	return s
}

// settle lets a second pass, in which everything that was said is heard.
func (s *shadow) settle() { time.Sleep(time.Second) }

// listen subscribes to a subject. A bubble cannot wait for the timers of a nats.Subscription.
func (s *shadow) listen(subject string) chan *nats.Msg {
	s.t.Helper()
	got := make(chan *nats.Msg, 1000)
	_, err := s.nc.ChanSubscribe(subject, got)
	must(s.t, err)
	time.Sleep(time.Nanosecond)
	return got
}

// say publishes on a subject below the root.
func (s *shadow) say(subject, text string) { must(s.t, s.nc.Publish(s.root+subject, []byte(text))) }

// report says what became of forwarded pops.
func (s *shadow) report(r peers.Report) { s.say("report."+s.id+".ghost", encoded(s.t, r)) }

// pop requests a pop from the queue of the ghost, and returns its answers.
func (s *shadow) pop(options string) (answers chan *nats.Msg) {
	s.t.Helper()
	inbox := nats.NewInbox()
	answers = s.listen(inbox)
	must(s.t, s.nc.PublishRequest("pq."+s.queue+".pop.min", inbox, []byte(options)))
	time.Sleep(time.Nanosecond)
	return answers
}

// received returns the number of a pop that was forwarded, and where the bridge wants the answers.
func (s *shadow) received(inbox chan *nats.Msg) (number uint64, reply string) {
	s.t.Helper()
	m := <-inbox
	_, err := fmt.Sscanf(strings.TrimPrefix(m.Subject, s.root), "to.ghost."+s.id+".%d.", &number)
	must(s.t, err)
	return number, m.Reply
}

// wantOnly waits for minutes, and checks that there was one answer: a 503.
func (s *shadow) wantOnly(answers chan *nats.Msg, unknown bool) {
	s.t.Helper()
	time.Sleep(5 * time.Minute)
	if len(answers) != 1 {
		s.t.Fatalf("%d answers, want one", len(answers))
	}
	same(s.t, "unknown", wantError(s.t, 503, "the pop", <-answers).Unknown, unknown)
}

// A pop that is forwarded to a bridge which is gone is answered at once, and once: it was not run.
func TestOwnerIsGone(t *testing.T) {
	eachPlainPop(t, func(s *shadow, options string) {
		answers := s.pop(options)

		same(s.t, "answers at once", len(answers), 1)
		s.leave()
		s.wantOnly(answers, false)
	})
}

// If NATS loses the answer to a forwarded pop, its client is told that the outcome is unknown, and
// the owner that the answer was lost. So it is if the report is lost too.
func TestAnswerIsLost(t *testing.T) {
	eachPlainPop(t, func(s *shadow, options string) {
		forwarded, fates := s.listen(s.root+"to.ghost.*.*.pq.>"), s.listen(s.root+"fate.ghost")
		for _, lost := range []string{"the answer", "the report too", "its intake is gone"} {
			answers := s.pop(options)
			n, reply := s.received(forwarded)
			s.report(peers.Report{Floor: 1, High: n}) // it waits, or is still to be answered
			s.settle()
			switch lost {
			case "the answer":
				s.report(peers.Report{Floor: 1, High: n, Done: peers.Numbers{n}})
			case "its intake is gone":
				s.report(peers.Report{Floor: n + 1, High: n})
			}
			s.wantOnly(answers, true)

			if len(fates) != 1 {
				s.t.Fatalf("%s: the owner was told %d fates", lost, len(fates))
			}
			same(s.t, "told", string((<-fates).Data), "lost "+reply)
		}
	})
}

// If NATS loses one of the answers to a pop of several items, the owner is told which of them were
// passed on. A refusal without a count ends such a pop, too.
func TestAnswerIsLostInPart(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newShadow(t)
		forwarded, fates := s.listen(s.root+"to.ghost.*.*.pq.>"), s.listen(s.root+"fate.ghost")

		answers := s.pop(`{"batch":3}`)
		n, reply := s.received(forwarded)
		answer := func(token, data string, header nats.Header) {
			m := nats.Msg{Subject: reply, Reply: "_PQ.ghost." + token, Header: header}
			m.Data = []byte(data)
			must(t, s.nc.PublishMsg(&m))
		}
		answer("a", "first", nil)
		answer("c", "third", nil)
		must(t, s.nc.PublishMsg(&nats.Msg{
			Subject: reply,
			Header:  nats.Header{subjects.HeaderBatchCount: {"3"}},
		}))
		s.report(peers.Report{Floor: n, High: n, Done: peers.Numbers{n}})
		s.settle()

		same(t, "answers", len(answers), 3)
		var told []string
		for len(fates) > 0 {
			told = append(told, string((<-fates).Data))
		}
		want := "lost " + reply + " _PQ.ghost.a _PQ.ghost.c "
		if !slices.Contains(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}

		answers = s.pop(`{"batch":3}`)
		n, reply = s.received(forwarded)
		failed := &subjects.Error{Code: subjects.CodeUnavailable, Text: "late"}
		must(t, s.nc.PublishMsg(&nats.Msg{Subject: reply, Header: failed.Headers()}))
		s.report(peers.Report{Floor: n, High: n, Done: peers.Numbers{n}})
		s.wantOnly(answers, false)
	})
}

// forwards has the ghost forward a pop to the bridge, and returns the answers.
func (s *shadow) forwards(number int, options string) (answers chan *nats.Msg) {
	answers = s.listen(fmt.Sprint(s.root, "report.ghost.", s.id, ".", number))
	must(s.t, s.nc.PublishMsg(&nats.Msg{
		Subject: fmt.Sprint(s.root, "to.", s.id, ".ghost.", number, ".pq.own.pop.min"),
		Reply:   fmt.Sprint(s.root, "report.ghost.", s.id, ".", number),
		Data:    []byte(options),
	}))
	s.settle()
	return answers
}

// wantItems checks how many items the queue "own" of the bridge has.
func (s *shadow) wantItems(what string, want int64) {
	s.t.Helper()
	same(s.t, what, do(s.t, s.e.Bridge, "own", fdbpq.Op{Kind: fdbpq.OpLen}).Len, want)
}

// What a bridge has sent through another goes back if that one says that it was lost, except for
// what it has passed on.
func TestLostAnswersGoBack(t *testing.T) {
	eachPlainPop(t, func(s *shadow, options string) {
		pushAll(s.t, s.e, "pq.own.push", "a", "b", "c")
		answers := s.forwards(1, options)
		s.wantItems("items left", 3-max(1, int64(strings.Count(options, "batch"))*3))

		n := min(len(answers), 1) // one is passed on, unless it has all
		if strings.Contains(options, "batch") && !strings.Contains(options, "frames") {
			s.say("fate."+s.id, "lost "+fmt.Sprint(s.root, "report.ghost.", s.id, ".1 ")+
				(<-answers).Reply)
			s.settle()
			s.wantItems("items after one of three was passed on", 2)
			return
		}

		same(s.t, "answers", n, 1)
		for range 2 {
			s.say("fate."+s.id, "lost "+fmt.Sprint(s.root, "report.ghost.", s.id, ".1"))
			s.settle()
			s.wantItems("items after all was lost", 3)
		}
	})
}

// The pops without a lease that wait for a bridge end once it is gone: the next item stays. Leases
// wait on.
func TestForwarderIsGone(t *testing.T) {
	eachPlainPop(t, func(s *shadow, options string) {
		if !strings.Contains(options, "expires") {
			return
		}

		plain := s.forwards(1, options)
		leases := s.forwards(2, strings.Replace(options, "{", `{"ack_wait":"1h",`, 1))
		waitForWaiters(s.t, s.e.Bridge, "own", 2)
		s.leave()
		time.Sleep(1500 * time.Millisecond)

		waitForWaiters(s.t, s.e.Bridge, "own", 1)
		err := wantError(s.t, 503, "a pop of a bridge that is gone", <-plain)
		same(s.t, "unknown", err.Unknown, false)

		pushAll(s.t, s.e, "pq.own.push", "leased", "a", "b", "c")
		s.settle()
		same(s.t, "leases", min(len(leases), 1), 1)
		left := int64(3)
		if strings.Contains(options, "batch") {
			left = 1
		}
		s.wantItems("items that were not leased", left)
		same(s.t, "more answers", len(plain), 0)
	})
}

// While thousands of forwarded pops wait, on either side, the bridges send each other heartbeats
// alone.
func TestForwardedWaitsAtRest(t *testing.T) {
	const n = 10_000
	testenv.Bubble(t, func(t *testing.T) {
		s := newShadow(t)
		var forwarded atomic.Int32
		count := func(*nats.Msg) { forwarded.Add(1) }
		_, err := s.nc.Subscribe(s.root+"to.ghost.*.*.pq.>", count)
		must(t, err)
		wait := []byte(`{"expires":"1h"}`)
		for i := range n {
			must(t, s.nc.PublishRequest("pq."+s.queue+".pop.min", "_INBOX.rest", wait))
			must(t, s.nc.PublishMsg(&nats.Msg{
				Subject: fmt.Sprint(s.root, "to.", s.id, ".ghost.", i+1, ".pq.own.pop.min"),
				Reply:   fmt.Sprint(s.root, "report.ghost.", s.id, ".", i+1),
				Data:    wait,
			}))
		}
		waitForWaiters(t, s.e.Bridge, "own", n)
		same(t, "forwarded", forwarded.Load(), n)
		s.say("to."+s.id+".ghost."+fmt.Sprint(n), "0")
		s.settle()
		s.report(peers.Report{Floor: 1, High: n})
		s.settle()

		said := s.listen(s.root + ">")
		time.Sleep(time.Minute)
		for len(said) > 0 {
			subject := strings.TrimPrefix((<-said).Subject, s.root)
			if subject != "members" {
				t.Fatalf("a message on %s", subject)
			}
		}
	})
}

// smallerServer starts a system on a cluster whose second server takes messages of 64 KiB only. The
// bridge and the client are at that server.
func smallerServer(t *testing.T) (e *testenv.Env, large string) {
	t.Helper()
	t.Parallel()
	const config = `
		max_payload: %d
		cluster { name: c, listen: "127.0.0.1:-1", routes: [ %s ] }
		authorization { users: [
			{ user: all, password: p }
			{ user: forwarded-only, password: p,
			  permissions: { subscribe: { deny: ["pq.>", "q.>"] } } }
		] }
		no_auth_user: all`
	one := natsServer(t, fmt.Sprintf(config, 1<<20, ""))
	two := natsServer(t, fmt.Sprintf(config, 64<<10, `"nats://`+one.ClusterAddr().String()+`"`))

	e = testenv.New(t, testenv.Options{Stopped: true})
	var err error
	e.Conn, err = nats.Connect(two.ClientURL(), nats.Timeout(testenv.Patience))
	must(t, err)
	t.Cleanup(e.Conn.Close)
	e.Bridge = e.StartBridge(func(o *bridge.Options) { o.NATSURL = two.ClientURL() })
	e.Bridge.WaitReady()
	return e, one.ClientURL()
}

// A bridge whose server takes smaller messages than the owner's answers as a bridge alone does: 413
// for an item that is too large, which stays, and the others in frames that fit.
func TestForwarderWithASmallerServer(t *testing.T) {
	e, large := smallerServer(t)
	owner := e.StartBridge(forwardedOnly, func(o *bridge.Options) { o.NATSURL = large })
	waitForPeers(t, e.Bridge, owner)

	lease := `{"expires":"1h","ack_wait":"1h"}`
	names, replies := waitOn(t, e, owner, e.Bridge, 1, lease)
	queue := "pq." + names[0]
	push(t, e, queue+".push", nil, "probe")
	acknowledge(t, e, next(t, replies[0]).Reply, "")

	const n = 100
	pushAll(t, e, queue+".push.1", slices.Repeat([]string{strings.Repeat("x", 1000)}, n)...)
	list, _ := popFramed(t, e, queue+".pop.min", n, "", "")
	same(t, "items in frames", len(list), n)

	value := []byte(strings.Repeat("x", 100_000))
	do(t, owner, names[0],
		fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: value}})
	for _, options := range plainPops {
		answers := ask(t, e.Conn, queue+".pop.min", options)
		wantError(t, 413, "a pop of a large item", afterHeartbeats(t, answers))
		wantSilence(t, e, answers)
		waitUntil(t, "the item", func() bool {
			return do(t, owner, names[0], fdbpq.Op{Kind: fdbpq.OpLen}).Len == 1
		})
	}
}

// An answer that turns out to be too large for the server of the bridge that passes it on goes
// back, and its client gets 413.
func TestAnswerIsTooLargeToPassOn(t *testing.T) {
	e, large := smallerServer(t)
	nc, err := nats.Connect(large, nats.Timeout(testenv.Patience))
	must(t, err)
	t.Cleanup(nc.Close)

	g := &ghost{t, nc, rootOf(t, nc)}
	id := senderID(next(t, g.subscribe("members")))
	inbox, fates := g.subscribe("to.ghost.*.*.pq.>"), g.subscribe("fate.ghost")
	g.appear(e)
	queue := "jobs"
	for i := 0; dispatch.Owner(subjects.Priority, queue, []string{id, "ghost"}) != "ghost"; i++ {
		queue = fmt.Sprint("jobs-", i)
	}

	for _, options := range plainPops {
		answers := ask(t, e.Conn, "pq."+queue+".pop.min", options)
		_, all := g.receive(inbox, 1)
		m := nats.Msg{
			Subject: all[0].reply,
			Reply:   "_PQ.ghost.token",
			Data:    []byte(strings.Repeat("x", 100_000)),
		}
		if strings.Contains(options, "frames") {
			m.Header = nats.Header{subjects.HeaderFrames: {"2"}}
		}
		must(t, nc.PublishMsg(&m))

		wantError(t, 413, "the pop", afterHeartbeats(t, answers))
		same(t, "told", string(next(t, fates).Data), "unsendable _PQ.ghost.token")
		wantSilence(t, e, answers)
	}
}
