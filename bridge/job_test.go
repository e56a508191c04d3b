package bridge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A client that knows only the id of its push follows the job by it: through a move, its death, a
// redrive, another death and its removal.
func TestOneIDForAJob(t *testing.T) {
	e := start(t, testenv.Options{})
	nc, err := nats.Connect(e.NATS.URL())
	must(t, err)
	defer nc.Close()
	ask := func(subject, payload string) *nats.Msg {
		t.Helper()
		m, err := nc.Request(subject, []byte(payload), time.Minute)
		must(t, err)
		if failure := subjects.ErrorFromHeaders(m.Header); failure != nil {
			t.Fatalf("%s %s: %v", subject, payload, failure)
		}
		return m
	}
	var pushed subjects.Pushed
	must(t, json.Unmarshal(ask("pq.jobs.push.5", "work").Data, &pushed))
	job := fmt.Sprintf(`{"id":%q}`, pushed.ID)
	// where gets the job from the queue that it was pushed to.
	where := func() (place, queue string) {
		t.Helper()
		m := ask("pq.jobs.get", job)
		same(t, "value", string(m.Data), "work")
		same(t, "id", m.Header.Get(subjects.HeaderID), pushed.ID)
		return m.Header.Get(subjects.HeaderPlace), m.Header.Get(subjects.HeaderQueue)
	}
	// die leases the job and gives it up.
	die := func() {
		t.Helper()
		m := ask("pq.jobs.pop.min", `{"ack_wait":"1m"}`)
		same(t, "id of the leased job", m.Header.Get(subjects.HeaderID), pushed.ID)
		ask(m.Reply, "+TERM")
	}
	place, queue := where()
	same(t, "place, queue", place+queue, "")

	var moved subjects.Moved
	must(t, json.Unmarshal(ask("pq.jobs.move", itemOf(pushed.ID, `,"priority":2`)).Data, &moved))
	place, queue = where()
	same(t, "queue, place", queue+place, moved.Place)
	same(t, "id", moved.ID, pushed.ID)

	die()
	letter, queue := where()
	same(t, "queue", queue, "jobs-dead")
	var results subjects.ItemResults
	redrive := fmt.Sprintf(`{"ids":[%q]}`, pushed.ID)
	must(t, json.Unmarshal(ask("pq.jobs-dead.redrive", redrive).Data, &results))
	same(t, "id", results.Results[0].ID, pushed.ID)
	place, queue = where()
	same(t, "queue, place", queue+place, results.Results[0].Place)

	die()
	// A late repeat names the place of the first death, and leaves the second alone.
	again := fmt.Sprintf(`{"places":[%q]}`, letter)
	must(t, json.Unmarshal(ask("pq.jobs-dead.redrive", again).Data, &results))
	same(t, "code", results.Results[0].Code, subjects.CodeNotFound)
	same(t, "removed", string(ask("pq.jobs-dead.remove", job).Data),
		fmt.Sprintf(`{"queue":"jobs-dead","id":%q}`, pushed.ID))
	refused(t, e, 404, "pq.jobs.get", nil, []byte(job))
	checkStore(t, e)
}

// Lists show the id of a job, and its place where that differs. Requests name one of them, and
// replies the job. What has left its place is not found there, and no place passes for an id.
func TestPlacesOfItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		stays := push(t, e, "pq.jobs.push.5", nil, "stays").ID
		goes := push(t, e, "pq.jobs.push.1", nil, "goes").ID
		moved := results(t, e, "pq.jobs.move", idsOf(`,"priority":9`, goes))
		wantResults(t, "move", moved, []string{goes}, "0")
		place := moved[0].Place

		first := page(t, e, "pq.jobs", `{"limit":1}`)
		same(t, "first", first.Items[0].ID+first.Items[0].Place, stays)
		second := page(t, e, "pq.jobs", fmt.Sprintf(`{"after":%q}`, *first.Next))
		same(t, "second", second.Items[0].ID+second.Items[0].Place, goes+place)
		for _, text := range []string{goes, place} {
			found := page(t, e, "pq.jobs", fmt.Sprintf(`{"match":%q}`, text))
			same(t, "found by "+text, len(found.Items), 1)
		}

		peeked := ok(t, e, "pq.jobs.peek.max", nil, "").Header
		same(t, "peeked", peeked.Get("Pq-Id")+peeked.Get("Pq-Place"), goes+place)
		got := parsed[subjects.ItemsPage](t, e, "pq.jobs.get", idsOf("", goes))
		same(t, "got", got.Items[0].ID+got.Items[0].Place, goes+place)
		got = parsed[subjects.ItemsPage](t, e, "pq.jobs.get", placesOf("", place, goes, stays))
		same(t, "got by its place", got.Items[0].ID+got.Items[0].Place, goes+place)
		same(t, "got where it was", got.Items[1].ID+got.Items[1].Place, goes)
		same(t, "code", got.Items[1].Code, 404)
		same(t, "got where it stays", got.Items[2].ID+got.Items[2].Place, stays)
		got = parsed[subjects.ItemsPage](t, e, "pq.jobs.get", idsOf("", place, stays))
		same(t, "got in a list of ids", got.Items[0].ID+got.Items[0].Place, goes+place)
		for _, verb := range []string{"get", "rank", "remove", "release", "result"} {
			err := refused(t, e, 400, "pq.jobs."+verb, nil, []byte(itemOf(place, "")))
			if !strings.Contains(err.Text, place+" is no id, but the place of an item") {
				t.Errorf("%s by a place: %v", verb, err)
			}
		}

		both := results(t, e, "pq.jobs.remove", placesOf("", goes, place))
		same(t, "left", both[0].ID+both[0].Place+both[0].Text, goes+"no such item: "+goes)
		same(t, "removed", fmt.Sprint(both[1].ID, both[1].Place, both[1].Code), goes+"0")
	})
}

// A job is found by the message id of its push, and a request that names it in two ways, or in
// none, is refused.
func TestGetByMsgID(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	id := push(t, e, "pq.jobs.push.5", nats.Header{"Nats-Msg-Id": {"invoice-17"}}, "x").ID
	get := func() string {
		t.Helper()
		m := ok(t, e, "pq.jobs.get", nil, `{"msg_id":"invoice-17"}`)
		return m.Header.Get("Pq-Id") + m.Header.Get("Pq-Queue")
	}

	same(t, "pushed", get(), id)
	ok(t, e, "pq.jobs.move", nil, itemOf(id, `,"priority":1`))
	same(t, "moved", get(), id)
	acknowledge(t, e, leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "x"), "+TERM")
	same(t, "dead", get(), id+"jobs-dead")

	for payload, code := range map[string]int{
		`{"msg_id":"invoice-18"}`:                              404,
		`{"msg_id":""}`:                                        400,
		`{"msg_id":5}`:                                         400,
		itemOf(id, `,"msg_id":"invoice-17"`):                   400,
		idsOf(`,"msg_id":"invoice-17"`, id):                    400,
		`{"msg_id":"invoice-17","value_bytes":5}`:              400,
		fmt.Sprintf(`{"msg_id":%q}`, strings.Repeat("x", 513)): 400,
		`{}`: 400,
	} {
		refused(t, e, code, "pq.jobs.get", nil, []byte(payload))
	}
	refused(t, e, 400, "pq.jobs.remove", nil, []byte(`{"msg_id":"invoice-17"}`))

	clock.step(3 * time.Minute)
	refused(t, e, 404, "pq.jobs.get", nil, []byte(`{"msg_id":"invoice-17"}`))
}
