package bridge_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// largeValues returns n values, of a size that two fit into a message with frames.
func largeValues(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("%d%s", i, strings.Repeat("x", 50_000)))
	}
	return values
}

// wantFirst checks that the queue has these items in this order, with their ids, and that none was
// delivered.
func wantFirst(t *testing.T, e *testenv.Env, queue string, ids, values []string) {
	t.Helper()
	list, _ := popFramed(t, e, "pq."+queue+".pop.min", len(ids)+1, `,"ack_wait":"1h"`, "")
	if len(list) != len(ids) {
		t.Fatalf("%s has %d items, want %d", queue, len(list), len(ids))
	}

	for i, item := range list {
		if item.value != values[i] || item.header.Get(subjects.HeaderID) != ids[i] ||
			item.header.Get(subjects.HeaderDeliveries) != "1" {
			t.Errorf("item %d of %s is %.20q with %v, want %.20q with id %s and delivery 1", i,
				queue, item.value, item.header, values[i], ids[i])
		}
	}

	for _, item := range list {
		acknowledge(t, e, item.ack, `-NAK {"snooze":true}`)
	}
}

// Items in frames that nobody receives are all back at their places at once, leased ones too, and
// no delivery counts.
func TestGoneReceiverOfFrames(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for name, values := range map[string][]string{
			"one":     {"a", "b", "c", "d", "e", "f"},
			"several": largeValues(6),
		} {
			ids := pushTogether(t, e, name, values...)
			back := count(t, e.Bridge, noResponders)

			for _, options := range []string{
				`{"batch":5,"frames":true}`, `{"batch":5,"frames":true,"ack_wait":"1h"}`,
				`{"batch":5,"frames":true,"expires":"1h"}`,
				`{"batch":9,"frames":true,"expires":"1h"}`,
				`{"batch":9,"frames":true,"expires":"1h","ack_wait":"1h"}`,
			} {
				publish(t, e, "pq."+name+".pop.min", nats.NewInbox(), options)
				if back += 5; strings.Contains(options, "9") {
					back++
				}
				wantMetric(t, e.Bridge, noResponders, back) // once each

				waitForWaiters(t, e.Bridge, name, 0)
				wantFirst(t, e, name, ids, values)
			}

			// A client that gets one message of several keeps its items.
			if name == "several" {
				for _, options := range []string{
					`{"batch":6,"frames":true,"ack_wait":"1h"}`, `{"batch":5,"frames":true}`,
				} {
					s := subscribeFor(t, e, 1)
					publish(t, e, "pq.several.pop.min", s.Subject, options)

					kept := unpacked(t, "pq.several", next(t, s))
					if len(kept) != 2 || kept[0].value != values[0] {
						t.Errorf("%d items are kept", len(kept))
					}

					if back += 3; kept[0].ack != "" {
						back++
					}
					wantMetric(t, e.Bridge, noResponders, back)

					if kept[0].ack != "" {
						acknowledge(t, e, kept[0].ack, alsoPayload("+ACK", acksOf(kept[1:])))
						wantFirst(t, e, name, ids[2:], values[2:])

						for i := range 2 {
							ids[i] = push(t, e, "pq.several.push.-1", nil, values[i]).ID
						}
					}
				}
				wantFirst(t, e, name, ids[2:], values[2:])
			}
		}
		wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
		wantMetric(t, e.Bridge, "pq_waiters", 0)
		checkStore(t, e)
	})
}

// farAccount has a client that finds the queues of another account below "far".
const farAccount = `
	accounts {
		QUEUES {
			users = [ {
				user: bridge, password: p
				permissions: { publish: ["_R_.>", "_pqbridge.>"] }
			} ]
			exports = [ { service: "pq.*.>", response: stream } ]
		}
		CLIENTS {
			users = [ { user: client, password: p } ]
			imports = [ { service: { account: QUEUES, subject: "pq.*.>" }, to: "far.*.>" } ]
		}
	}`

// Clients of another account get popped items in frames, but leased ones with a reply subject each:
// they may know no other way to acknowledge.
func TestFramesForAnotherAccount(t *testing.T) {
	e := withAccounts(t, farAccount)

	pushNumbers(t, e, "far.jobs.push", 6)
	leases, sizes := popFramed(t, e, "far.jobs.pop.min", 2, `,"ack_wait":"1h"`, "")
	wantSizes(t, sizes, 1, 1)

	leases, sizes = receiveFrames(t, "far.jobs",
		ask(t, e.Conn, leases[0].ack, `+NXT {"batch":2,"frames":true}`), "")
	wantSizes(t, sizes, 1, 1)

	for _, item := range leases {
		acknowledge(t, e, item.ack, "-NAK")
	}

	list, sizes := popFramed(t, e, "far.jobs.pop.min", 9, "", "")
	wantSizes(t, sizes, 4)
	if valuesOf(list) != "2 3 4 5" {
		t.Errorf("popped %q", valuesOf(list))
	}
}

// afterHeartbeats returns the next message that is no heartbeat.
func afterHeartbeats(t *testing.T, replies *nats.Subscription) *nats.Msg {
	t.Helper()
	m := next(t, replies)
	for subjects.IsHeartbeat(m.Header) {
		m = next(t, replies)
	}

	return m
}

// A pop that waits gets frames as items become available, on either bridge, and ends as without
// frames.
func TestFramesOfWaiters(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		there := ownedBy(t, e, second, e.Bridge)
		here, _ := waitOn(t, e, e.Bridge, second, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+here[0]+".push", nil, "x")

		for _, queue := range []string{here[0], there} {
			for _, lease := range []string{"", `,"ack_wait":"1h"`} {
				replies := ask(t, e.Conn, "pq."+queue+".pop.min",
					`{"batch":6,"frames":true,"expires":"1h","idle_heartbeat":"100ms"`+lease+`}`)
				if m := next(t, replies); m.Header.Get(subjects.HeaderHeartbeat) != "6" {
					t.Errorf("got %v, want a heartbeat", m.Header)
				}

				for i, values := range [][]string{{"a", "b", "c"}, {"d"}, {"e", "f"}} {
					pushTogether(t, e, queue, values...)
					m := afterHeartbeats(t, replies)

					list := unpacked(t, "pq."+queue, m)
					if valuesOf(list) != strings.Join(values, " ") ||
						(m.Header.Get(subjects.HeaderBatchCount) == "6") != (i == 2) {
						t.Errorf("%s: got %q with %v", queue, valuesOf(list), m.Header)
					}

					for _, item := range list {
						if lease != "" {
							acknowledge(t, e, item.ack, "")
						}
					}
				}

				if lease != "" {
					continue
				}

				// A pop with no_wait gets the items that are there, and no others.
				pushTogether(t, e, queue, "g", "h")
				list, sizes := popFramed(t, e, "pq."+queue+".pop.max", 9,
					`,"no_wait":true,"expires":"1h"`, "")
				if wantSizes(t, sizes, 2); valuesOf(list) != "h g" {
					t.Errorf("%s: got %q", queue, valuesOf(list))
				}

				// The time may be over before there are enough, or any.
				pushTogether(t, e, queue, "i", "j")
				list, _ = popFramed(t, e, "pq."+queue+".pop.min", 9, `,"expires":"1s"`, "")
				popFramed(t, e, "pq."+queue+".pop.min", 9, `,"expires":"1s"`, "404")

				if valuesOf(list) != "i j" {
					t.Errorf("%s: got %q", queue, valuesOf(list))
				}
			}
		}

		wantAllSettled(t, e, second)
	})
}

// allocated returns how many bytes a call allocates, also in other goroutines.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)

	return after.TotalAlloc - before.TotalAlloc
}

// A pop of very many items that gets one at a time takes no memory for items that it may get later.
func TestFramesOfFewItemsAreSmall(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	const n = 100

	bytes := map[string]uint64{}
	for round, frames := range []string{"", `,"frames":true`} {
		replies := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h","batch":1000`+frames+`}`)
		bytes[frames] = allocated(func() {
			for range n {
				push(t, e, "pq.jobs.push", nil, "x")
				next(t, replies)
			}
		})

		leave(t, e, replies)
		push(t, e, "pq.jobs.push", nil, "x") // which ends it
		waitForWaiters(t, e.Bridge, "jobs", 0)

		wantMetric(t, e.Bridge, noResponders, float64(round+1))
		wantPopped(t, e, "pq.jobs.pop.min", "x")
	}
	if more := int64(bytes[`,"frames":true`]-bytes[""]) / n; more > 20_000 {
		t.Errorf("%d bytes more for an item in a frame", more)
	}
}

// A pop of several items ends with a message that says why there are not more. The last message
// with frames is the end itself, unless there is an error.
func TestEndsOfBatches(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, frames := range []bool{false, true} {
			check := func(n int, options, code, want string) (list []sentItem) {
				t.Helper()
				replies := ask(t, e.Conn, "pq.jobs.pop.min",
					fmt.Sprintf(`{"batch":%d,"frames":%t%s}`, n, frames, options))
				list, sizes := receiveFrames(t, "pq.jobs", replies, code)
				if frames && len(list) > 0 {
					wantSizes(t, sizes, len(list))
				}
				if valuesOf(list) != want {
					t.Errorf("%d %s: got %q, want %q", n, options, valuesOf(list), want)
				}

				return list
			}
			check(5, "", "404", "")

			pushAll(t, e, "pq.jobs.push", "aaa", "bbb", "ccccc", "d")
			check(2, `,"max_bytes":2`, "413", "")
			check(4, `,"max_bytes":8`, "413", "aaa bbb")

			configure(t, e, "pq.jobs", `{"max_leased":1}`, `{"max_leased":1}`)
			list := check(4, `,"ack_wait":"1h"`, "429", "ccccc")
			check(4, `,"ack_wait":"1h"`, "429", "")

			acknowledge(t, e, list[0].ack, "-NAK")
			until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			e.Request("pq.jobs.config", nil,
				fmt.Appendf(nil, `{"pause_until":%q,"max_leased":null}`, until))

			check(4, "", "404", "")
			check(4, `,"ack_wait":"1h","expires":"1s"`, "404", "")

			e.Request("pq.jobs.config", nil, []byte(`{"pause_until":null}`))
			check(3, "", "", "ccccc d")

			m := e.Request("pq.jobs.pop.min", nil, []byte(`{"batch":1}`))
			if m.Header.Get(subjects.HeaderBatchCount) != "" {
				t.Errorf("a batch of one: %v", m.Header)
			}
		}
		wantMetric(t, e.Bridge, `pq_request_items_count{operation="pop-min"}`, 2*8)
		wantMetric(t, e.Bridge, `pq_request_items_sum{operation="pop-min"}`, 2*5)
		wantMetric(t, e.Bridge, `pq_errors_total{code="404",operation="pop-min"}`, 2*4)
	})
}
