package bridge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
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

// wantAnswer sends a request and compares the reply.
func wantAnswer(t *testing.T, e *testenv.Env, subject, payload, want string) {
	t.Helper()
	same(t, subject+" "+payload, string(ok(t, e, subject, nil, payload).Data), want)
}

// info says how many items a queue has in each state, and counts due items as ready.
func TestInfo(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})

		for _, kind := range kinds {
			// says compares an info. A FIFO queue has no priorities.
			says := func(counts, priorities, rest string) {
				t.Helper()
				if kind.queue == "q.jobs" {
					priorities = "null"
				}
				want := fmt.Sprintf(`{"queue":"jobs",%s,"priorities":%s,%s}`, counts, priorities,
					rest)
				wantAnswer(t, e, kind.queue+".info", "", want)
			}

			says(`"ready":0,"leased":0,"delayed":0`, "{}",
				`"next_due":null,"oldest_age_s":null,"settings":{}`)

			for range 3 {
				push(t, e, kind.push, nil, "a")
				clock.step(time.Second)
			}

			e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, "-NAK 1m")
			configure(t, e, kind.queue, `{"max_deliver":5}`, `{"max_deliver":5}`)
			const rest = `"next_due":%q,"oldest_age_s":%d,"settings":{"max_deliver":5}`
			says(`"ready":1,"leased":1,"delayed":1`, `{"0":1}`,
				fmt.Sprintf(rest, clock.after(time.Minute), 1))

			// A minute later, the delayed item is due, hence ready.
			clock.step(time.Minute)
			says(`"ready":2,"leased":1,"delayed":0`, `{"0":2}`,
				fmt.Sprintf(rest, clock.after(time.Hour-time.Minute), 62))

			refused(t, e, 400, kind.queue+".info", nil, []byte("{}"))
		}
	})
}

// itemOf is the payload of an operation on an item.
func itemOf(id, more string) string { return fmt.Sprintf(`{"id":%q%s}`, id, more) }

// at is itemOf for the item at a place.
func at(place, more string) string { return fmt.Sprintf(`{"place":%q%s}`, place, more) }

// An item can be looked at, ranked and removed by its id, whatever state it is in. A lease of what
// was removed is lost.
func TestItemsByID(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})

		for _, kind := range kinds {
			var ids []string
			for range 3 {
				pushed := push(t, e, kind.push, nats.Header{"Name": {"value"}}, "payload")
				ids = append(ids, pushed.ID)
			}

			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, "-NAK 1m")
			leased := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))

			for n, want := range []string{"delayed", "leased", "ready"} {
				m := ok(t, e, kind.queue+".get", nil, itemOf(ids[n], ""))

				wantData(t, m, "payload")
				same(t, "state", m.Header.Get("Pq-State"), want)
				same(t, "id", m.Header.Get("Pq-Id"), ids[n])
				same(t, "header", m.Header.Get("Name"), "value")
				same(t, "reply subject", m.Reply, "")
				if m.Header.Get("Pq-Pushed-At") == "" {
					t.Error("the time of the push is missing")
				}
				if (m.Header.Get("Pq-Priority") == "0") != (kind.queue == "pq.jobs") {
					t.Errorf("%s: headers %v", kind.queue, m.Header)
				}
			}

			wantAnswer(t, e, kind.queue+".rank", itemOf(ids[2], ""), `{"rank":0,"at_least":false}`)

			// Once the delay is over, the item is before it. A rank would not wait for long until
			// it is swept.
			clock.step(2 * time.Minute)
			ok(t, e, kind.queue+".len", nil, "")
			wantAnswer(t, e, kind.queue+".rank", itemOf(ids[2], `,"end":"min"`),
				`{"rank":1,"at_least":false}`)
			wantAnswer(t, e, kind.queue+".remove", itemOf(ids[1], ""),
				fmt.Sprintf(`{"queue":"jobs","id":%q}`, ids[1]))

			err := wantError(t, 409, "ack", e.Request(leased.Reply, nil, nil))
			if !errors.Is(err, fdbpq.ErrLeaseLost) {
				t.Errorf("acknowledged after the remove: %v", err)
			}

			for _, verb := range []string{"get", "remove", "rank"} {
				err := refused(t, e, 404, kind.queue+"."+verb, nil, []byte(itemOf(ids[1], "")))
				if !errors.Is(err, fdbpq.ErrNotFound) ||
					!strings.Contains(err.Text, "no such item") {
					t.Errorf("%s: %v", verb, err)
				}
				refused(t, e, 400, kind.queue+"."+verb, nil, []byte(`{"id":"x y"}`))
				refused(t, e, 400, kind.queue+"."+verb, nil, []byte(`{"id":"AAAA"}`))
			}
			wantLen(t, e, kind.queue[:len(kind.queue)-len(".jobs")], "jobs", 2)
		}
		refused(t, e, 400, "q.jobs.move", nil, []byte(`{"id":"x","priority":1}`))
		refused(t, e, 400, "q.jobs.rank", nil,
			[]byte(itemOf(push(t, e, "q.jobs.push", nil, "").ID, `,"end":"max"`)))

		publish(t, e, "q.jobs.purge", "", "")
		wantLen(t, e, "q", "jobs", 3)
	})
}

// An item can be moved to another priority, where it comes last and keeps the id of its job, unless
// it is leased. The place that it had before names nothing.
func TestMove(t *testing.T) {
	e := start(t, testenv.Options{})
	first := push(t, e, "pq.jobs.push.1", nil, "first")
	second := push(t, e, "pq.jobs.push.1", nil, "second")
	push(t, e, "pq.jobs.push.-7", nil, "third")
	var moved subjects.Moved

	reply := ok(t, e, "pq.jobs.move", nil, itemOf(first.ID, `,"priority":-7`)).Data
	err := json.Unmarshal(reply, &moved)
	if err != nil || moved.Queue != "jobs" || moved.Priority != -7 || moved.ID != first.ID ||
		moved.Place == first.ID {
		t.Errorf("%s, %v", reply, err)
	}

	for _, name := range []string{
		itemOf(moved.ID, `,"end":"max"`), at(moved.Place, `,"end":"max"`),
	} {
		wantAnswer(t, e, "pq.jobs.rank", name, `{"rank":1,"at_least":false}`)
	}
	ok(t, e, "pq.jobs.move", nil, at(moved.Place, `,"priority":-7`))
	for _, place := range []string{first.ID, moved.Place} {
		refused(t, e, 404, "pq.jobs.move", nil, []byte(at(place, `,"priority":1`)))
	}

	leaseOne(t, e, "pq.jobs.pop.max", `{"ack_wait":"1h"}`, "second")
	err = refused(t, e, 409, "pq.jobs.move", nil, []byte(itemOf(second.ID, `,"priority":1`)))
	if !errors.Is(err, fdbpq.ErrLeased) {
		t.Errorf("%v", err)
	}
	refused(t, e, 400, "pq.jobs.move", nil, []byte(itemOf(moved.ID, "")))
	wantPopped(t, e, "pq.jobs.pop.min", "third", "first")
}

// Dead letters are sent home in order, as they were pushed. Other items of the queue stay.
func TestRedrive(t *testing.T) {
	e := start(t, testenv.Options{})
	for i, kind := range kinds {
		for n := range 3 {
			push(t, e, kind.push, nats.Header{
				"Nats-Msg-Id": {fmt.Sprint(n)},
				"Nats-TTL":    {"1h"},
				"Name":        {"value"},
			}, fmt.Sprint(n))
			acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, fmt.Sprint(n)),
				"+TERM no such user")
		}
		wantMetric(t, e.Bridge, "pq_dead_total", float64(3*(i+1)))

		dead := kind.queue + "-dead"
		push(t, e, strings.Replace(kind.push, "jobs", "jobs-dead", 1), nil, "no dead letter")
		wantAnswer(t, e, dead+".redrive", `{"max":1}`, `{"redriven":1}`)
		wantAnswer(t, e, dead+".redrive", "", `{"redriven":2}`)
		wantAnswer(t, e, dead+".redrive", "", `{"redriven":0}`)

		m := ok(t, e, kind.pop, nil, "")
		wantData(t, m, "0")
		wantHeaders(t, m, nats.Header{"Name": {"value"}})
		wantPopped(t, e, kind.pop, "1", "2")
		wantPopped(t, e, kind.dead, "no dead letter")
		refused(t, e, 400, dead+".redrive", nil, []byte(`{"max":-1}`))
	}
}

// A purge removes all items, or those in a state, and says how many.
func TestPurge(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		var held *nats.Msg
		fill := func() {
			pushAll(t, e, kind.push, "a", "b", "c")
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, "-NAK 1h")
			held = e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
		}

		fill()
		for _, state := range []string{"ready", "delayed", "leased"} {
			payload := fmt.Sprintf(`{"state":%q}`, state)
			wantAnswer(t, e, kind.queue+".purge", payload, `{"purged":1}`)
			wantAnswer(t, e, kind.queue+".purge", payload, `{"purged":0}`)
		}
		wantError(t, 409, "ack", e.Request(held.Reply, nil, nil))

		for _, all := range []string{"", "{}"} {
			fill()
			wantAnswer(t, e, kind.queue+".purge", all, `{"purged":3}`)
		}
		wantLen(t, e, strings.TrimSuffix(kind.queue, ".jobs"), "jobs", 0)
		refused(t, e, 400, kind.queue+".purge", nil, []byte(`{"state":"gone"}`))
	}
}
