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

// A group comes back with its item, wherever that is shown, and a weight does not.
func TestGroupComesBack(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		weighted := ofGroup("acme inc")
		weighted[subjects.HeaderWeight] = []string{"3"}
		id := push(t, e, kind.push, weighted, "a")
		ok(t, e, kind.push+".batch", nil, frames(frame(0, "Pq-Group: b\r\nPq-Weight: 2\r\n", "b"), frame(0, "", "none")))
		items := string(ok(t, e, kind.queue+".items", nil, "").Data)
		if !strings.Contains(items, `"headers":{"Pq-Group":["acme inc"]}`) || strings.Contains(items, "Weight") {
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

// One who has pushed very much does not keep others waiting, and info says what each has. It can only say names in UTF-8:
// groups that become the same then are counted together.
func TestGroupsTakeTurns(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		for _, item := range []string{"a1", "a2", "a3", "a4", "b1", "b2"} {
			push(t, e, kind.push, ofGroup(item[:1]), item)
		}
		info, err := subjects.ParseQueueInfo(ok(t, e, kind.queue+".info", nil, "").Data)
		if want := fmt.Sprint(map[string]subjects.GroupCount{"a": {Ready: 4}, "b": {Ready: 2}}); err != nil || fmt.Sprint(info.Groups) != want {
			t.Errorf("%+v, %v: want %v", info, err, want)
		}
		wantPopped(t, e, kind.pop, "a1", "b1", "a2", "b2", "a3", "a4")
	}
	for _, group := range []string{"\xff", "\xfe", "a\x00"} {
		push(t, e, "pq.odd.push", ofGroup(group), "x")
	}
	info := string(ok(t, e, "pq.odd.info", nil, "").Data)
	if want := `"groups":{"a\u0000":{"ready":1,"leased":0},"�":{"ready":2,"leased":0}}`; !strings.Contains(info, want) {
		t.Errorf("%s: want %s", info, want)
	}
}

// A group at its limit is passed over. Once a place is free, a pop that waits gets its item, on
// either bridge.
func TestMaxLeasedPerGroup(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		for _, kind := range kinds {
			configured(t, e, kind.queue, `{"max_leased_per_group":1}`, `{"max_leased_per_group":1}`)
			for _, item := range []string{"a1", "a2", "a3", "b1"} {
				push(t, e, kind.push, ofGroup(item[:1]), item)
			}

			a1 := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "a1")
			b1 := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "b1")
			for _, payload := range []string{``, `{"ack_wait":"1h"}`, `{"batch":5}`, `{"expires":"1ms"}`} {
				err := refused(t, e, 404, kind.pop, nil, []byte(payload))
				if want := "the groups of the ready items have max_leased_per_group 1 leased"; !strings.Contains(err.Text, want) {
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
					return fmt.Errorf("metrics of %v groups, %v at a limit", groups+others, limited+limitedThere)
				}
				return nil
			})
			wantData(t, ok(t, e, kind.peek, nil, ""), "a2")
			waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1h","expires":"1h"}`)
			acked(t, e, b1, "") // there is no other of its group
			acked(t, e, a1, "")
			a2 := got(t, waits, "a2").Reply
			wantData(t, acked(t, e, a2, "+NXT"), "a3")
			ok(t, e, kind.queue+".purge", nil, "")
			configured(t, e, kind.queue, `{"max_leased_per_group":null}`, `{}`)
		}
	})
}

// A paused group is passed over, and pushes go on. When it is resumed, a pop that waits gets its item, on either bridge.
func TestPausedGroups(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, _ *testenv.Bridge) {
		for _, kind := range kinds {
			for _, item := range []string{"a1", "b1"} {
				push(t, e, kind.push, ofGroup(item[:1]), item)
			}
			configured(t, e, kind.queue, `{"paused_groups":{"a":true}}`, `{"paused_groups":["a"]}`)
			configured(t, e, kind.queue, `{"paused_groups":{"c":true}}`, `{"paused_groups":["a","c"]}`)
			push(t, e, kind.push, ofGroup("a"), "a2")
			wantData(t, ok(t, e, kind.pop, nil, ""), "b1")
			if err := refused(t, e, 404, kind.pop, nil, nil); !strings.Contains(err.Text, "the groups of the ready items are paused") {
				t.Error(err)
			}
			refused(t, e, 400, kind.queue+".config", nil, []byte(`{"paused_groups":["a","a"]}`))

			waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1h","expires":"1h"}`)
			configured(t, e, kind.queue, `{"paused_groups":{"c":false}}`, `{"paused_groups":["a"]}`)
			configured(t, e, kind.queue, `{"paused_groups":{"a":false}}`, `{}`)
			wantData(t, acked(t, e, got(t, waits, "a1").Reply, "+NXT"), "a2")
			ok(t, e, kind.queue+".purge", nil, "")
		}
	})
}

// A queue, or a group, that has used up its rate says so, until when, and goes on then.
func TestRate(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	const refusals = `pq_refused_total{reason="rate"}`
	wantMetric(t, e.Bridge, refusals, 0)
	for _, kind := range kinds {
		pushAll(t, e, kind.push, "a", "b", "c", "d")
		configured(t, e, kind.queue, `{"rate":"2/2m"}`, `{"rate":"2/2m"}`)
		several := ask(t, e.Conn, kind.pop, `{"batch":4}`)
		got(t, several, "a")
		got(t, several, "b")
		ended(t, several, 2, "429")
		for payload, code := range map[string]int{"": 429, `{"expires":"1ms"}`: 404} {
			err := refused(t, e, code, kind.pop, nil, []byte(payload))
			if want := "the queue's rate of 2/2m is used up until "; !strings.Contains(err.Text, want) {
				t.Errorf("%q: %v", payload, err)
			}
		}
		clock.step(time.Minute + time.Second)
		wantData(t, ok(t, e, kind.pop, nil, ""), "c")
		configured(t, e, kind.queue, `{"rate":null}`, `{}`)
		wantPopped(t, e, kind.pop, "d")
	}
	wantMetric(t, e.Bridge, refusals, 4)
}

// A group that has used up its rate is passed over until then.
func TestRatePerGroup(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	for _, kind := range kinds {
		configured(t, e, kind.queue, `{"rate_per_group":"1/1m"}`, `{"rate_per_group":"1/1m"}`)
		for _, item := range []string{"a1", "a2", "b1"} {
			push(t, e, kind.push, ofGroup(item[:1]), item)
		}
		popped := popAll(t, e, kind.pop) // whose turn is equal, so which is the first is chance
		slices.Sort(popped)
		same(t, "popped", fmt.Sprint(popped), "[a1 b1]")
		if err := refused(t, e, 404, kind.pop, nil, nil); !strings.Contains(err.Text, "have used up rate_per_group 1/1m") {
			t.Error(err)
		}
		clock.step(time.Minute + time.Second)
		wantPopped(t, e, kind.pop, "a2")
	}
}
