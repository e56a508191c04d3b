package bridge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// leave ends a subscription, once the server knows.
func leave(t *testing.T, e *testenv.Env, s *nats.Subscription) {
	t.Helper()
	must(t, errors.Join(s.Unsubscribe(), e.Conn.FlushTimeout(testenv.Patience)))
}

// An item that a waiting pop did not receive goes to the next in line at once: as it was, and
// nothing is counted.
func TestGoneWaiterMakesRoomForTheNext(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		back := 0
		// The first asks for one item, or for more than there will be.
		for _, options := range []string{`{"expires":"1h"}`, `{"expires":"1h","batch":5}`, `{"expires":"1h","batch":5,"no_wait":true}`} {
			gone := asked(t, e, "jobs", "pop.min", options)
			plain := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
			lease := asked(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1h"}`)
			leave(t, e, gone)
			pushed := push(t, e, "pq.jobs.push.3", nil, "a")
			if m := got(t, plain, "a"); m.Header.Get(subjects.HeaderID) != pushed.ID || m.Header.Get(subjects.HeaderPriority) != "3" {
				t.Errorf("%s: got %v, pushed %v", options, m.Header, pushed)
			}
			back++
			pushed = push(t, e, "pq.jobs.push", nil, "b")
			m := got(t, lease, "b")
			if m.Header.Get(subjects.HeaderID) != pushed.ID || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("%s: leased %v, pushed %v", options, m.Header, pushed)
			}
			acked(t, e, m.Reply, "")
			wantMetric(t, e.Bridge, "pq_waiters", 0)
			wantMetric(t, e.Bridge, noResponders, float64(back)) // once each
		}
		wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
		consistent(t, e)
	})
}

// Heartbeats that nobody hears end a pop that waits, also one that leases.
func TestGoneWaiterMissesItsHeartbeat(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, options := range []string{
		`{"expires":"1h","idle_heartbeat":"100ms"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1h"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1h","batch":3}`,
	} {
		there := asked(t, e, "jobs", "pop.max", options)
		gone := asked(t, e, "jobs", "pop.max", options)
		leave(t, e, gone)
		waiters(t, e.Bridge, "jobs", 1)
		for range 3 { // the other one goes on
			if m := next(t, there); !subjects.IsHeartbeat(m.Header) {
				t.Fatalf("%s: got %q %v, want a heartbeat", options, m.Data, m.Header)
			}
		}
		waiters(t, e.Bridge, "jobs", 1)
		leave(t, e, there)
		waiters(t, e.Bridge, "jobs", 0)
	}
	wantMetric(t, e.Bridge, "pq_waiters", 0)
	wantMetric(t, e.Bridge, noResponders, 0) // there were no items
	wantMetric(t, e.Bridge, "pq_unanswered_total", 0)
}

// NATS may also refuse what a pop that waits has got. That ends it too.
func TestDeniedWaiter(t *testing.T) {
	e := start(t, restricted(inboxesOnly(), testenv.Options{}))
	publish(t, e, "pq.jobs.pop.min", "elsewhere", `{"expires":"1h","batch":5}`)
	waiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "a")
	waiters(t, e.Bridge, "jobs", 0)
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="denied"}`, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "a")
}

// died checks that a message is a dead letter of the queue "jobs".
func died(t *testing.T, m *nats.Msg, reason string) {
	t.Helper()
	info, err := subjects.ParseItemHeaders(m.Header)
	if err != nil || info.DeadLetter == nil || info.DeadLetter.Queue != "jobs" || info.DeadLetter.Reason != reason {
		t.Errorf("%q with %v, %v: want a dead letter because of %q", m.Data, m.Header, err, reason)
	}
}

// Whoever waits for dead letters gets them when they die: terminated, or because nobody settled
// the last delivery, also while others wait for the queue that they come from.
func TestWaitForDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push", nil, "a")
		ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
		dead := asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h"}`)
		acked(t, e, ack, "+TERM broken")
		died(t, got(t, dead, "a"), "broken")

		configured(t, e, "pq.jobs", `{"max_deliver":1}`, `{"max_deliver":1}`)
		dead = asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h"}`)
		push(t, e, "pq.jobs.push", nil, "b")
		leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"200ms"}`, "b")
		alive := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		died(t, got(t, dead, "b"), "max_deliver")
		waiters(t, e.Bridge, "jobs", 1) // it got nothing
		dead = asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h","batch":2,"ack_wait":"1h"}`)
		push(t, e, "pq.jobs.push", nil, "c")
		got(t, alive, "c")
		push(t, e, "pq.jobs.push", nil, "d")
		ack = leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "d")
		acked(t, e, ack, "-NAK") // its last delivery
		died(t, got(t, dead, "d"), "max_deliver")
		consistent(t, e)
	})
}

// A lease whose reply NATS refuses ends at once, and the delivery does not count: the item does not die of it.
func TestDeniedLeases(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{Engine: engine}))
		configured(t, e, "pq.jobs", `{"max_deliver":1,"backoff":["1h"]}`, `{"backoff":["1h0m0s"],"max_deliver":1}`)
		lease := func(value string) (ack string) {
			t.Helper()
			m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
			if string(m.Data) != value || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Fatalf("leased %q, %v: want %s, for the first time", m.Data, m.Header, value)
			}
			return m.Reply
		}
		pushAll(t, e, "pq.jobs.push", "a", "b", "c")
		back := func(n float64) {
			t.Helper()
			wantMetric(t, e.Bridge, `pq_given_back_total{reason="denied"}`, n)
		}
		publish(t, e, "pq.jobs.pop.min", "one", `{"ack_wait":"1h"}`)
		back(1)
		publish(t, e, "pq.jobs.pop.max", "several", `{"ack_wait":"1h","batch":2}`)
		back(3)
		ack := lease("a")
		publish(t, e, ack, "next", "+NXT")
		back(4)
		acked(t, e, lease("b"), "")
		acked(t, e, lease("c"), "")
		publish(t, e, "pq.jobs.pop.min", "waits", `{"ack_wait":"1h","expires":"1h","batch":2}`)
		waiters(t, e.Bridge, "jobs", 1)
		push(t, e, "pq.jobs.push", nil, "d")
		back(5)
		waiters(t, e.Bridge, "jobs", 0)
		acked(t, e, lease("d"), "")
		consistent(t, e)
	})
}

// vanishing is a client whose receivers are often gone when their items come. What its
// connection gets, it has received.
type vanishing struct {
	*rawConn
	client   uint64
	random   *rand.Rand
	sent     int
	received []string
}

func newVanishing(t *testing.T, e *testenv.Env, seed, client uint64) *vanishing {
	return &vanishing{rawConn: dialRaw(t, e), client: client, random: rand.New(rand.NewPCG(seed, client))}
}

// pop sends a pop, with a receiver that is there, was there, or never was.
func (v *vanishing) pop() {
	v.t.Helper()
	v.sent++
	inbox, sid := v.inbox(), strconv.Itoa(v.sent+1)
	sub, pop := fmt.Sprintf("SUB %s %s\r\n", inbox, sid), message("pq.jobs.pop.min", inbox, "", "")
	switch v.random.IntN(6) {
	case 0:
		v.write(sub + pop)
	case 1:
		v.write(sub + pop + "UNSUB " + sid + "\r\n") // while the pop runs
	case 2:
		v.write(sub)
		v.write(pop)
		v.write("UNSUB " + sid + "\r\n")
	case 3:
		options := []string{`{"batch":4}`, `{"batch":4,"frames":true}`}[v.random.IntN(2)]
		v.write(sub + "UNSUB " + sid + fmt.Sprintf(" %d\r\n", 1+v.random.IntN(2)) + message("pq.jobs.pop.min", inbox, "", options))
	case 4:
		v.write(message("pq.jobs.pop.min", inbox, "", `{"batch":4,"frames":true}`))
	default:
		v.write(pop)
	}
}

// inbox is of a client's own, and not what dialRaw subscribes to.
func (v *vanishing) inbox() string {
	return fmt.Sprintf("gone.%d.%d", v.client, v.sent)
}

// collect receives everything that was sent to this client until now.
func (v *vanishing) collect() {
	v.t.Helper()
	v.replies++
	end := "raw." + strconv.Itoa(v.replies)
	v.write(message("pq.jobs.len", end, "", "")) // is answered after the pops
	for m := v.next(); m.subject != end; m = v.next() {
		if m.payload == "" { // it is the end of several, or an error
			continue
		}
		t := v.t.(*testing.T)
		for _, item := range unpacked(t, "pq.jobs", &nats.Msg{Header: decoded(t, m.headers), Data: []byte(m.payload)}) {
			v.received = append(v.received, item.value)
		}
	}
}

// Of many pops by clients that vanish, every item was either received or is back, and
// none comes twice. Where whole connections vanish, some items are lost in them.
func TestGoneAccounts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := start(t, testenv.Options{})
	const clients = 10
	items, pops := harness.Times(1_200, 20_000), harness.Times(600, 10_000)
	for i := range items {
		if publish(t, e, "pq.jobs.push", "", fmt.Sprint(i)); i%1000 == 0 {
			ok(t, e, "pq.jobs.len", nil, "") // the bridge refuses too many at once
		}
	}
	wantQueued(t, e, int64(items))
	seen := map[string]int{}
	for n := range uint64(clients) {
		v := newVanishing(t, e, seed, n)
		for i := range pops / clients {
			if v.pop(); i%100 == 99 {
				v.collect()
			}
		}
		// Pops for which a batch has no room are run with the next one, and requests behind them may come first.
		wantMetric(t, e.Bridge, "pq_pending_requests", 0)
		v.collect()
		for _, value := range v.received {
			seen[value]++
		}
	}
	received := len(seen)
	wantQueued(t, e, int64(items-received)) // nothing is lost so far
	for n := range uint64(harness.Times(20, 100)) {
		v := newVanishing(t, e, seed, clients+n)
		for range 5 {
			v.pop()
		}
		must(t, v.Close())
	}
	back := count(t, e.Bridge, noResponders)
	restart(t, e) // what is to come back is back then
	left := popAll(t, e, "pq.jobs.pop.min")
	for i, value := range left {
		seen[value]++
		if this, next := atoi(t, value), 0; i+1 < len(left) {
			if next = atoi(t, left[i+1]); this >= next {
				t.Errorf("%d comes before %d", this, next)
			}
		}
	}
	for value, times := range seen {
		if times != 1 {
			t.Errorf("%q came %d times", value, times)
		}
	}
	t.Logf("of %d items %d were received, %d are left, %d were lost in connections; items came back %v times", items, received, len(left), items-len(seen), back)
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// While large items are popped again and again for clients that are gone, another queue of the lane is served. No item is
// lost.
func TestFloodOfPopsForNobody(t *testing.T) {
	const items, pops = 12, 40
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Lanes, o.MaxPendingBytes, o.MaxBatchBytes = 1, 8<<20, 1<<20 // so that few of the items are on their way at a time
	}})
	for i := range items {
		push(t, e, fmt.Sprintf("pq.large.push.%d", i), nil, string(make([]byte, 1_000_000)))
	}
	flood := e.Connect()
	for range pops {
		must(t, flood.PublishRequest("pq.large.pop.min", nats.NewInbox(), nil))
	}
	must(t, flood.FlushTimeout(testenv.Patience))
	stop := bystand(t, e)
	wantMetric(t, e.Bridge, noResponders, pops)
	stop()
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
	wantLen(t, e, "pq", "large", items)
}
