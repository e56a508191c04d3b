package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// jobInfo asks what became of a job, and returns the reply with its result.
func jobInfo(t *testing.T, e *testenv.Env, queue, payload string) (subjects.JobInfo, string) {
	t.Helper()
	m := ok(t, e, queue+".result", nil, payload)
	j, err := subjects.ParseJobInfo(m.Header)
	must(t, err)
	return j, string(m.Data)
}

// idOf is the payload that names a job.
func idOf(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }

// wantState checks the state of a job, and returns what else a reply says of it.
func wantState(
	t *testing.T, e *testenv.Env, queue, id string, want subjects.State,
) subjects.JobInfo {
	t.Helper()
	j, result := jobInfo(t, e, queue, idOf(id))
	if j.State != want || j.ID != id || result != "" || j.HasResult {
		t.Errorf("%s: %+v, %q: want a job that is %s, without a result", queue, j, result, want)
	}
	return j
}

// The id of a job, or the message id of its push, is enough to learn what has become of it: also
// when it is a dead letter, and after it was sent back.
func TestStateOfAJob(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			h := nats.Header{"Nats-Msg-Id": {"m"}, "Content-Type": {"image/png"}, "X": {"y"}}
			pushed := push(t, e, kind.push, h, "value")
			j := wantState(t, e, kind.queue, pushed.ID, subjects.StateReady)
			same(t, "deliveries", j.Deliveries, 0)
			same(t, "content type", j.ContentType, "")
			same(t, "pushed", j.PushedAt.IsZero(), false)

			byMsgID, _ := jobInfo(t, e, kind.queue, `{"msg_id":"m"}`)
			same(t, "id", byMsgID.ID, pushed.ID)

			ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1m","holder":"ann"}`, "value")
			j = wantState(t, e, kind.queue, pushed.ID, subjects.StateLeased)
			same(t, "deliveries", j.Deliveries, 1)
			same(t, "holder", j.Holder, "ann")
			same(t, "lease", j.Due.Sub(j.LeasedAt), time.Minute)

			acknowledge(t, e, ack, "-NAK 10s")
			j = wantState(t, e, kind.queue, pushed.ID, subjects.StateDelayed)
			same(t, "deliveries", j.Deliveries, 1)
			same(t, "due", j.Due.IsZero(), false)

			clock.step(time.Minute)
			wantState(t, e, kind.queue, pushed.ID, subjects.StateDelayed) // nobody has looked
			ack = leaseOne(t, e, kind.pop, `{"ack_wait":"1m"}`, "value")
			acknowledge(t, e, ack, `-NAK {"reason":"no ink"}`)
			j = wantState(t, e, kind.queue, pushed.ID, subjects.StateReady)
			same(t, "deliveries", j.Deliveries, 2)
			same(t, "reason", j.Reason, "no ink")

			ack = leaseOne(t, e, kind.pop, `{"ack_wait":"1m"}`, "value")
			acknowledge(t, e, ack, "+TERM no such user")
			j = wantState(t, e, kind.queue, pushed.ID, subjects.StateDead)
			if d := j.DeadLetter; d == nil || d.Reason != "no such user" || d.Deliveries != 3 {
				t.Errorf("dead letter %+v", d)
			}
			same(t, "where it is", j.FoundIn, "jobs-dead")
			same(t, "its place is its id", j.Place == "" || j.Place == j.ID, false)

			ok(t, e, kind.queue+"-dead.redrive", nil, "")
			wantState(t, e, kind.queue, pushed.ID, subjects.StateReady)

			acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1m"}`, "value"), "+ACK")
			err := refused(t, e, 404, kind.queue+".result", nil, []byte(idOf(pushed.ID)))
			same(t, "reason", err.Reason, subjects.ReasonMissing)
			checkStore(t, e)
		}
	}, clock.options)
}

// A job that has moved is found by its id, and named by it, in each state.
func TestStateOfAMovedJob(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		id := push(t, e, "pq.jobs.push", nats.Header{"Pq-Keep": {"1h"}}, "value").ID
		ok(t, e, "pq.jobs.move", nil, fmt.Sprintf(`{"id":%q,"priority":3}`, id))
		ready := wantState(t, e, "pq.jobs", id, subjects.StateReady)
		ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "value")
		wantSame := func(j subjects.JobInfo) {
			t.Helper()
			same(t, "id", j.ID, id)
			same(t, "place", j.Place, ready.Place)
		}

		wantSame(ready)
		wantSame(wantState(t, e, "pq.jobs", id, subjects.StateLeased))
		acknowledge(t, e, ack, "+ACK")
		wantSame(wantState(t, e, "pq.jobs", id, subjects.StateDone))
		checkStore(t, e)
	})
}

// A job is not found in another queue, and a request that names none, or not one, is refused with
// what would be right.
func TestBadResultRequests(t *testing.T) {
	e := start(t, testenv.Options{})
	id := push(t, e, "pq.jobs.push", nil, "a").ID

	refused(t, e, 404, "pq.other.result", nil, []byte(idOf(id)))
	refused(t, e, 404, "pq.jobs-dead.result", nil, []byte(idOf(id)))
	refused(t, e, 404, "pq.jobs.result", nil, []byte(`{"msg_id":"none"}`))

	c := dialRaw(t, e)
	for payload, text := range map[string]string{
		"":                             "want a JSON object",
		"{}":                           `no id: want {"id":"..."}`,
		idOf("x"):                      "want one that a push or pop returned",
		idOf(id + "=="):                "want one that a push or pop returned",
		`{"id":"a","msg_id":"b"}`:      "id and msg_id: want one of them",
		`{"msg_id":""}`:                "msg_id: 0 bytes: want 1 to 512",
		`{"id":"` + id + `","all":1}`:  `unknown member "all"`,
		`{"ids":["` + id + `"]}`:       `unknown member "ids"`,
		`{"id":"` + id + `"}` + "\xff": "",
	} {
		err := refused(t, e, 400, "pq.jobs.result", nil, []byte(payload))
		if !strings.Contains(err.Text, text) {
			t.Errorf("%q: %q: want it to say %q", payload, err.Text, text)
		}

		m := c.request("pq.jobs.result", "", payload)
		if got := replyError(decoded(t, m.headers)); got == nil || got.Error() != err.Error() {
			t.Errorf("%q over TCP: %v, want %v", payload, got, err)
		}
	}

	err := refused(t, e, 413, "pq.jobs.result", nil, []byte(strings.Repeat(" ", 4097)))
	same(t, "reason", err.Reason, subjects.ReasonSize)

	must(t, e.Conn.Publish("pq.jobs.result", []byte(idOf(id))))
	wantMetric(t, e.Bridge, "pq_unanswered_total", 1)
}

// A job that has expired is gone for result, a wait and get alike, though nobody has removed it.
func TestResultOfExpired(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			for _, h := range []nats.Header{
				{"Nats-TTL": {"1m"}}, {"Nats-TTL": {"1m"}, "Pq-Delay": {"1h"}},
			} {
				id := push(t, e, kind.push, h, "value").ID
				clock.step(time.Minute)
				refused(t, e, 404, kind.queue+".result", nil, []byte(idOf(id)))
				wait := fmt.Appendf(nil, `{"id":%q,"expires":"1h"}`, id)
				refused(t, e, 404, kind.queue+".result", nil, wait)
				refused(t, e, 404, kind.queue+".get", nil, []byte(idOf(id)))
			}
		}
	}, clock.options)
}
