package bridge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// limitedQueues returns a system with a queue for each reason why a request is refused.
func limitedQueues(t *testing.T) *testenv.Env {
	t.Helper()
	e := start(t, testenv.Options{})
	for queue, settings := range map[string]string{
		"paused":  `{"pause_until":"2099-01-02T03:04:05Z"}`,
		"groups":  `{"max_leased_per_group":1}`,
		"full":    `{"max_items":1}`,
		"limited": `{"max_leased":1}`,
		"rated":   `{"rate":"1/24h"}`,
	} {
		ok(t, e, "pq."+queue+".config", nil, settings)
		push(t, e, "pq."+queue+".push", ofGroup("acme"), "first")
	}

	for _, queue := range []string{"groups", "limited", "rated"} {
		push(t, e, "pq."+queue+".push", ofGroup("acme"), "second")
	}

	push(t, e, "pq.plain.push", nil, "item")
	return e
}

// A program tells apart what one code means by the word in Pq-Reason, without reading English.
func TestReasons(t *testing.T) {
	e := limitedQueues(t)
	const lease = `{"ack_wait":"1h"}`
	ofGroups := ok(t, e, "pq.groups.pop.min", nil, lease).Reply
	limited := ok(t, e, "pq.limited.pop.min", nil, lease).Reply
	rated := ok(t, e, "pq.rated.pop.min", nil, lease).Reply
	held := `{"id":"` + push(t, e, "pq.jobs.push", nil, "held").ID + `"}`
	token := ok(t, e, "pq.jobs.pop.min", nil, lease).Reply
	free := `{"id":"` + push(t, e, "pq.other.push", nil, "free").ID + `"}`

	for _, test := range []struct {
		subject, payload string
		code             int
		reason           subjects.Reason
	}{
		{"pq.nothing.pop.min", ``, 404, "empty"},
		{"pq.nothing.peek.max", ``, 404, "empty"},
		{"pq.nothing.pop.min", `{"batch":5}`, 404, "empty"},
		{"pq.paused.pop.min", ``, 404, "paused"},
		{"pq.groups.pop.min", ``, 404, "groups"},
		{"pq.limited.pop.min", `{"ack_wait":"1h","expires":"1ms"}`, 404, "limit"},
		{"pq.rated.pop.min", `{"expires":"1ms"}`, 404, "rate"},
		{"pq.nothing.get", held, 404, "missing"},
		{"pq.nothing.unschedule", `{"id":"none"}`, 404, "missing"},

		{strings.Replace(token, "jobs", "other", 1), "+ACK", 409, "lost"},
		{"pq.jobs.move", strings.Replace(held, "}", `,"priority":5}`, 1), 409, "leased"},
		{"pq.other.release", free, 409, "not_leased"},

		{"pq.plain.pop.min", `{"max_bytes":1}`, 413, "max_bytes"},
		{"pq.plain.pop.min", strings.Repeat(" ", 5000), 413, "size"},

		{"pq.full.push", "second", 429, "full"},
		{"pq.limited.pop.min", lease, 429, "limit"},
		{"pq.rated.pop.min", ``, 429, "rate"},

		// After these acknowledgements, which count.
		{limited, `+NXT {"max_bytes":1}`, 413, "max_bytes"},
		{rated, "+NXT", 404, "rate"},
		{ofGroups, "+NXT", 0, ""},

		{"pq.plain.pop.min", "no JSON", 400, ""},
	} {
		m := e.Request(test.subject, nil, []byte(test.payload))

		told := subjects.ErrorFromHeaders(m.Header)
		if told == nil {
			told = &subjects.Error{}
		}
		if int(told.Code) != test.code || told.Reason != test.reason {
			t.Errorf("%s %.80s: got %d %q, %s: want %d %q", test.subject, test.payload,
				told.Code, told.Reason, told.Text, test.code, test.reason)
		}
	}
}

// A pop that finds too many others waiting is told that the service is busy, not the queue full.
func TestReasonBusy(t *testing.T) {
	e := start(t, testenv.Options{
		Bridge: func(o *bridge.Options) { o.MaxWaiters = 1 },
	})
	ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"1h"}`)
	waitForWaiters(t, e.Bridge, "jobs", 1)

	err := refused(t, e, 429, "pq.jobs.pop.min", nil, []byte(`{"expires":"1h"}`))

	same(t, "reason", err.Reason, subjects.ReasonBusy)
}

// Each of several items that a request names has its reason beside its code.
func TestReasonsOfSeveralItems(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	id := ok(t, e, "pq.jobs.peek.min", nil, "").Header.Get(subjects.HeaderID)

	m := ok(t, e, "pq.jobs.redrive", nil, fmt.Sprintf(`{"ids":[%q]}`, id))

	var reply subjects.ItemResults
	must(t, json.Unmarshal(m.Data, &reply))
	same(t, "reason", reply.Results[0].Reason, subjects.ReasonNotDead)

	if want := `"code":409,"error_reason":"not_dead"`; !strings.Contains(string(m.Data), want) {
		t.Errorf("the reply is %s: want %s", m.Data, want)
	}
}
