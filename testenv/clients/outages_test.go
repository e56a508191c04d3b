package clients_test

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// outages has connections, bridges and replies that are lost.
var outages = []scenario{
	{"NATS restarted with waits open", natsRestarted},
	{"bridge restarted", bridgeRestarted},
	{"worker started before NATS", startedBeforeNATS},
	{"worker started before the bridge", startedBeforeTheBridge},
	{"a login that is refused at the start", refusedAtTheStart},
	{"a login that is refused after a restart", refusedAfterARestart},
	{"no bridge", noBridge},
	{"lost reply, then 409", lostReply},
	{"acknowledgements that get 500 or 503", failingAcks},
	{"unknown outcome", unknownOutcome},
	{"unknown outcome, then refused", unknownThenRefused},
	{"call while the bridge is away", func(s *story) { callAway(s, (*story).stopBridge) }},
	{"call while NATS is away", func(s *story) { callAway(s, (*story).stopNATS) }},
	{"stop while NATS is away", stopAway},
	{"clock of the bridge ahead", func(s *story) { clockApart(s, time.Hour) }},
	{"clock of the bridge behind", func(s *story) { clockApart(s, -time.Hour) }},
	{"a crowd, kills and restarts", crowd},
}

// A worker and a caller that wait outlast a restart of the NATS server, and so does a job.
func natsRestarted(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "2s"}), "priority": "1"})
	d.pushes("job2", in{"value": do(step{"return", "b2s="}), "priority": "2", "keep": "1h"})
	d.answers("work", nil, `null`)
	d.answers("work", in{"worker": "idle", "queue": "idle"}, `null`)
	waits := d.ask("result", in{"id": "job2", "wait": "2m"})
	d.hears("start job1 1")

	s.env.NATS.Restart()

	d.hears("end job1 done", "start job2 1", "end job2 done")
	waits.answers(done("b2s="))
	d.pushes("job3", in{"queue": "idle"})
	d.hears("start job3 1 idle", "end job3 done idle")
	d.answers("call", in{"value": do(step{"return", "b2s="}), "wait": "1m"}, `"b2s="`)
	d.hears("start job4 1", "end job4 done")
	s.holds("jobs")
}

// The same for a bridge that ends and another one that begins.
func bridgeRestarted(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "1s"})})
	d.pushes("job2", in{"value": do(step{"return", "b2s="}), "keep": "1h"})
	d.answers("work", nil, `null`)
	d.answers("work", in{"worker": "idle", "queue": "idle"}, `null`)
	waits := d.ask("result", in{"id": "job2", "wait": "2m"})
	d.hears("start job1 1")

	s.env.Bridge.MustStop()
	d.hears("end job1 done")
	s.env.Bridge = s.env.StartBridge()
	s.env.Bridge.WaitReady()

	d.hears("start job2 1", "end job2 done")
	waits.answers(done("b2s="))
	d.pushes("job3", in{"queue": "idle"})
	d.hears("start job3 1 idle", "end job3 done idle")
	s.holds("jobs")
}

// A worker that is started before there is a NATS server works once there is one.
func startedBeforeNATS(s *story) {
	s.begin(testenv.Options{Stopped: true})
	early := must(net.Listen("tcp", strings.TrimPrefix(s.env.NATS.URL(), "nats://")))
	must(0, early.(*net.TCPListener).SetDeadline(time.Now().Add(testenv.Patience)))
	d := s.start(s.language)
	work := d.ask("work", nil)

	attempt := must(early.Accept()) // which fails, and then there is nobody on the port
	must(0, attempt.Close())
	syscall.ForkLock.RLock() // no child that another test is just starting has the listener
	must(0, early.Close())
	syscall.ForkLock.RUnlock()
	s.starts()
	d.isReady()
	work.answers(`null`)

	d.pushes("job1", nil)
	d.hears("start job1 1", "end job1 done")
}

// A worker that is started before there is a bridge waits for one.
func startedBeforeTheBridge(s *story) {
	s.begin(testenv.Options{})
	s.env.Bridge.MustStop()
	d := s.driver()
	d.answers("work", nil, `null`)
	d.answers("work", in{"worker": "other", "queue": "other"}, `null`)

	s.env.Bridge = s.env.StartBridge()
	s.env.Bridge.WaitReady()

	d.pushes("job1", nil)
	d.hears("start job1 1", "end job1 done")
	d.pushes("job2", in{"queue": "other"})
	d.hears("start job2 1 other", "end job2 done other")
}

// guarded starts a NATS server that refuses whom the gate refuses.
func (s *story) guarded() *testenv.Gate {
	s.Helper()
	gate := new(testenv.Gate)
	s.begin(testenv.Options{NATS: func(o *server.Options) { o.CustomClientAuthentication = gate }})
	return gate
}

// A program with a wrong password does not wait for another one: it ends, and says why.
func refusedAtTheStart(s *story) {
	s.guarded().Refuse("me")

	d := s.start(s.language, "NATS_USER=me", "NATS_PASSWORD=wrong")

	select {
	case <-d.done:
	case <-time.After(testenv.Patience):
		s.Fatalf("%s goes on", d.name)
	}
	if said := d.log.String(); d.err == nil || !strings.Contains(strings.ToLower(said), "auth") {
		s.Errorf("%s ended with %v, and said %q: want an error, and that the login is refused",
			d.name, d.err, said)
	}
}

// NATS that comes back and refuses the login for a while ends no worker: an operator may have to
// correct its users first.
func refusedAfterARestart(s *story) {
	gate := s.guarded()
	d := s.driver("NATS_USER=me", "NATS_PASSWORD=right")
	d.pushes("job1", in{"value": do(step{"wait", "1s"})})
	d.answers("work", in{"ackWait": "1h"}, `null`)
	d.answers("work", in{"worker": "idle", "queue": "idle"}, `null`)
	d.hears("start job1 1")

	gate.Refuse("me")
	s.env.NATS.Restart()
	gate.HasRefused(s, 6)
	gate.Refuse()

	d.hears("end job1 done")
	d.pushes("job2", in{"queue": "idle"})
	d.hears("start job2 1 idle", "end job2 done idle")
	s.holds("jobs")
}

// Without a bridge, calls that do not wait say so.
func noBridge(s *story) {
	s.begin(testenv.Options{})
	s.env.Bridge.MustStop()
	d := s.driver("PQ_TIMEOUT=2s")

	d.refuses("push", nil, "NoBridge")
	d.refuses("pop", nil, "NoBridge")
	d.refuses("lease", nil, "NoBridge")
	d.refuses("look", in{"what": "len"}, "NoBridge")
	d.refuses("manage", in{"what": "remove", "id": "FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"}, "NoBridge")

	s.env.Bridge = s.env.StartBridge() // for the judge
	s.env.Bridge.WaitReady()
}

// near sends a request that came to a relay to the bridge.
func (s *story) near(m *nats.Msg) *nats.Msg {
	return s.env.Request("pq"+strings.TrimPrefix(m.Subject, "far"), m.Header, m.Data)
}

// If the reply to an acknowledgement is lost, the worker sends it again. It takes the 409 that it
// gets as the end of the job, and goes on.
func lostReply(s *story) {
	s.begin(testenv.Options{})
	var acks atomic.Int64
	s.env.Relay("far", func(m *nats.Msg) *nats.Msg {
		if strings.Contains(m.Subject, ".ack.") && acks.Add(1)%2 == 1 {
			m.Reply = ""
		}
		return nil
	})

	d := s.driver("PQ_PREFIX=far", "PQ_TIMEOUT=1s")
	d.answers("work", nil, `null`)

	d.pushes("job1", in{"keep": "1h", "value": do(step{"return", b64("first")})})
	d.hears("start job1 1", "end job1 done")
	s.kept("jobs", "job1 0 done 1")
	d.pushes("job2", nil)
	d.hears("start job2 1", "end job2 done")
	s.holds("jobs")
	d.pushes("job3", in{"value": do(step{"retry", "1h", "later"})})
	d.hears("start job3 1", "end job3 failed")
	s.holds("jobs", "job3 0 delayed 1 later")
	d.answers("result", in{"id": "job1"}, done(b64("first")))
	d.answers("stop", nil, `null`)
}

// An acknowledgement that gets 500 has its answer: after +NXT one +ACK is sent, after all others
// nothing, and the worker goes on with other jobs. One that gets 503 is sent again.
func failingAcks(s *story) {
	s.begin(testenv.Options{})
	var mu sync.Mutex
	var code subjects.Code
	var left int      // acknowledgements that get the code
	var sent []string // their kinds
	s.env.Relay("far", func(m *nats.Msg) *nats.Msg {
		kind, _, _ := strings.Cut(cmp.Or(m.Header.Get(subjects.HeaderAck), string(m.Data)), " ")
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(m.Subject, ".ack.") || kind == "+WPI" || left == 0 {
			return nil
		}
		left, sent = left-1, append(sent, kind)
		failure := subjects.Error{Code: code, Text: "a lie"}
		return &nats.Msg{Header: failure.Headers()}
	})
	answer := func(c subjects.Code, n int) {
		mu.Lock()
		defer mu.Unlock()
		code, left, sent = c, n, nil
	}
	wants := func(want string) {
		s.Helper()
		testenv.Eventually(s, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(sent, " "); got != want {
				return fmt.Errorf("acknowledgements: %s, want %s", got, want)
			}
			return nil
		})
	}
	d := s.driver("PQ_PREFIX=far")

	answer(subjects.CodeInternal, math.MaxInt)
	d.answers("work", in{"ackWait": "1h"}, `null`)
	for n, m := range []struct{ script, how, sent string }{
		{do(), "done", "+NXT +ACK"},
		{do(step{"fail", "no paper"}), "failed", "+NXT +ACK -NAK"},
		{do(step{"snooze", "1h"}), "failed", "+NXT +ACK -NAK -NAK"},
		{do(step{"drop", "no paper"}), "failed", "+NXT +ACK -NAK -NAK +TERM"},
	} {
		job := fmt.Sprint("job", n+1)
		d.pushes(job, in{"value": m.script})
		s.mayRepeat(job)
		d.hears("start "+job+" 1", "end "+job+" "+m.how) // in the only slot
		wants(m.sent)
	}
	d.pushes("job5", in{"value": do(step{"wait", "1h"})})
	d.hears("start job5 1")
	d.answers("stop", in{"timeout": "1ms"}, `null`)
	d.hears("end job5 stopped")
	wants("+NXT +ACK -NAK -NAK +TERM -NAK")

	d.answers("work", in{"ackWait": "1h", "concurrency": "2"}, `null`)
	for n := range 6 {
		job := fmt.Sprint("job", n+6)
		d.pushes(job, nil)
		s.mayRepeat(job)
		d.hears("start "+job+" 1", "end "+job+" done")
	}
	d.answers("stop", nil, `null`)
	var leases []string
	for n := range 11 {
		leases = append(leases, fmt.Sprintf("job%d 0 leased 1", n+1))
	}
	s.holds("jobs", leases...)

	answer(subjects.CodeUnavailable, 4)
	d.answers("work", in{"ackWait": "1h"}, `null`)
	d.pushes("job12", nil)
	d.hears("start job12 1", "end job12 done")
	wants("+NXT +ACK +ACK +ACK")
	d.answers("stop", nil, `null`)
	wants("+NXT +ACK +ACK +ACK")
	s.holds("jobs", leases...)
}

// When nobody knows what became of a request, the client says so. A push can be repeated with its
// message id.
func unknownOutcome(s *story) {
	s.begin(testenv.Options{})
	var lying atomic.Bool
	s.env.Relay("far", func(m *nats.Msg) *nats.Msg {
		if !lying.Load() {
			return nil
		}
		s.near(m)
		unknown := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true, Text: "a lie"}
		return &nats.Msg{Header: unknown.Headers()}
	})
	d := s.driver("PQ_PREFIX=far", "PQ_TIMEOUT=500ms")

	lying.Store(true)
	d.refuses("push", in{"msgId": "once"}, "UnknownOutcome")
	s.holds("jobs", "job1 0 ready 0")
	lying.Store(false)
	d.answers("push", in{"msgId": "once"}, `{"id":"job1","priority":"0","duplicate":true}`)

	d.answers("lease", nil, leased(item("job1", "0", ""), "1"))
	lying.Store(true)
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "UnknownOutcome")
	s.holds("jobs")
	lying.Store(false)
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")

	d.pushes("job2", nil)
	lying.Store(true)
	d.refuses("pop", nil, "UnknownOutcome")
	lying.Store(false)
	d.answers("pop", nil, `null`)
	s.leaves("job2", "popped, as nobody knows")
}

// Once the outcome of one attempt is unknown, that of the push is unknown: a later attempt that was
// not carried out says nothing about the first.
func unknownThenRefused(s *story) {
	s.begin(testenv.Options{})
	var attempts atomic.Int64
	s.env.Relay("far", func(m *nats.Msg) *nats.Msg {
		failure := subjects.Error{Code: subjects.CodeUnavailable, Text: "not run"}
		if attempts.Add(1) == 1 {
			s.near(m)
			failure.Unknown, failure.Text = true, "nobody knows"
		}
		return &nats.Msg{Header: failure.Headers()}
	})
	d := s.driver("PQ_PREFIX=far", "PQ_TIMEOUT=1s")

	d.refuses("push", nil, "UnknownOutcome")
	s.holds("jobs", "job1 0 ready 0")
	attempts.Store(0)
	d.answers("pushMany", in{"items": []in{{}, {}}},
		`[{"error":"UnknownOutcome"},{"error":"UnknownOutcome"}]`)
	s.holds("jobs", "job1 0 ready 0", "job2 0 ready 0", "job3 0 ready 0")
}

func (s *story) stopBridge() { s.env.Bridge.MustStop() }

func (s *story) stopNATS() {
	s.env.Bridge.MustStop() // it could not say goodbye without NATS
	s.env.NATS.Stop()
}

// startAgain starts what stopBridge or stopNATS stopped, for the judge.
func (s *story) startAgain() {
	s.Helper()
	s.env.NATS.Restart()
	s.env.Bridge = s.env.StartBridge()
	s.env.Bridge.WaitReady()
}

// A call whose job was pushed ends at its time, and names the job, whatever is away by then.
func callAway(s *story, stop func(*story)) {
	d := s.driver()
	calls := d.ask("call", in{"value": b64("slow"), "wait": "3s"})
	s.holds("jobs", "job1 0 ready 0")

	stop(s)
	calls.fails("NotDone job1")

	s.startAgain()
	s.holds("jobs", "job1 0 ready 0")
}

// A worker stops although NATS is away: it tries to settle for the time that it was given and five
// seconds more. The job comes back when its lease is over.
func stopAway(s *story) {
	s.begin(testenv.Options{})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "1h"})})
	d.answers("work", in{"ackWait": "1s"}, `null`)
	d.hears("start job1 1")

	s.stopNATS()
	d.answers("stop", in{"timeout": "100ms"}, `null`)

	d.hears("end job1 stopped")
	s.startAgain()
	s.holds("jobs", "job1 0 ready 1")
}

// Leases last as long on a bridge whose clock is an hour wrong. Times are by the bridge's clock.
func clockApart(s *story, by time.Duration) {
	s.begin(testenv.Options{Bridge: func(o *bridge.Options) {
		o.Now = func() time.Time { return time.Now().Add(by) }
	}})
	s.configure(client.Settings{AckWait: time.Second})
	d, other := s.driver(), s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "2s"})})
	d.answers("work", nil, `null`)
	d.hears("start job1 1")

	other.answers("work", nil, `null`)
	d.hears("end job1 done")
	d.answers("stop", nil, `null`)
	other.answers("stop", nil, `null`)

	d.pushes("job2", in{"at": time.Now().Add(by / 2).UTC().Format(time.RFC3339)})
	d.pushes("job3", in{"delay": "1h"})
	if by > 0 {
		s.holds("jobs", "job2 0 ready 0", "job3 0 delayed 0")
	} else {
		s.holds("jobs", "job2 0 delayed 0", "job3 0 delayed 0")
	}
}

// Each of many jobs is done once or becomes a dead letter, despite kills and restarts.
func crowd(s *story) {
	s.configure(client.Settings{MaxDeliver: 5, Keep: time.Hour})
	first, second := s.driver(), s.driver()
	var items []in
	for n := range 60 {
		value := do(step{"wait", "20ms"}, step{"return", b64(fmt.Sprint(n))})
		if n%6 == 5 {
			value = do(step{"drop", "no such user"})
		}
		items = append(items, in{"value": value})
	}
	s.names = map[string]string{}

	// An acknowledgement that is lost is sent again long before this lease is over.
	safe := in{"concurrency": "4", "ackWait": "20s"}
	first.answers("work", safe, `null`)
	second.answers("work", in{"concurrency": "4", "ackWait": "1s"}, `null`)
	s.waits(2)
	first.ask("pushMany", in{"items": items}).answer()
	second.hearsSome(8)
	second.kill()
	s.env.NATS.Restart()
	first.hearsSome(8)
	_ = s.env.Bridge.Stop() // NATS may have been away for some replies
	s.env.Bridge = s.env.StartBridge()
	s.driver().answers("work", safe, `null`)

	s.holds("jobs")
	dead := s.itemsOf(s.all.PriorityQueue("jobs-dead"), "")
	kept := s.itemsOf(s.all.PriorityQueue("jobs"), client.Done)
	if len(dead) != 10 || len(kept) != 50 {
		s.Errorf("%d jobs are dead letters and %d done: want 10 and 50", len(dead), len(kept))
	}
	for _, d := range s.drivers {
		d.hearsSome(0)
	}
}
