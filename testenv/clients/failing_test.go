package clients_test

import (
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// failing has jobs that fail, and what becomes of them.
var failing = []scenario{
	{"retry with backoff", retryWithBackoff},
	{"retry without a backoff", retryWithoutBackoff},
	{"retry delay, whatever failed", retryDelay},
	{"retry after a time of its own", retryAfter},
	{"snooze", snooze},
	{"drop", drop},
	{"dead letter and cause", deadLetter},
	{"an error that another one caused", errorWithCause},
	{"types", types},
	{"job timeout", jobTimeout},
}

// A job that fails comes back after the queue's backoff, and is a dead letter after the last
// delivery, with the reason of its failure.
func retryWithBackoff(s *story) {
	s.configure(client.Settings{MaxDeliver: 3, Backoff: []time.Duration{50 * time.Millisecond}})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"fail", "disk full"})})
	waits := d.ask("result", in{"id": "job1", "wait": "1m"})
	d.answers("work", nil, `null`)

	for _, delivery := range []string{"1", "2", "3"} {
		d.hears("start job1 "+delivery, "end job1 failed")
	}

	waits.answers(`{"state":"dead","value":null,` +
		`"error":"disk full","reason":"max_deliver","progress":null}`)
	s.holds("jobs")
	s.holds("jobs-dead", "job1 0 ready 0 disk full")
	s.wantPause("job1", 50*time.Millisecond)
}

// Without a backoff, a job that fails comes back after a second, and others are served meanwhile.
func retryWithoutBackoff(s *story) {
	s.configure(client.Settings{MaxDeliver: 2})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"fail", "disk full"})})
	d.pushes("job2", in{})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 failed", "start job2 1", "end job2 done",
		"start job1 2", "end job1 failed")
	s.holds("jobs-dead", "job1 0 ready 0 disk full")
	s.wantPause("job1", time.Second)
}

// Whatever makes a job fail, it comes back after the retry delay of its worker, unless the handler
// has named a delay. So does an item that a client gives back with a retry delay.
func retryDelay(s *story) {
	const tooLarge = 64<<10 + 1
	d := s.driver()
	d.pushes("job1", nil)
	d.answers("lease", nil, leased(item("job1", "0", ""), "1"))
	d.refuses("settle", in{"lease": "1", "how": "nak", "delay": "1h", "retryDelay": "2h"},
		"BadRequest")
	d.answers("settle", in{"lease": "1", "how": "nak", "retryDelay": "2h"}, `null`)

	known := func(name string, script step) {
		d.pushes(name, in{"value": do(script), "type": "known"})
	}
	known("job2", step{"fail", "disk full"})
	known("job3", step{"retry", "4h", "no such host"})
	known("job4", step{"next", "other", b64("which the settings do not allow")})
	known("job5", step{"return", b64(strings.Repeat("x", tooLarge))})
	d.pushes("job6", in{"type": "unknown"})
	s.mayRepeat("job4") // its handler ends well
	s.mayRepeat("job5")
	d.answers("work", in{"retryDelay": "3h", "types": []string{"known"}}, `null`)

	for _, run := range []string{"job2 failed", "job3 failed", "job4 done", "job5 done"} {
		name, how, _ := strings.Cut(run, " ")
		d.hears("start "+name+" 1 type known handler known", "end "+name+" "+how)
	}
	s.holdsBack(map[string]time.Duration{
		"job1": 2 * time.Hour,
		"job2": 3 * time.Hour,
		"job3": 4 * time.Hour,
		"job4": 3 * time.Hour,
		"job5": 3 * time.Hour,
		"job6": 3 * time.Hour,
	})
}

// A job may say itself when it wants to be tried again.
func retryAfter(s *story) {
	s.configure(client.Settings{Backoff: []time.Duration{time.Millisecond}})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"retry", "1h", "no such host"})})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 failed")
	s.holds("jobs", "job1 0 delayed 1 no such host")
}

// A job that snoozes comes back, and its delivery does not count.
func snooze(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"snooze", "1h"})})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 failed")
	s.holds("jobs", "job1 0 delayed 0")
}

// A job that is dropped is a dead letter at once.
func drop(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"drop", "no such user"})})
	d.pushes("job2", in{"value": do(step{"drop", "ä\r\n" + string(make([]byte, 3)) + "b"})})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 failed", "start job2 1", "end job2 failed")
	s.holds("jobs-dead", "job1 0 ready 0 no such user", "job2 0 ready 0 ä     b")
	d.answers("result", in{"id": "job1"},
		`{"state":"dead","value":null,"error":"","reason":"no such user","progress":null}`)
}

// A dead letter is found by the id of its push, says why it died, and can be sent back.
func deadLetter(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"fail", "größer ✓"}), "keep": "1h"})
	d.pushes("job2", in{"value": do(step{"fail", "again"})})
	d.answers("work", nil, `null`)
	d.hears("start job1 1", "end job1 failed", "start job2 1", "end job2 failed")
	s.holds("jobs-dead", "job1 0 ready 0 größer ✓", "job2 0 ready 0 again")
	d.answers("stop", nil, `null`)

	d.answers("result", in{"id": "job1"}, `{"state":"dead","value":null,`+
		`"error":"größer ✓","reason":"max_deliver","progress":null}`)
	d.answers("look", in{"what": "get", "id": "job1"}, `{"id":"job1","priority":"0","value":"`+
		do(step{"fail", "größer ✓"})+`","headers":[],"group":"","state":"ready"}`)

	back := in{"what": "redrive", "queue": "jobs-dead", "id": "job1"}
	d.answers("manage", back, `{"home":"jobs"}`)
	s.holds("jobs", "job1 0 ready 0")
	d.refuses("manage", back, "NotFound missing")
	d.answers("manage", in{"what": "redrive", "queue": "jobs-dead"}, `{"redriven":"1"}`)
	s.holds("jobs", "job1 0 ready 0", "job2 0 ready 0")
	s.holds("jobs-dead")
}

// The reason of a job that failed says what caused the error, too.
func errorWithCause(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"fail", "cannot print", "disk full"})})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 failed")
	s.holds("jobs-dead", "job1 0 ready 0 cannot print: disk full")
}

// Each type of job has its handler. Without one for it, a job fails.
func types(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{"type": "email"})
	d.pushes("job2", in{"type": "report"})
	d.pushes("job3", in{})
	d.answers("work", in{"types": []string{"report"}}, `null`)

	d.hears("start job2 1 type report handler report", "end job2 done")
	s.holdsJobs("jobs-dead", "job1", "job3")
	d.answers("stop", nil, `null`)

	d.answers("manage", in{"what": "redrive", "queue": "jobs-dead"}, `{"redriven":"2"}`)
	d.answers("work", in{"types": []string{"report", "*"}, "worker": "all"}, `null`)
	d.hears("start job1 1 all type email handler *", "end job1 done all")
	d.hears("start job3 1 all handler *", "end job3 done all")
	s.holds("jobs")
}

// A job that takes too long is asked to stop, and fails.
func jobTimeout(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "1h"})})
	d.pushes("job2", in{"value": do(step{"wait", "1ms"})})
	d.answers("work", in{"jobTimeout": "2s"}, `null`)

	d.hears("start job1 1", "end job1 timeout", "start job2 1", "end job2 done")
	s.holds("jobs-dead", "job1 0 ready 0 timed out")
}
