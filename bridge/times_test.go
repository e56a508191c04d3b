package bridge_test

import (
	"regexp"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

var (
	anyTime  = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	wireTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
)

// Times in replies have one form, also at whole seconds: UTC, with six digits.
func TestTimesHaveSixDigits(t *testing.T) {
	clock := newSteppedClock()
	clock.micros.Store(clock.micros.Load() / 1e6 * 1e6)
	e := start(t, testenv.Options{Bridge: clock.options})

	check := func(what string, want int, m *nats.Msg) {
		t.Helper()
		n := 0
		for _, values := range m.Header {
			for _, value := range values {
				n += checkTimes(t, what, value)
			}
		}

		n += checkTimes(t, what, string(m.Data))
		if n != want {
			t.Errorf("%s: %d times in %v %s: want %d", what, n, m.Header, m.Data, want)
		}
	}

	const plan = `{"id":"a","every":"1h","until":"2099-01-02T03:04:05+01:00"}`
	const pause = `{"pause_until":"2030-01-02T03:04:05Z"}`
	check("config", 1, ok(t, e, "pq.paused.config", nil, pause))
	check("schedule", 3, ok(t, e, "pq.jobs.schedule", nil, plan))
	check("run", 4, ok(t, e, "pq.jobs.schedule", nil, `{"id":"a","run":true}`))
	check("schedules", 4, ok(t, e, "pq.jobs.schedules", nil, ""))

	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1h"}}, "")
	push(t, e, "pq.jobs.push", nats.Header{"Pq-Delay": {"1h"}}, "")
	check("peek of what is scheduled", 2, ok(t, e, "pq.jobs.peek.min", nil, ""))

	lease := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h","holder":"me"}`)
	check("lease", 3, lease)
	check("+WPI", 1, ok(t, e, lease.Reply, nil, "+WPI"))
	check("items", 3+2+2+1, ok(t, e, "pq.jobs.items", nil, ""))
	check("info", 1, ok(t, e, "pq.jobs.info", nil, ""))

	acknowledge(t, e, lease.Reply, "+TERM")
	check("dead letter", 3, ok(t, e, "pq.jobs-dead.peek.min", nil, ""))
}

// checkTimes returns how many times a text has, and fails unless each has the one form.
func checkTimes(t *testing.T, what, text string) int {
	t.Helper()
	times := anyTime.FindAllString(text, -1)
	for _, at := range times {
		if !wireTime.MatchString(at) {
			t.Errorf("%s: the time %s: want six digits and Z", what, at)
		}
	}

	return len(times)
}
