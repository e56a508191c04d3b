package discovery

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// The traffic of a queue adds up all bridges, since nothing of any of them is missing. If one of
// them does not know it, nor does the sum.
func TestTrafficAddsUpBridges(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	env.Bridge.Stop()
	_, err := Traffic(t.Context(), env.Conn, env.Grammar, subjects.Priority, "jobs")
	if !errors.Is(err, client.ErrNoBridge) {
		t.Errorf("%v, want no bridge", err)
	}

	ours := []map[string]string{nil, {"subject": "pq.*.push"}}
	// The first has just started, so it does not know the others.
	answers := [][]byte{
		[]byte(`{"endpoints":[{"subject":"q.*.push"}],"bridge":{"ready":false,"bridges":1,` +
			`"queues":[{"kind":"pq","queue":"jobs"}]}}`),
	}

	for n := range 2 {
		q := subjects.QueueTraffic{Kind: "pq", Queue: "jobs", Waiters: 1 + n}
		q.Since = time.Date(2026, 3, 1, 12, n, 0, 0, time.UTC)
		q.Hour = subjects.Traffic{In: 10, Failed: 1}
		q.Day = subjects.Traffic{In: 100, Out: 20, Dead: int64(n)}
		stats := subjects.BridgeStats{Ready: true, Bridges: 2, Queues: []subjects.QueueTraffic{q}}
		text, err := json.Marshal(map[string]any{"bridge": stats, "endpoints": ours})
		if err != nil {
			t.Fatal(err)
		}

		answers = append(answers, text)
	}

	answerAll := func(m *nats.Msg) {
		asked := string(subjects.StatsOfQueue(subjects.Priority, "jobs"))
		if string(m.Data) != asked {
			t.Errorf("asked with %s, want %s", m.Data, asked)
		}

		for _, text := range answers {
			if err := m.Respond(text); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := env.Conn.Subscribe("$SRV.STATS.pqbridge", answerAll); err != nil {
		t.Fatal(err)
	}

	got, err := Traffic(t.Context(), env.Conn, env.Grammar, subjects.Priority, "jobs")
	want := subjects.QueueTraffic{Waiters: 3, Since: time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC)}
	want.Hour = subjects.Traffic{In: 20, Failed: 2}
	want.Day = subjects.Traffic{In: 200, Out: 40, Dead: 1}

	if got != want || err != nil {
		t.Errorf("%+v, %v: want %+v", got, err, want)
	}

	for _, other := range []string{`"bridge":{"bridges":2,"queues":[]}`, `"name":"pqbridge"`} {
		answers[1] = []byte(`{"endpoints":[{"subject":"pq.*.push"}],` + other + "}")
		_, err := Traffic(t.Context(), env.Conn, env.Grammar, subjects.Priority, "jobs")
		if !errors.Is(err, ErrUncounted) {
			t.Errorf("%s: %v, want %v", other, err, ErrUncounted)
		}
	}
}

// A service with other prefixes on the same NATS server, or something else than a bridge, changes
// nothing. If only they answer, the error says so.
func TestOtherServicesDoNotCount(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	env.Bridge.Stop()

	others := []string{
		`{"endpoints":[{"subject":"b.*.push"},{"subject":"pq.b.*.push"}],"bridge":{"ready":true,` +
			`"bridges":1,"queues":[{"kind":"pq","queue":"jobs","waiters":5,"hour":{"in":50}}]}}`,
		`{"id":"old","endpoints":[{"subject":"b.*.push"}]}`, `{"endpoints":[null]}`,
		`{"name":"pqbridge"}`, "x",
	}

	ours := `{"id":"ours","endpoints":[null,{"subject":"pq.*.push"}],"bridge":{"ready":true,` +
		`"bridges":1,"queues":[{"kind":"pq","queue":"jobs","waiters":1,"hour":{"in":1}}]}}`

	answers := others
	answerAll := func(m *nats.Msg) {
		for _, text := range answers {
			if text == ours { // a busy bridge
				<-time.After(2 * moreAnswers)
			}
			if err := m.Respond([]byte(text)); err != nil {
				t.Error(err)
			}
		}
	}

	for _, verb := range []string{"STATS", "INFO"} {
		if _, err := env.Conn.Subscribe("$SRV."+verb+".pqbridge", answerAll); err != nil {
			t.Fatal(err)
		}
	}

	_, err := Traffic(t.Context(), env.Conn, env.Grammar, subjects.Priority, "jobs")
	if !errors.Is(err, ErrOthers) {
		t.Errorf("traffic: %v, want %v", err, ErrOthers)
	}

	if all, err := Bridges(t.Context(), env.Conn, env.Grammar); !errors.Is(err, ErrOthers) ||
		len(all) > 0 {
		t.Errorf("bridges: %+v, %v, want %v", all, err, ErrOthers)
	}

	answers = append(others, ours)

	got, err := Traffic(t.Context(), env.Conn, env.Grammar, subjects.Priority, "jobs")
	if err != nil || got.Waiters != 1 || got.Hour.In != 1 {
		t.Errorf("traffic: %+v, %v: want 1 pop, 1 item", got, err)
	}

	all, err := Bridges(t.Context(), env.Conn, env.Grammar)
	if err != nil || len(all) != 1 || all[0].ID != "ours" {
		t.Errorf("bridges: %+v, %v: want ours", all, err)
	}
}
