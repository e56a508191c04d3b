package bridge_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// steppedClock is a clock that only the test moves.
type steppedClock struct{ micros atomic.Int64 }

func newSteppedClock() *steppedClock {
	c := &steppedClock{}
	c.micros.Store(time.Now().UnixMicro())
	return c
}

func (c *steppedClock) now() time.Time            { return time.UnixMicro(c.micros.Load()) }
func (c *steppedClock) step(d time.Duration)      { c.micros.Add(d.Microseconds()) }
func (c *steppedClock) options(o *bridge.Options) { o.Now = c.now }
func (c *steppedClock) after(d time.Duration) (text string) {
	return c.now().Add(d).UTC().Format(subjects.TimeLayout)
}

// answers sends a request and compares the reply.
func answers(t *testing.T, e *testenv.Env, subject, payload, want string) {
	t.Helper()
	if got := string(ok(t, e, subject, nil, payload).Data); got != want {
		t.Errorf("%s %s: %s, want %s", subject, payload, got, want)
	}
}

func TestInfo(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})
		for _, kind := range kinds {
			name := "jobs"
			priorities := func(text string) string { return text }
			if kind.queue == "q.jobs" {
				priorities = func(string) string { return "null" }
			}
			answers(t, e, kind.queue+".info", "", fmt.Sprintf(
				`{"queue":%q,"ready":0,"leased":0,"delayed":0,"priorities":%s,"oldest_age_s":null,"next_due":null,"settings":{}}`,
				name, priorities("{}")))
			for range 3 {
				push(t, e, kind.push, nil, "a")
				clock.step(time.Second)
			}
			e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acked(t, e, m.Reply, "-NAK 1m")
			configured(t, e, kind.queue, `{"max_deliver":5}`, `{"max_deliver":5}`)
			answers(t, e, kind.queue+".info", "", fmt.Sprintf(
				`{"queue":%q,"ready":1,"leased":1,"delayed":1,"priorities":%s,"oldest_age_s":1,"next_due":%q,"settings":{"max_deliver":5}}`,
				name, priorities(`{"0":1}`), clock.after(time.Minute)))
			// What has fallen due since is ready.
			clock.step(time.Minute)
			answers(t, e, kind.queue+".info", "", fmt.Sprintf(
				`{"queue":%q,"ready":2,"leased":1,"delayed":0,"priorities":%s,"oldest_age_s":62,"next_due":%q,"settings":{"max_deliver":5}}`,
				name, priorities(`{"0":2}`), clock.after(time.Hour-time.Minute)))
			refused(t, e, 400, kind.queue+".info", nil, []byte("{}"))
		}
	})
}
