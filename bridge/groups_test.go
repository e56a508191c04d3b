package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

func ofGroup(name string) nats.Header { return nats.Header{subjects.HeaderGroup: {name}} }

// A group comes back with its item, wherever the item shows. A weight does not.
func TestGroupComesBack(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		weighted := ofGroup("acme inc")
		weighted[subjects.HeaderWeight] = []string{"3"}
		id := push(t, e, kind.push, weighted, "a")
		ok(t, e, kind.push+".batch", nil,
			frames(frame(0, "Pq-Group: b\r\nPq-Weight: 2\r\n", "b"), frame(0, "", "none")))

		items := string(ok(t, e, kind.queue+".items", nil, "").Data)
		if !strings.Contains(items, `"headers":{"Pq-Group":["acme inc"]}`) ||
			strings.Contains(items, "Weight") {
			t.Errorf("items: %s", items)
		}

		shows := func(what string, m *nats.Msg, group string) {
			t.Helper()
			if m.Header.Get("Pq-Group") != group || m.Header.Get("Pq-Weight") != "" {
				t.Errorf("%s: headers %v, want the group %q", what, m.Header, group)
			}
		}

		shows("get", ok(t, e, kind.queue+".get", nil, fmt.Sprintf(`{"id":%q}`, id.ID)), "acme inc")
		shows("peek", ok(t, e, kind.peek, nil, ""), "acme inc")
		shows("lease", ok(t, e, kind.pop, nil, `{"ack_wait":"1h"}`), "acme inc")
		shows("pop", ok(t, e, kind.pop, nil, ""), "b")
		shows("no group", ok(t, e, kind.pop, nil, ""), "")
	}
}

// A group that has pushed very much does not keep the others waiting, and info says how much each
// has.
func TestGroupsTakeTurns(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		for _, item := range []string{"a1", "a2", "a3", "a4", "b1", "b2"} {
			push(t, e, kind.push, ofGroup(item[:1]), item)
		}

		info, err := subjects.ParseQueueInfo(ok(t, e, kind.queue+".info", nil, "").Data)
		want := fmt.Sprint(map[string]subjects.GroupCount{
			"a": {Ready: 4},
			"b": {Ready: 2},
		})
		if err != nil || fmt.Sprint(info.Groups) != want {
			t.Errorf("%+v, %v: want %v", info, err, want)
		}

		wantPopped(t, e, kind.pop, "a1", "b1", "a2", "b2", "a3", "a4")
	}

	push(t, e, "pq.odd.push", ofGroup("a\x00"), "x")
	info := string(ok(t, e, "pq.odd.info", nil, "").Data)
	if want := `"groups":{"a\u0000":{"ready":1,"leased":0}}`; !strings.Contains(info, want) {
		t.Errorf("%s: want %s", info, want)
	}
}

// Names and texts that are not UTF-8 are refused with a text that says where, so that none turns
// into another. Message ids and unique keys are bytes.
func TestNamesInUTF8(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, c := range []struct{ verb, payload, want string }{
		{"config", "{\"paused_groups\":[\"M\xfcller\"]}", "paused_groups: element 0: not UTF-8"},
		{"config", "{\"paused_groups\":{\"M\xfcller\":true}}", "not UTF-8"},
		{"items", "{\"match\":\"M\xfcller\"}", "match: not UTF-8"},
		{"items", "{\"headers\":{\"Pq-Group\":\"M\xfcller\"}}", "headers: Pq-Group: not UTF-8"},
		{"items", `{"match":"\ud800"}`, "match: not UTF-8"},
		{"pop.min", "{\"holder\":\"M\xfcller\"}", "holder: not UTF-8"},
		{"schedule", "{\"id\":\"M\xfcller\",\"every\":\"1h\"}", "id: not UTF-8"},
		{
			"schedule", "{\"id\":\"a\",\"every\":\"1h\",\"headers\":{\"A\":[\"\xff\"]}}",
			"headers: A: element 0: not UTF-8",
		},
		{"unschedule", "{\"id\":\"M\xfcller\"}", "id: not UTF-8"},
	} {
		err := refused(t, e, 400, "pq.jobs."+c.verb, nil, []byte(c.payload))
		if !strings.Contains(err.Text, c.want) {
			t.Errorf("%s %q: %v, want %q", c.verb, c.payload, err, c.want)
		}
	}

	err := refused(t, e, 400, "pq.jobs.push", ofGroup("M\xfcller"), []byte("x"))
	if !strings.Contains(err.Text, "Pq-Group: want 1 to 128 bytes of UTF-8") {
		t.Errorf("%v", err)
	}

	ok(t, e, "pq.jobs.push", nats.Header{"Nats-Msg-Id": {"\xff"}, "Pq-Unique": {"\xfe"}}, "x")
}

// A group at its limit is passed over. Once a place is free, a pop that waits gets its item, on
// either bridge.
func TestMaxLeasedPerGroup(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		for _, kind := range kinds {
			configure(t, e, kind.queue, `{"max_leased_per_group":1}`, `{"max_leased_per_group":1}`)
			for _, item := range []string{"a1", "a2", "a3", "b1"} {
				push(t, e, kind.push, ofGroup(item[:1]), item)
			}

			a1 := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a1")
			b1 := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "b1")

			for _, payload := range []string{
				``, `{"ack_wait":"1h"}`, `{"batch":5}`, `{"expires":"1ms"}`,
			} {
				err := refused(t, e, 404, kind.pop, nil, []byte(payload))
				want := "the groups of the ready items have max_leased_per_group 1 leased"
				if !strings.Contains(err.Text, want) {
					t.Errorf("%s: %v", payload, err)
				}
			}

			label := `{kind="priority",queue="jobs"}`
			if kind.queue == "q.jobs" {
				label = `{kind="fifo",queue="jobs"}`
			}
			testenv.Eventually(t, func() error { // one of the bridges owns the queue
				groups, _ := metric(e.Bridge, "pq_queue_groups"+label)
				limited, _ := metric(e.Bridge, "pq_queue_groups_at_limit"+label)
				others, _ := metric(second, "pq_queue_groups"+label)
				limitedThere, _ := metric(second, "pq_queue_groups_at_limit"+label)

				if groups+others != 2 || limited+limitedThere != 1 {
					return fmt.Errorf("metrics of %v groups, %v at a limit", groups+others,
						limited+limitedThere)
				}

				return nil
			})
			wantData(t, ok(t, e, kind.peek, nil, ""), "a2")

			waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1h","expires":"1h"}`)
			acknowledge(t, e, b1, "") // there is no other of its group
			acknowledge(t, e, a1, "")

			a2 := wantNext(t, waits, "a2").Reply
			wantData(t, acknowledge(t, e, a2, "+NXT"), "a3")

			ok(t, e, kind.queue+".purge", nil, "")
			configure(t, e, kind.queue, `{"max_leased_per_group":null}`, `{}`)
		}
	})
}

// A paused group is passed over, and pushes go on. When it is resumed, a pop that waits gets its
// item, on either bridge.
func TestPausedGroups(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, _ *testenv.Bridge) {
		for _, kind := range kinds {
			for _, item := range []string{"a1", "b1"} {
				push(t, e, kind.push, ofGroup(item[:1]), item)
			}

			configure(t, e, kind.queue, `{"paused_groups":{"a":true}}`, `{"paused_groups":["a"]}`)
			configure(t, e, kind.queue, `{"paused_groups":{"c":true}}`,
				`{"paused_groups":["a","c"]}`)
			push(t, e, kind.push, ofGroup("a"), "a2")

			wantData(t, ok(t, e, kind.pop, nil, ""), "b1")

			err := refused(t, e, 404, kind.pop, nil, nil)
			if !strings.Contains(err.Text, "the groups of the ready items are paused") {
				t.Error(err)
			}
			refused(t, e, 400, kind.queue+".config", nil, []byte(`{"paused_groups":["a","a"]}`))

			waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1h","expires":"1h"}`)
			configure(t, e, kind.queue, `{"paused_groups":{"c":false}}`, `{"paused_groups":["a"]}`)
			configure(t, e, kind.queue, `{"paused_groups":{"a":false}}`, `{}`)

			wantData(t, acknowledge(t, e, wantNext(t, waits, "a1").Reply, "+NXT"), "a2")

			ok(t, e, kind.queue+".purge", nil, "")
		}
	})
}

// A queue that has used up its rate says until when, and goes on then.
func TestRate(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})

	const refusals = `pq_refused_total{reason="rate"}`
	wantMetric(t, e.Bridge, refusals, 0)

	for _, kind := range kinds {
		pushAll(t, e, kind.push, "a", "b", "c", "d")
		configure(t, e, kind.queue, `{"rate":"2/2m"}`, `{"rate":"2/2m"}`)
		several := ask(t, e.Conn, kind.pop, `{"batch":4}`)
		wantNext(t, several, "a")
		wantNext(t, several, "b")
		wantEnd(t, several, 2, "429")

		for payload, code := range map[string]int{"": 429, `{"expires":"1ms"}`: 404} {
			err := refused(t, e, code, kind.pop, nil, []byte(payload))
			want := "the queue's rate of 2/2m is used up until "
			if !strings.Contains(err.Text, want) {
				t.Errorf("%q: %v", payload, err)
			}
		}

		clock.step(time.Minute + time.Second)
		wantData(t, ok(t, e, kind.pop, nil, ""), "c")

		configure(t, e, kind.queue, `{"rate":null}`, `{}`)
		wantPopped(t, e, kind.pop, "d")
	}
	wantMetric(t, e.Bridge, refusals, 4)
}

// A group that has used up its rate is passed over until then.
func TestRatePerGroup(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})

	for _, kind := range kinds {
		configure(t, e, kind.queue, `{"rate_per_group":"1/1m"}`, `{"rate_per_group":"1/1m"}`)
		for _, item := range []string{"a1", "a2", "b1"} {
			push(t, e, kind.push, ofGroup(item[:1]), item)
		}

		popped := popAll(t, e, kind.pop) // whose turn is equal, so which is the first is chance
		slices.Sort(popped)
		same(t, "popped", fmt.Sprint(popped), "[a1 b1]")

		err := refused(t, e, 404, kind.pop, nil, nil)
		if !strings.Contains(err.Text, "have used up rate_per_group 1/1m") {
			t.Error(err)
		}

		clock.step(time.Minute + time.Second)
		wantPopped(t, e, kind.pop, "a2")
	}
}
