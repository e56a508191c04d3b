package clients_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// leasing has leases that are kept, and leases that are lost.
var leasing = []scenario{
	{"leases by hand", leasesByHand},
	{"several leases and acknowledgements", severalLeases},
	{"late acknowledgement", lateAcknowledgement},
	{"acknowledged twice", acknowledgedTwice},
	{"long job", longJob},
	{"lost lease", func(s *story) { lostLease(s) }},
	{"lost lease in a thread", func(s *story) { lostLease(s, step{"thread"}) }},
	{"blocked longer than the lease", func(s *story) { blocked(s) }},
	{"blocked thread", func(s *story) { blocked(s, step{"thread"}) }},
	{"frozen longer than the lease", frozen},
	{"killed in a job", killedInAJob},
	{"progress", progress},
	{"progress at every step", muchProgress},
	{"progress as the last step", lastProgress},
	{"successors", successors},
}

// A lease that is taken by hand is extended, given back, snoozed, given up and acknowledged.
func leasesByHand(s *story) {
	d := s.driver()
	d.answers("lease", nil, `null`)
	waits := d.ask("lease", in{"expires": "1m", "ackWait": "1m", "holder": "me"})
	d.pushes("job1", nil)
	waits.answers(leased(item("job1", "0", ""), "1"))
	s.holds("jobs", "job1 0 leased 1")

	d.answers("settle", in{"lease": "1", "how": "extend", "progress": "half"}, `null`)
	d.answers("look", in{"what": "items", "state": "leased"}, `[{"id":"job1","priority":"0",`+
		`"state":"leased","holder":"me","progress":"aGFsZg==","deliveries":"1",`+
		`"size":"0","value":""}]`)

	d.answers("settle", in{"lease": "1", "how": "nak", "reason": "not now"}, `null`)
	s.holds("jobs", "job1 0 ready 1 not now")
	d.refuses("settle", in{"lease": "1", "how": "extend"}, "LeaseLost lost")

	d.answers("lease", in{"ackWait": "1m"}, leased(item("job1", "0", ""), "2"))
	d.answers("settle", in{"lease": "2", "how": "snooze"}, `null`)
	s.holds("jobs", "job1 0 ready 1 not now")

	d.answers("lease", nil, leased(item("job1", "0", ""), "2"))
	d.answers("settle", in{"lease": "3", "how": "nak", "delay": "1h"}, `null`)
	s.holds("jobs", "job1 0 delayed 2 not now")

	d.pushes("job2", in{"priority": "0"})
	d.answers("lease", in{"max": true}, leased(item("job2", "0", ""), "1"))
	d.answers("settle", in{"lease": "4", "how": "term", "reason": "no printer"}, `null`)
	s.holds("jobs-dead", "job2 0 ready 0 no printer")

	d.pushes("job3", in{"keep": "1h"})
	d.answers("lease", nil, leased(item("job3", "0", ""), "1"))
	d.answers("settle", in{"lease": "5", "how": "ack", "result": b64("ok")}, `null`)
	s.kept("jobs", "job3 0 done 1")
}

// Several items are leased in one request, and acknowledged in one. A lease that is lost fails
// alone.
func severalLeases(s *story) {
	d := s.driver()
	d.refuses("lease", in{"count": "1001"}, "BadRequest")
	d.answers("lease", in{"count": "3"}, `[]`)
	for n := range 4 {
		d.pushes(fmt.Sprint("job", n+1), in{"keep": "1h"})
	}
	d.answers("lease", in{"count": "3", "ackWait": "1h"}, `[`+
		leased(item("job1", "0", ""), "1")+`,`+leased(item("job2", "0", ""), "1")+`,`+
		leased(item("job3", "0", ""), "1")+`]`)
	s.holds("jobs", "job1 0 leased 1", "job2 0 leased 1", "job3 0 leased 1", "job4 0 ready 0")

	d.answers("manage", in{"what": "remove", "id": "job2"}, `null`)
	s.leaves("job2", "removed")
	d.answers("ackAll", in{"leases": []string{"1", "2", "3"}},
		`[null,{"error":"LeaseLost lost"},null]`)
	s.kept("jobs", "job3 0 done 1", "job1 0 done 1")
	s.holds("jobs", "job4 0 ready 0")

	waits := d.ask("lease", in{"queue": "later", "count": "2", "expires": "1m"})
	d.pushes("job5", in{"queue": "later"})
	d.pushes("job6", in{"queue": "later"})
	waits.answers(`[` + leased(item("job5", "0", ""), "1") + `,` +
		leased(item("job6", "0", ""), "1") + `]`)
	d.answers("ackAll", in{"leases": []string{"4", "5"}}, `[null,null]`)
	s.leaves("job5", "acknowledged")
	s.leaves("job6", "acknowledged")
	s.holds("later")
	d.answers("ackAll", in{"leases": []string{}}, `[]`)
}

// An acknowledgement that comes after somebody else got the item changes nothing.
func lateAcknowledgement(s *story) {
	d, other := s.driver(), s.driver()
	d.pushes("job1", nil)
	d.answers("lease", in{"ackWait": "100ms"}, leased(item("job1", "0", ""), "1"))
	other.answers("lease", in{"ackWait": "1m", "expires": "1m"}, leased(item("job1", "0", ""), "2"))

	for _, how := range []string{"ack", "nak", "snooze", "term", "extend"} {
		d.refuses("settle", in{"lease": "1", "how": how}, "LeaseLost lost")
	}
	s.holds("jobs", "job1 0 leased 2")

	other.answers("settle", in{"lease": "1", "how": "ack"}, `null`)
	s.leaves("job1", "acknowledged")
	s.holds("jobs")
}

// The second acknowledgement of a lease succeeds if the job is kept, and is refused otherwise.
func acknowledgedTwice(s *story) {
	d := s.driver()
	d.pushes("job1", nil)
	d.answers("lease", nil, leased(item("job1", "0", ""), "1"))
	d.answers("settle", in{"lease": "1", "how": "ack"}, `null`)
	s.leaves("job1", "acknowledged")
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")

	d.pushes("job2", in{"keep": "1h"})
	d.answers("lease", nil, leased(item("job2", "0", ""), "1"))
	d.answers("settle", in{"lease": "2", "how": "ack", "result": b64("first")}, `null`)
	d.answers("settle", in{"lease": "2", "how": "ack", "result": b64("second")}, `null`)
	d.refuses("settle", in{"lease": "2", "how": "nak"}, "LeaseLost lost")
	d.answers("result", in{"id": "job2"}, done(b64("first")))
}

// A job that takes several times as long as its lease is done once, because its worker extends it.
func longJob(s *story) {
	s.configure(client.Settings{AckWait: time.Second})
	d, other := s.driver(), s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "2500ms"})})
	d.answers("work", nil, `null`)
	d.hears("start job1 1")

	other.answers("work", nil, `null`)
	d.hears("end job1 done")
	s.holds("jobs")
}

// A lost lease asks the handler to stop. Nothing that the handler returns counts, and the worker
// goes on with the next job.
func lostLease(s *story, first ...step) {
	d := s.driver()
	d.pushes("job1", in{"value": do(append(first, step{"wait", "1h"}, step{"fail", "late"})...)})
	d.pushes("job2", in{"value": do(first...)})
	d.answers("work", in{"ackWait": "1s"}, `null`)
	d.hears("start job1 1")

	d.answers("manage", in{"what": "remove", "id": "job1"}, `null`)
	s.leaves("job1", "removed")

	d.hears("end job1 lost")
	d.hears("start job2 1", "end job2 done")
	s.holds("jobs")
	s.holds("jobs-dead")
}

// A handler that keeps a thread, or everything, from running for longer than its lease is done all
// the same if nobody else got the job.
func blocked(s *story, first ...step) {
	s.configure(client.Settings{AckWait: 1500 * time.Millisecond})
	d := s.driver()
	d.pushes("job1", in{"value": do(append(first, step{"block", "4s"})...)})
	d.pushes("job2", nil)
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 done", "start job2 1", "end job2 done")
	s.holds("jobs")
}

// A process that stands still for longer than its lease loses the job. Once it goes on, its handler
// is asked to stop, and disturbs nobody.
func frozen(s *story) {
	d, other := s.driver(), s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "1h"}), "keep": "1h"})
	d.answers("work", in{"ackWait": "1s"}, `null`)
	d.hears("start job1 1")

	d.signal(syscall.SIGSTOP)
	other.answers("lease", in{"ackWait": "1h", "expires": "1m"},
		leased(item("job1", "0", do(step{"wait", "1h"})), "2"))
	d.signal(syscall.SIGCONT)

	d.hears("end job1 lost")
	s.holds("jobs", "job1 0 leased 2")
	other.answers("settle", in{"lease": "1", "how": "ack", "result": b64("mine")}, `null`)
	s.kept("jobs", "job1 0 done 2")
	d.answers("stop", nil, `null`)
}

// The job of a process that was killed goes to another one when its lease is over.
func killedInAJob(s *story) {
	d, other := s.driver(), s.driver()
	d.pushes("job1", in{"keep": "1h", "value": do(step{"wait", "500ms"})})
	d.answers("work", in{"ackWait": "1s"}, `null`)
	d.hears("start job1 1")

	d.kill()

	other.answers("work", in{"worker": "other"}, `null`)
	other.hears("start job1 2 other", "end job1 done other")
	s.kept("jobs", "job1 0 done 2")
}

// A job says how far it is, as long as it is leased.
func progress(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"progress", "ein Viertel ✓"}, step{"progress", "half"},
		step{"wait", "1h"})})
	d.answers("work", in{"holder": "me", "ackWait": "1s"}, `null`)
	d.hears("start job1 1")

	d.eventually("result", in{"id": "job1"}, `{"state":"leased","value":null,`+
		`"error":"","reason":"","progress":"aGFsZg=="}`)

	d.answers("stop", in{"timeout": "1ms"}, `null`)
	d.hears("end job1 stopped")
	d.answers("result", in{"id": "job1"}, `{"state":"ready","value":null,`+
		`"error":"","reason":"","progress":null}`)
}

// Progress costs one extension a second at most, however often a job says it, and the last one
// counts.
func muchProgress(s *story) {
	s.begin(testenv.Options{})
	var extensions atomic.Int64
	s.env.Relay("far", func(m *nats.Msg) *nats.Msg {
		if strings.Contains(m.Subject, ".ack.") && strings.HasPrefix(string(m.Data), "+WPI") {
			extensions.Add(1)
		}
		return nil
	})
	var steps []step
	for n := range 200 {
		steps = append(steps, step{"progress", fmt.Sprint(n)}, step{"wait", "1ms"})
	}

	d := s.driver("PQ_PREFIX=far")
	d.pushes("job1", in{"value": do(append(steps, step{"wait", "1h"})...)})
	d.answers("work", in{"ackWait": "1h"}, `null`)
	d.hears("start job1 1")
	d.eventually("result", in{"id": "job1"}, `{"state":"leased","value":null,`+
		`"error":"","reason":"","progress":"`+b64("199")+`"}`)

	// A slow machine may take seconds for these steps, but never one for each.
	if n := extensions.Load(); n > 50 {
		s.Errorf("%d extensions for 200 times progress: want one a second", n)
	}
	d.answers("stop", in{"timeout": "1ms"}, `null`)
	d.hears("end job1 stopped")
}

// A job whose last step says how far it is ends all the same, and a worker that has it stops.
func lastProgress(s *story) {
	d := s.driver()
	for n := range 10 {
		value := do(step{"progress", "most"}, step{"wait", "1ms"}, step{"progress", "all"})
		if n%2 > 0 {
			value = do(step{"progress", "all"})
		}
		d.pushes(fmt.Sprint("job", n+1), in{"value": value})
	}
	d.answers("work", nil, `null`)
	for n := range 10 {
		d.hears(fmt.Sprintf("start job%d 1", n+1), fmt.Sprintf("end job%d done", n+1))
	}
	d.answers("stop", in{"timeout": "1m"}, `null`)
	s.holds("jobs")
}

// An acknowledgement pushes to other queues, or nothing is done at all.
func successors(s *story) {
	s.configure(client.Settings{Next: []string{"mail"}, MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{
		"keep": "1h",
		"value": do(step{"next", "mail", b64("a")}, step{"next", "mail", b64("b")},
			step{"return", b64("ok")}),
	})
	d.answers("work", nil, `null`)
	d.hears("start job1 1", "end job1 done")
	s.kept("jobs", "job1 0 done 1")
	s.holds("mail", "job2 0 ready 0", "job3 0 ready 0")
	d.answers("pop", in{"queue": "mail"}, item("job2", "0", b64("a")))

	// A queue that next does not name: the job fails, with whatever the bridge says as the reason.
	d.pushes("job4", in{"value": do(step{"next", "other", b64("x")})})
	s.mayRepeat("job4")
	d.hears("start job4 1", "end job4 done")
	s.holdsJobs("jobs-dead", "job4")
	s.holds("other")
	d.answers("stop", nil, `null`)

	next := []in{{"queue": "mail", "value": b64("c"), "priority": "-3"}}
	d.pushes("job5", nil)
	d.answers("lease", nil, leased(item("job5", "0", ""), "1"))
	wrong := []in{{"queue": "other", "value": b64("c")}}
	d.refuses("settle", in{"lease": "1", "how": "ack", "next": wrong}, "BadRequest")
	s.holds("mail", "job3 0 ready 0")
	s.holds("jobs", "job5 0 leased 1")
	d.answers("settle", in{"lease": "1", "how": "nak"}, `null`)

	d.pushes("job6", nil)
	d.answers("lease", nil, leased(item("job6", "0", ""), "1"))
	d.answers("settle", in{"lease": "2", "how": "ack", "next": next}, `null`)
	s.leaves("job6", "acknowledged")
	s.holds("mail", "job7 -3 ready 0", "job3 0 ready 0")
}
