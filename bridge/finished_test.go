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

// kept is the headers of a push whose job is kept for an hour.
var kept = nats.Header{"Pq-Keep": {"1h"}, "X": {"y"}}

// finish pushes a job that is kept, leases it, and acknowledges it with a result. It returns the id
// of the job.
func finish(t *testing.T, e *testenv.Env, push, pop, value, result string) string {
	t.Helper()
	var p subjects.Pushed
	m := ok(t, e, push, kept, value)
	p, err := subjects.ParseReply[subjects.Pushed](m.Data)
	must(t, err)

	ack := leaseOne(t, e, pop, `{"ack_wait":"1h","holder":"ann"}`, value)
	h := nats.Header{"Pq-Ack": {"+ACK"}, "Content-Type": {"text/plain"}}
	m = ok(t, e, ack, h, result)
	same(t, "not kept", m.Header.Get("Pq-Not-Kept"), "")
	return p.ID
}

// Jobs that are done and kept are listed newest first, page by page, with their results. No other
// list has them.
func TestItemsThatAreDone(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			var ids []string
			for i := range 5 {
				clock.step(time.Second)
				value := fmt.Sprint("value ", i)
				result := fmt.Sprint("result ", i)
				ids = append(ids, finish(t, e, kind.push, kind.pop, value, result))
			}

			page := parsed[subjects.ItemsPage](t, e, kind.queue+".items",
				`{"state":"done","limit":2,"value_bytes":6}`)

			same(t, "items", len(page.Items), 2)
			item := page.Items[0]
			same(t, "id", item.ID, ids[4])
			same(t, "state", item.State, subjects.StateDone)
			same(t, "value", string(item.Value), "value ")
			same(t, "value is cut", item.ValueCut, true)
			same(t, "size", item.Size, len("value 4"))
			same(t, "deliveries", item.Deliveries, 1)
			same(t, "holder", item.Holder, "ann")
			same(t, "header", fmt.Sprint(item.Headers["X"]), "[y]")
			if item.Done == nil || item.PushedAt == nil || item.LeasedAt == nil {
				t.Fatalf("%s: %+v", kind.queue, item)
			}
			same(t, "result", string(item.Result), "result")
			same(t, "result is cut", item.ResultCut, true)
			same(t, "size of the result", *item.ResultSize, len("result 4"))
			same(t, "type", item.ContentType, "text/plain")
			same(t, "kept", item.KeptUntil.Sub(item.FinishedAt), time.Hour)
			same(t, "dropped", item.ValueDropped, false)

			rest := parsed[subjects.ItemsPage](t, e, kind.queue+".items",
				fmt.Sprintf(`{"state":"done","after":%q}`, *page.Next))
			same(t, "items of the next page", len(rest.Items), 3)
			same(t, "first of the next page", rest.Items[0].ID, ids[2])
			same(t, "more pages", rest.Next == nil, true)

			for match, want := range map[string]int{
				"result 3": 1, "value 2": 1, "ann": 5, "X: y": 5, ids[0]: 1, "nobody": 0,
			} {
				found := parsed[subjects.ItemsPage](t, e, kind.queue+".items",
					fmt.Sprintf(`{"state":"done","match":%q}`, match))
				same(t, "with "+match, len(found.Items), want)
			}

			for _, others := range []string{``, `{"state":"ready"}`, `{"state":"leased"}`} {
				all := parsed[subjects.ItemsPage](t, e, kind.queue+".items", others)
				same(t, "items "+others, len(all.Items), 0)
			}
			checkStore(t, e)
		}
	}, clock.options)
}

// A result of no bytes is listed as one, and no result is not.
func TestItemsWithoutResult(t *testing.T) {
	e := start(t, testenv.Options{})
	finish(t, e, "pq.jobs.push", "pq.jobs.pop.min", "a", "")
	ok(t, e, "pq.jobs.push", kept, "b")
	acknowledge(t, e, leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "b"), "+ACK")

	m := ok(t, e, "pq.jobs.items", nil, `{"state":"done"}`)

	items := strings.Split(string(m.Data), `{"id"`)[1:]
	if len(items) != 2 || strings.Contains(items[0], "result") ||
		!strings.Contains(items[1], `"result_size":0`) {
		t.Errorf("items %s", m.Data)
	}
}

// A request for jobs that are done is refused with what would be right.
func TestBadItemsThatAreDone(t *testing.T) {
	e := start(t, testenv.Options{})
	id := push(t, e, "pq.jobs.push", nil, "a").ID
	after := func(next string) string { return `{"state":"done","after":"` + next + `"}` }
	for payload, text := range map[string]string{
		`{"state":"dead"}`:             `want "ready", "delayed", "leased" or "done"`,
		`{"state":"done","end":"max"}`: `end: "max", with state "done"`,
		after(id):                      `after: bad request: "` + id + `": want what a page`,
		after("5.x"):                   `after: invalid item id: "x"`,
		after("x." + id):               `after: bad request: "x": want what a page`,
		after("9" + id + "." + id):     `after: bad request`,
		`{"after":"5.` + id + `"}`:     "after: invalid item id",
	} {
		err := refused(t, e, 400, "pq.jobs.items", nil, []byte(payload))
		if !strings.Contains(err.Text, text) {
			t.Errorf("%s: %q: want it to say %q", payload, err.Text, text)
		}
	}
}

// The id of a job that is done is enough to learn its result and times, and to get its value. It
// can be removed, run again under the same id, and purged, but nothing else.
func TestJobThatIsDone(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			id := finish(t, e, kind.push, kind.pop, "value", "result")

			j, result := jobInfo(t, e, kind.queue, idOf(id))
			same(t, "result", result, "result")
			same(t, "state", j.State, subjects.StateDone)
			same(t, "id", j.ID, id)
			same(t, "type", j.ContentType, "text/plain")
			same(t, "size", j.ResultSize, int64(len("result")))
			same(t, "holder", j.Holder, "ann")
			same(t, "deliveries", j.Deliveries, 1)
			same(t, "kept", j.KeptUntil.Sub(j.FinishedAt), time.Hour)
			same(t, "leased", j.LeasedAt.IsZero(), false)

			m := ok(t, e, kind.queue+".get", nil, idOf(id))
			wantData(t, m, "value")
			same(t, "state", m.Header.Get("Pq-State"), "done")
			same(t, "header", m.Header.Get("X"), "y")
			same(t, "holder", m.Header.Get("Pq-Holder"), "ann")
			same(t, "deliveries", m.Header.Get("Pq-Deliveries"), "1")
			same(t, "type", m.Header.Get("Content-Type"), "") // of the result
			same(t, "finished", m.Header.Get("Pq-Finished-At"),
				j.FinishedAt.Format(subjects.TimeLayout))
			same(t, "kept until", m.Header.Get("Pq-Kept-Until"),
				j.KeptUntil.Format(subjects.TimeLayout))

			for _, verb := range []string{"release", "rank"} {
				err := refused(t, e, 409, kind.queue+"."+verb, nil, []byte(idOf(id)))
				same(t, "reason of "+verb, err.Reason, subjects.ReasonDone)
			}
			refused(t, e, 404, kind.queue+".remove", nil, []byte(idOf(id)))

			// Again, under the same id.
			ids := fmt.Sprintf(`{"ids":[%q]}`, id)
			ok(t, e, kind.queue+".redrive", nil, ids)
			wantState(t, e, kind.queue, id, subjects.StateReady)
			ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "value")
			ok(t, e, ack, nats.Header{"Pq-Ack": {"+ACK"}}, "again")
			_, result = jobInfo(t, e, kind.queue, idOf(id))
			same(t, "second result", result, "again")

			ok(t, e, kind.queue+".remove", nil, strings.Replace(ids, "}", `,"state":"done"}`, 1))
			refused(t, e, 404, kind.queue+".result", nil, []byte(idOf(id)))

			for range 2 {
				finish(t, e, kind.push, kind.pop, "value", "result")
			}
			ready := push(t, e, kind.push, nil, "ready").ID
			same(t, "counted", parsed[subjects.QueueInfo](t, e, kind.queue+".info", "").Finished, 2)
			same(t, "purged", string(ok(t, e, kind.queue+".purge", nil, `{"state":"done"}`).Data),
				`{"purged":2}`)
			wantState(t, e, kind.queue, ready, subjects.StateReady)
			ok(t, e, kind.queue+".purge", nil, "")
			checkStore(t, e)
		}
	}, clock.options)
}

// The outcome of a job is over when its time is: then it is as if it had never been.
func TestOutcomeIsOver(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		id := finish(t, e, "pq.jobs.push", "pq.jobs.pop.min", "value", "result")
		clock.step(time.Hour - time.Second)
		_, result := jobInfo(t, e, "pq.jobs", idOf(id))
		same(t, "result", result, "result")

		clock.step(time.Second)

		refused(t, e, 404, "pq.jobs.result", nil, []byte(idOf(id)))
		refused(t, e, 404, "pq.jobs.get", nil, []byte(idOf(id)))
		page := parsed[subjects.ItemsPage](t, e, "pq.jobs.items", `{"state":"done"}`)
		same(t, "items", len(page.Items), 0)
	}, clock.options)
}

// A repeated acknowledgement of a job that is kept is told that the job is done, and changes
// nothing. With several leases the reply names the ones acknowledged before.
func TestAcknowledgedBefore(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		ok(t, e, "pq.jobs.config", nil, `{"keep":"1h"}`)
		acks := pushAndLease(t, e, "jobs", 4)
		h := nats.Header{"Pq-Ack": {"+ACK"}}
		ok(t, e, acks[0], h, "first")
		acknowledge(t, e, acks[1], "-NAK")

		for _, payload := range []string{"second", ""} {
			err := refused(t, e, 409, acks[0], h, []byte(payload))
			same(t, "reason", err.Reason, subjects.ReasonDone)
		}
		err := refused(t, e, 409, acks[0], nil, []byte("+NXT"))
		same(t, "reason after +NXT", err.Reason, subjects.ReasonDone)

		m := e.Request(acks[2], nil, []byte(alsoPayload("+ACK", acks[:2])))
		err = wantError(t, 409, acks[2], m)
		same(t, "reason of several", err.Reason, subjects.ReasonLost)
		same(t, "lost", m.Header.Get("Pq-Lost"), "1,2")
		same(t, "done", m.Header.Get("Pq-Done"), "1")

		acknowledge(t, e, acks[2], alsoPayload("+ACK", acks[3:]))
		m = e.Request(acks[2], nil, []byte(alsoPayload("+ACK", acks[3:])))
		err = wantError(t, 409, acks[2], m)
		same(t, "reason if all are done", err.Reason, subjects.ReasonDone)
		same(t, "all are done", m.Header.Get("Pq-Done"), "0,1")

		page := parsed[subjects.ItemsPage](t, e, "pq.jobs.items",
			`{"state":"done","match":"first"}`)
		same(t, "jobs with the first result", len(page.Items), 1)
		checkStore(t, e)
	})
}
