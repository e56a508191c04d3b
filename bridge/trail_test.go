package bridge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// get returns the reply to a get.
func getJob(t *testing.T, e *testenv.Env, queue, id string) map[string][]string {
	t.Helper()
	return ok(t, e, "pq."+queue+".get", nil, fmt.Sprintf(`{"id":%q}`, id)).Header
}

// A successor that fills a message is delivered all the same: without the name of its parent, which
// came in addition.
func TestSuccessorThatFillsAMessage(t *testing.T) {
	const most = 4096
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = most }})
	queue := strings.Repeat("q", 100)
	ok(t, e, "pq."+queue+".config", nil, `{"trail":2,"next":["mail"]}`)
	push(t, e, "pq."+queue+".push", nil, "job")
	lease := ok(t, e, popOf("pq", queue), nil, `{"ack_wait":"1h"}`)

	value := strings.Repeat("v", most-130)
	ok(t, e, lease.Reply, framed("+ACK", 1), frames(pushesTo("mail", 0, "", value)))

	wantData(t, ok(t, e, popOf("pq", "mail"), nil, `{"ack_wait":"1h"}`), value)
}

// A get of a job whose past leaves no room says the rest of what there is to say.
func TestPastThatLeavesNoRoom(t *testing.T) {
	const most = 16 << 10
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = most }})
	ok(t, e, "pq.jobs.config", nil, `{"trail":8,"keep":"1h","next":["mail"]}`)
	var ack struct{ ID string }
	m := ok(t, e, "pq.jobs.push", nil, strings.Repeat("v", most-1000))
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		t.Fatal(err)
	}
	nak := fmt.Sprintf(`-NAK {"reason":%q}`, strings.Repeat("r", 500))
	ok(t, e, ok(t, e, popOf("pq", "jobs"), nil, `{"ack_wait":"1h"}`).Reply, nil, nak)
	h := getJob(t, e, "jobs", ack.ID)
	same(t, "attempts", len(h[subjects.HeaderTrail]), 0)
	same(t, "says so", fmt.Sprint(h[subjects.HeaderTrailCut]), "[true]")

	lease := ok(t, e, popOf("pq", "jobs"), nil, `{"ack_wait":"1h"}`)
	var next []subjects.Frame
	for range 70 {
		next = append(next, pushesTo("mail", 0, "", "x"))
	}
	ok(t, e, lease.Reply, framed("+ACK", len(next)), frames(next...))

	h = getJob(t, e, "jobs", ack.ID)
	same(t, "state", fmt.Sprint(h[subjects.HeaderState]), "[done]")
	same(t, "successors", len(h[subjects.HeaderNext]), 0)
	same(t, "says so", fmt.Sprint(h[subjects.HeaderTrailCut]), "[true]")
}
