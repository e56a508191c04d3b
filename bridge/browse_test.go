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
	"github.com/pqbridge/pqbridge/testenv"
)

// idsOf is the payload of a request for several items.
func idsOf(more string, ids ...string) string {
	list, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"ids":%s%s}`, list, more)
}

// placesOf is idsOf for places.
func placesOf(more string, places ...string) string {
	return strings.Replace(idsOf(more, places...), "ids", "places", 1)
}

// results makes a request for several items, and returns the result of each.
func results(t *testing.T, e *testenv.Env, subject, payload string) []subjects.ItemResult {
	t.Helper()
	reply := parsed[subjects.ItemResults](t, e, subject, payload)
	if reply.Queue == "" {
		t.Errorf("%s: no queue", subject)
	}

	return reply.Results
}

// wantResults compares codes and texts, and that the ids are those asked for.
func wantResults(
	t *testing.T, what string, got []subjects.ItemResult, ids []string, want ...string,
) {
	t.Helper()
	if len(got) != len(ids) || len(got) != len(want) {
		t.Fatalf("%s: %+v: want %d results", what, got, len(want))
	}

	for i, r := range got {
		text := strings.TrimSpace(fmt.Sprintf("%d %s", r.Code,
			strings.TrimSuffix(r.Text, ": "+ids[i])))
		if r.ID != ids[i] || text != want[i] {
			t.Errorf("%s: result %d is %+v: want %s", what, i, r, want[i])
		}
	}
}

// Each of several ids has a result of its own, with the code and the text of a request for it
// alone.
func TestManyByID(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			var ids []string
			for i := range 5 {
				pushed := push(t, e, kind.push, nats.Header{"Name": {"value"}}, fmt.Sprint(i))
				ids = append(ids, pushed.ID)
			}

			held := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "0")
			acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "1"), "-NAK 1h")
			gone := e.Request(kind.pop, nil, nil).Header.Get("Pq-Id") // 2
			other := push(t, e, strings.Replace(kind.push, "jobs", "other", 1), nil, "").ID

			page := parsed[subjects.ItemsPage](t, e, kind.queue+".get",
				idsOf("", ids[3], gone, ids[0], other, ids[1]))

			for i, want := range []string{
				"ready 3 0", " 404", "leased 0 1", " 404", "delayed 1 1",
			} {
				item := page.Items[i]
				got := fmt.Sprintf("%s %s %d", item.State, item.Value, item.Deliveries)

				if item.Code != 0 {
					got = fmt.Sprintf(" %d", item.Code)
				}
				if got != want || item.Code == 0 && item.Headers["Name"][0] != "value" {
					t.Errorf("get: element %d is %+v: want %s", i, item, want)
				}
			}

			all := []string{ids[0], ids[3], gone, other}
			wantResults(t, "release", results(t, e, kind.queue+".release", idsOf("", all...)), all,
				"0", "409 the item is not leased", "404 no such item", "404 no such item")
			wantError(t, 409, "ack", e.Request(held, nil, nil))

			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			if string(m.Data) != "0" || m.Header.Get("Pq-Deliveries") != "1" {
				t.Errorf("released: %q with %v", m.Data, m.Header)
			}

			if kind.queue == "pq.jobs" {
				moved := results(t, e, "pq.jobs.move",
					idsOf(`,"priority":9`, ids[4], ids[0], ids[3]))
				wantResults(t, "move", moved, []string{ids[4], ids[0], ids[3]}, "0",
					"409 the item is leased", "0")

				wantAnswer(t, e, "pq.jobs.rank", at(moved[0].Place, ""),
					`{"rank":0,"at_least":false}`)
				wantAnswer(t, e, "pq.jobs.rank", itemOf(ids[3], ""),
					`{"rank":1,"at_least":false}`)
			}

			all = []string{ids[0], ids[4], gone, ids[3], ids[1]}
			wantResults(t, "remove", results(t, e, kind.queue+".remove", idsOf("", all...)), all,
				"0", "0", "404 no such item", "0", "0")
			wantError(t, 409, "ack", e.Request(m.Reply, nil, nil))
			wantLen(t, e, strings.TrimSuffix(kind.queue, ".jobs"), "jobs", 0)
		}
		wantMetric(t, e.Bridge, `pq_request_items_count{operation="remove"}`, 1)
		wantMetric(t, e.Bridge, `pq_request_items_sum{operation="remove"}`, 5)
		checkStore(t, e)
	})
}

// Dead letters can be sent home one by one.
func TestRedriveByID(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			dead := kind.queue + "-dead"
			for range 3 {
				push(t, e, kind.push, nats.Header{"Nats-Msg-Id": {nats.NewInbox()}}, "x")
				ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "x")
				acknowledge(t, e, ack, "+TERM no such user")
			}

			plain := push(t, e, strings.Replace(kind.push, "jobs", "jobs-dead", 1), nil, "").ID
			page := parsed[subjects.ItemsPage](t, e, dead+".items", "")

			var ids []string
			for _, item := range page.Items[:3] {
				ids = append(ids, item.ID)
				if item.Reason != "no such user" || item.Headers["Pq-Dead-Queue"][0] != "jobs" ||
					item.Headers["Nats-Msg-Id"] != nil {
					t.Errorf("dead letter %+v", item)
				}
			}

			e.Request(kind.dead, nil, []byte(`{"ack_wait":"1h"}`)) // leases the first
			all := []string{ids[0], ids[2], plain}

			got := results(t, e, dead+".redrive", idsOf("", all...))
			wantResults(t, "redrive", got, all, "409 the item is leased", "0",
				"409 the item is not a dead letter")
			same(t, "home", got[1].Home, "jobs")

			m := ok(t, e, kind.queue+".get", nil, at(got[1].Place, ""))
			if string(m.Data) != "x" || m.Header.Get("Nats-Msg-Id") != "" {
				t.Errorf("redriven: %q with %v", m.Data, m.Header)
			}

			wantAnswer(t, e, dead+".release", itemOf(ids[0], ""),
				fmt.Sprintf(`{"queue":"jobs-dead","id":%q}`, ids[0]))
			err := refused(t, e, 409, dead+".release", nil, []byte(itemOf(ids[0], "")))
			if !errors.Is(err, fdbpq.ErrNotLeased) {
				t.Error(err)
			}

			wantAnswer(t, e, dead+".redrive", "", `{"redriven":2}`)
		}
		checkStore(t, e)
	})
}

// page makes an items request.
func page(t *testing.T, e *testenv.Env, queue, payload string) subjects.ItemsPage {
	t.Helper()
	return parsed[subjects.ItemsPage](t, e, queue+".items", payload)
}

// values lists the values of a page, each followed by its state and due time unless it is ready.
func values(p subjects.ItemsPage) string {
	var list []string
	for _, item := range p.Items {
		text := string(item.Value)
		if item.State != subjects.StateReady || item.Due != nil {
			text += fmt.Sprintf(" %s %v", item.State, item.Due != nil)
		}

		list = append(list, text)
	}

	return strings.Join(list, ", ")
}

// The items of a queue can be browsed page by page: in a state, with a text or headers, cut, and
// from either end.
func TestItems(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})

		for _, kind := range kinds {
			wantAnswer(t, e, kind.queue+".items", "", `{"items":[],"next":null,"scanned":0}`)

			var ids []string
			for _, value := range []string{"one", "two", "three", "four", "five"} {
				headers := nats.Header{
					"X-Tenant":    {"acme"},
					"Tag":         {value, "all"},
					"Nats-Msg-Id": {value + kind.queue},
					"Nats-TTL":    {"9h"},
				}
				ids = append(ids, push(t, e, kind.push, headers, value).ID)
			}

			e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, `-NAK {"delay":"1m","reason":"disk full"}`)

			const all = "one leased true, two delayed true, three, four, five"
			same(t, "all", values(page(t, e, kind.queue, "")), all)

			two := page(t, e, kind.queue, `{"state":"delayed"}`).Items[0]
			if two.ID != ids[1] || two.Priority != 0 || two.PushedAt == nil ||
				!two.Due.Equal(clock.now().Add(time.Minute)) || two.Expires == nil ||
				two.Deliveries != 1 || two.Reason != "disk full" || two.Size != 3 || two.ValueCut ||
				two.HeadersCut || len(two.Headers) != 4 || two.Headers["Tag"][1] != "all" ||
				two.Headers["Nats-Msg-Id"][0] != "two"+kind.queue ||
				two.Headers["Nats-TTL"][0] != "9h" {
				t.Errorf("delayed: %+v", two)
			}

			for payload, want := range map[string]string{
				`{"state":"ready"}`:  "three, four, five",
				`{"state":"leased"}`: "one leased true",
				`{"limit":2}`:        "one leased true, two delayed true",

				`{"match":"three"}`:          "three",
				`{"match":"Tag: t"}`:         "two delayed true, three",
				`{"match":"` + ids[3] + `"}`: "four",
				`{"match":"acme","limit":1}`: "one leased true",
				`{"match":": Acme"}`:         "",

				`{"headers":{"Tag":"two"}}`:       "two delayed true",
				`{"headers":{"x-tenant":"acme"}}`: "",
				`{"headers":{"X-Tenant":"acm"}}`:  "",

				`{"headers":{"X-Tenant":"acme","Tag":"all"},"match":"Tag: f"}`: "four, five",

				`{"after":"` + ids[2] + `"}`: "four, five",
				`{"after":"` + ids[4] + `"}`: "",

				`{"value_bytes":0,"limit":1}`:       " leased true",
				`{"value_bytes":2,"state":"ready"}`: "th, fo, fi",
				`{"end":"min","limit":1}`:           "one leased true",
			} {
				same(t, payload, values(page(t, e, kind.queue, payload)), want)
			}

			cut := page(t, e, kind.queue, `{"value_bytes":3}`).Items
			same(t, "a value that fits is cut", cut[0].ValueCut || !cut[2].ValueCut, false)

			// Page by page, behind an item that has gone meanwhile.
			first := page(t, e, kind.queue, `{"limit":3}`)
			ok(t, e, kind.queue+".remove", nil, itemOf(*first.Next, ""))
			second := page(t, e, kind.queue, fmt.Sprintf(`{"limit":3,"after":%q}`, *first.Next))
			same(t, "the second page", values(second), "four, five")

			// Due items are ready, and expired ones are gone. The len sweeps the queue, because a
			// page would not wait for long.
			clock.step(2 * time.Minute)
			ok(t, e, kind.queue+".len", nil, "")
			same(t, "due", values(page(t, e, kind.queue, "")), "one leased true, two, four, five")

			clock.step(10 * time.Hour)
			ok(t, e, kind.queue+".len", nil, "")
			if last := page(t, e, kind.queue, ""); len(last.Items) != 0 || last.Next != nil {
				t.Errorf("after all have expired: %+v", last)
			}
		}

		push(t, e, "pq.jobs.push.2", nil, "last")
		push(t, e, "pq.jobs.push.-2", nil, "first")
		same(t, "from max", values(page(t, e, "pq.jobs", `{"end":"max"}`)), "last, first")

		writeForeign(t, e.DB, "jobs", 7, "foreign")
		item := page(t, e, "pq.jobs", `{"end":"max","limit":1}`).Items[0]
		if string(item.Value) != "foreign" || item.PushedAt != nil || item.Priority != 7 {
			t.Errorf("foreign: %+v", item)
		}
		wantMetric(t, e.Bridge, `pq_requests_total{operation="fifo-items"}`, 25)
	})
}
