package bridge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/testenv"
)

// setSchedule sends a change of a schedule, and returns the record of the reply.
func setSchedule(t *testing.T, e *testenv.Env, queue, payload string) schedule.Record {
	t.Helper()
	return parsed[schedule.Record](t, e, queue+".schedule", payload)
}

// listSchedules returns the first page of the schedules of a queue.
func listSchedules(t *testing.T, e *testenv.Env, queue string) []*schedule.Record {
	t.Helper()
	return parsed[subjects.ScheduleList](t, e, queue+".schedules", "").Schedules
}

// A schedule can be set, paused, run at once, listed and removed, and pushes items when its time is
// there.
func TestSchedule(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			priority := ""
			if kind.queue == "pq.jobs" {
				priority = `"priority":5,`
			}

			set := setSchedule(t, e, kind.queue,
				`{"id":"nightly","cron":"0 3 * * *","zone":"Europe/Berlin",`+priority+
					`"value":"aGk=","headers":{"A":["b"],"Pq-Group":["g"],"Pq-Keep":["90m"]}}`)
			if left := set.Next.Sub(clock.now()); left <= 0 || left > 26*time.Hour {
				t.Errorf("next %v", set.Next)
			}

			paused := setSchedule(t, e, kind.queue, `{"id":"nightly","paused":true}`)
			same(t, "paused", paused.Next.IsZero(), true)

			ran := setSchedule(t, e, kind.queue, `{"id":"nightly","run":true}`)
			same(t, "run", fmt.Sprint(ran.Fired, ran.Last.IsZero(), ran.Next.IsZero()),
				"1 false true")

			m := ok(t, e, kind.pop, nil, "")
			same(t, "item", fmt.Sprint(string(m.Data), m.Header["A"], m.Header["Pq-Group"],
				m.Header["Pq-Schedule"], m.Header["Pq-Keep"]), "hi[b] [g] [nightly] [1h30m0s]")

			if _, err := time.Parse(time.RFC3339, m.Header.Get("Pq-Scheduled-At")); err != nil {
				t.Error(err)
			}

			if kind.queue == "pq.jobs" {
				same(t, "priority", m.Header.Get("Pq-Priority"), "5")
			}

			list := listSchedules(t, e, kind.queue)
			same(t, "list", fmt.Sprint(len(list), list[0].ID, list[0].Paused, list[0].Next.IsZero(),
				list[0].Fired), "1nightlytrue true 1")

			// It comes when its time is there.
			setSchedule(t, e, kind.queue,
				`{"id":"often","every":"1m","overlap":"skip","if_missed":"skip"}`)
			clock.step(time.Minute)
			same(t, "due", ok(t, e, kind.pop, nil, "").Header.Get("Pq-Schedule"), "often")

			wantAnswer(t, e, kind.queue+".unschedule", `{"id":"often"}`,
				`{"queue":"jobs","id":"often"}`)
			refused(t, e, 404, kind.queue+".unschedule", nil, []byte(`{"id":"often"}`))
			refused(t, e, 404, kind.queue+".schedule", nil, []byte(`{"id":"often","run":true}`))

			err := refused(t, e, 404, kind.queue+".schedule", nil,
				[]byte(`{"id":"often","paused":true}`))
			const words = `"often": want the id of one that pq schedule ls lists`
			if !strings.Contains(err.Text, words) {
				t.Error(err)
			}
			same(t, "left", len(listSchedules(t, e, kind.queue)), 1)

			resumed := setSchedule(t, e, kind.queue, `{"id":"nightly","paused":false}`)
			same(t, "resumed", resumed.Next.IsZero(), false)
		}
	}, clock.options)
}

// The error of a bad request about schedules names the mistake, and no schedule changes.
func TestScheduleBadInput(t *testing.T) {
	e := start(t, testenv.Options{})
	good := setSchedule(t, e, "pq.jobs", `{"id":"a","cron":"@daily"}`)

	const daily = `{"id":"a","cron":"@daily",`
	for _, test := range []struct{ payload, words string }{
		{``, `it is empty: want a JSON object with members of id, cron,`},
		{`{"id":"a","run":1}`, "run: 1: want true or false"},
		{`{"id":"a","run":true,"cron":"@daily"}`, "run: want nothing else beside the id"},
		{`{"id":"a"}`, "want cron or every to set one"},
		{`{"id":"a","cron":"@dayly"}`, `want five fields such as "0 3 * * *"`},
		{`{"id":"a","every":"10s","until":"2026-01-01T00:00:00Z","paused":true}`, "until: "},
		{
			daily + `"until":"2026-01-01T00:00:00Z"}`,
			"until: 2026-01-01T00:00:00Z: the schedule has no time before that: want a later one",
		},
		{
			daily + `"headers":{"Pq-Delay":["1s"]}}`,
			`headers: "Pq-Delay": of the headers about the push itself, ` +
				"a schedule takes only Pq-Group and Pq-Keep",
		},
		{daily + `"headers":{"Nats-Msg-Id":["1"]}}`, "a schedule takes only Pq-Group"},
		{daily + `"headers":{"nats-schedule":["1"]}}`, "a schedule takes only Pq-Group"},
		{daily + `"headers":{"Pq-Group":["a","b"]}}`, "headers: "},
		{daily + `"headers":{"Pq-Keep":["soon"]}}`, `headers: header Pq-Keep: bad time: "soon"`},
		{daily + `"headers":{"Pq-Keep":["1h","2h"]}}`, "header Pq-Keep given twice"},
		{daily + `"headers":{"Nats-Rollup":["all"]}}`, "headers: "},
		{daily + `"headers":{"A":["b\r\nC: d"]}}`, "values of one line"},
		{daily + `"headers":{"A b":["c"]}}`, "want a name of letters"},
		{daily + `"headers":{"Status":["409"]}}`, "header Status without a value"},
		{daily + `"headers":{"Nats-Trace-Hop":["1"]}}`, "it is not stored"},
	} {
		err := refused(t, e, 400, "pq.jobs.schedule", nil, []byte(test.payload))
		if !strings.Contains(err.Text, test.words) {
			t.Errorf("%s: %v: want %q", test.payload, err, test.words)
		}
	}

	for payload, words := range map[string]string{
		``:             `it is empty: want a JSON object with members of id`,
		`{}x`:          "something comes after the object",
		`[]`:           "[]: want a JSON object with members of id",
		`{"id":1}`:     `id: 1: want a string in quotes`,
		`{"name":"a"}`: `unknown member "name": want a JSON object with members of id`,
	} {
		err := refused(t, e, 400, "pq.jobs.unschedule", nil, []byte(payload))
		if !strings.Contains(err.Text, words) {
			t.Errorf("%s: %v: want %q", payload, err, words)
		}
	}
	err := refused(t, e, 400, "q.jobs.schedule", nil,
		[]byte(`{"id":"a","cron":"@daily","priority":5}`))
	if !strings.Contains(err.Text, "priority: 5: a FIFO queue has none") {
		t.Error(err)
	}

	refused(t, e, 400, "pq.jobs.schedules", nil, []byte(`{"before":"a"}`))
	refused(t, e, 400, "pq.jobs.schedule", nats.Header{"Pq-Priority": {"1"}},
		[]byte(`{"id":"a","cron":"@daily"}`))

	list := listSchedules(t, e, "pq.jobs")
	if len(list) != 1 || string(list[0].Encode()) != string(good.Encode()) {
		t.Errorf("changed: %+v", list)
	}

	err = refused(t, e, 400, "pq.jobs.push", nats.Header{"Nats-Schedule": {"@every 5m"}},
		[]byte("x"))
	if !errors.Is(err, subjects.ErrTiming) ||
		!strings.Contains(err.Text, "use the verb schedule") {
		t.Error(err)
	}
}

// A list of schedules comes in pages, as large as a message or a limit allows, and does not go
// through the lanes.
func TestSchedulePages(t *testing.T) {
	e := start(t, testenv.Options{})
	value, err := json.Marshal(make([]byte, 30_000))
	must(t, err)

	for i := range 40 {
		setSchedule(t, e, "pq.jobs",
			fmt.Sprintf(`{"id":"%02d","cron":"@daily","value":%s}`, i, value))
	}

	batches := e.Bridge.Batches()
	for payload, want := range map[string]string{
		"":                         "26 00 25",
		`{"after":"25"}`:           "14 26 ",
		`{"after":"25","limit":2}`: "2 26 27",
		`{"after":"x"}`:            "0",
	} {
		list := parsed[subjects.ScheduleList](t, e, "pq.jobs.schedules", payload)
		got := fmt.Sprint(len(list.Schedules))

		if len(list.Schedules) > 0 {
			next := ""
			if list.Next != nil {
				next = *list.Next
			}

			got += " " + list.Schedules[0].ID + " " + next
			same(t, "value", len(list.Schedules[0].Value), 30_000)
		}
		same(t, payload, got, want)
	}
	refused(t, e, 404, "pq.jobs.rank", nil, []byte(itemOf(fdbpq.ID{}.String(), "")))
	same(t, "batches", e.Bridge.Batches(), batches)
	refused(t, e, 400, "pq.jobs.schedule", nil,
		fmt.Appendf(nil, `{"id":"x","cron":"@daily","value":%q}`, strings.Repeat("aaaa", 11_000)))
}
