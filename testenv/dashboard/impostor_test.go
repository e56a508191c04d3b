package dashboard

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// impostor answers what the dashboard asks in place of a bridge, as any user can who may subscribe
// to pq.>.
func impostor(t *testing.T, env *testenv.Env, attack string) {
	t.Helper()
	nc := env.Connect()
	answer := func(subject string, reply func(m *nats.Msg) *nats.Msg) {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if r := reply(m); r != nil {
				_ = m.RespondMsg(r) // fails only when the test ends
			}
		})
		must(t, err)
	}

	object := func(v any) *nats.Msg {
		text, _ := json.Marshal(v) // never returns an error for these types
		return &nats.Msg{Data: text}
	}

	queues := []map[string]any{}
	for _, name := range []string{
		attack, "../../" + attack, "\u202e" + attack, strings.Repeat(attack, 1000), "", "jobs",
	} {
		queues = append(queues,
			map[string]any{"queue": name, "ready": -1, "leased": 1 << 62, "delayed": 0})
	}

	for _, kind := range []string{"pq", "q"} {
		answer(kind+".list", func(*nats.Msg) *nats.Msg {
			return object(map[string]any{"queues": queues, "next": nil})
		})
		for _, verb := range []string{
			"info", "items", "get", "rank", "config", "push", "purge", "remove",
		} {
			answer(kind+".*."+verb, func(m *nats.Msg) *nats.Msg {
				if verb == "items" {
					item := map[string]any{
						"id":         attack,
						"state":      attack,
						"reason":     attack,
						"size":       -5,
						"deliveries": -1,
						"value":      []byte(attack),
						"headers": nats.Header{
							attack:           {attack},
							"Pq-Dead-Queue":  {attack},
							"Pq-Dead-Reason": {attack},
						},
						"due":       "0001-01-01T00:00:00Z",
						"pushed_at": "9999-12-31T23:59:59Z",
					}
					return object(
						map[string]any{"items": []any{item, item}, "next": attack, "scanned": -1})
				}
				return &nats.Msg{Header: nats.Header{
					"Nats-Service-Error": {attack}, "Nats-Service-Error-Code": {"400"},
				}}
			})
		}
	}

	answer("$SRV.STATS.pqbridge", func(*nats.Msg) *nats.Msg {
		return object(map[string]any{
			"type":    "io.nats.micro.v1.stats_response",
			"name":    "pqbridge",
			"id":      attack,
			"version": attack,
			"started": "2026-01-01T00:00:00Z",
			"endpoints": []any{
				nil,
				map[string]any{
					"subject":      "pq.*.push",
					"name":         attack,
					"num_requests": -5,
					"last_error":   attack,
					"num_errors":   3,
				},
			},
			"bridge": map[string]any{
				"ready":   false,
				"why":     attack,
				"store":   attack,
				"waiters": -1,
				"queues": []any{map[string]any{
					"kind":  attack,
					"queue": attack,
					"in":    -5,
					"out":   1 << 62,
				}},
			},
		})
	})
	must(t, nc.Flush())
}

// What answers in place of a bridge may say anything, and never runs anything.
func TestImpostor(t *testing.T) {
	t.Parallel()
	for _, attack := range []string{attacks[1], attacks[2], attacks[11]} {
		env := testenv.New(t, testenv.Options{Stopped: true})
		env.NATS.Start()
		impostor(t, env, attack)
		d := startDashboard(t, "--server", env.NATS.URL())

		b := newTab(t, d.url)
		b.expect("status of ")

		for _, path := range []string{
			"/", "/bridges", "/dead", "/queue/pq/jobs", "/queue/pq/jobs/items",
			"/queue/pq/jobs-dead/items", "/queue/pq/jobs/item/x",
			"/queue/pq/jobs/item/" + url.PathEscape(attack), "/queue/pq/" + url.PathEscape(attack),
		} {
			b.open(path)
			b.has(1, "main")
			b.unharmed()
		}

		b.open("/queue/pq/jobs/items")
		b.search("x", "")
		b.has(1, "#items")
		b.unharmed()
	}
}
