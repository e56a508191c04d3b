package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pair returns a system with a second bridge that only gets what the first forwards. Neither stops
// because its time is over.
func pair(t *testing.T, engine testenv.Engine) (e *testenv.Env, second *testenv.Bridge) {
	e = testenv.New(t, testenv.Options{Engine: engine, NATS: withForwardedOnly, Bridge: slow})
	second = e.StartBridge(forwardedOnly)
	waitForPeers(t, e.Bridge, second)
	return e, second
}

// eachPair runs a test on a pair with every engine that bridges can share.
func eachPair(t *testing.T, test func(t *testing.T, e *testenv.Env, second *testenv.Bridge)) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		e, second := pair(t, engine)
		test(t, e, second)
	})
}

// waitersOf returns how many pops of a priority queue wait on a bridge.
func waitersOf(t *testing.T, b *testenv.Bridge, queue string) int {
	t.Helper()
	q, err := b.Dispatcher().Queue(subjects.Priority, queue)
	must(t, err)
	return q.Waiters()
}

// waitOn has a pop of one item wait on each of n queues that a bridge owns and another does
// not, and returns their names and the replies.
func waitOn(
	t *testing.T, e *testenv.Env, owner, other *testenv.Bridge, n int, options string,
) (names []string, replies []*nats.Subscription) {
	t.Helper()
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprintf("jobs-%d", i)
		asked := ask(t, e.Conn, "pq."+name+".pop.min", options)

		here := false
		testenv.Eventually(t, func() error {
			here = waitersOf(t, owner, name) > 0
			if !here && waitersOf(t, other, name) == 0 {
				return errors.New("the pop does not wait yet")
			}

			return nil
		})

		if here {
			names, replies = append(names, name), append(replies, asked)
			continue
		}

		push(t, e, "pq."+name+".push", nil, "x")
		wantNext(t, asked, "x")
		waitForWaiters(t, other, name, 0)
	}

	return names, replies
}

// A push at one bridge wakes the pops that wait on another, and so does an acknowledgement there if
// leases wait for places. Each of these rings the bell, once the one bridge has heard that pops
// wait on the other.
func TestBellAcrossBridges(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		const lease = `{"expires":"1h","ack_wait":"1h"}`
		g := newGhost(t, e)
		rings := g.subscribe("bell.>")
		name := ownedBy(t, e, second, e.Bridge)
		subject, held, n := "pq."+name, "", 0

		for _, ack := range []string{"", "+ACK", "+TERM"} {
			testenv.Eventually(t, func() error {
				if n++; ack != "" { // one at a time
					ok(t, e, subject+".config", nil, `{"max_leased":1}`)
					push(t, e, subject+".push", nil, "first")
					held = leaseOne(t, e, subject+".pop.min", lease, "first")
					push(t, e, subject+".push", nil, fmt.Sprint(n))
				}

				waits := askOwnerAndWait(t, e, second, name, "pop.min", lease)
				must(t, g.nc.FlushTimeout(testenv.Patience))

				for _, err := rings.NextMsg(0); err == nil; { // those of before
					_, err = rings.NextMsg(0)
				}

				if ack != "" {
					acknowledge(t, e, held, ack)
				} else {
					push(t, e, subject+".push", nil, fmt.Sprint(n))
				}

				wantNext(t, waits, fmt.Sprint(n))
				_, err := rings.NextMsg(100 * time.Millisecond)
				ok(t, e, subject+".purge", nil, "")

				return err
			})
		}
	})
}

// No bridge rings while no pop waits, and ringing stops soon after the last one.
func TestBellIsSilentWithoutWaiters(t *testing.T) {
	t.Parallel()

	e, second := pair(t, testenv.Mem())
	g := newGhost(t, e)
	rings, beats := g.subscribe("bell.>"), g.subscribe("members")

	quiet := func(when string) {
		t.Helper()
		pushAll(t, e, "pq.other.push", "x", "x")
		waitForHeartbeats(t, e.Conn, 2, 1)
		if n, _, err := rings.Pending(); n > 0 || err != nil {
			t.Errorf("%s: %d rings, %v", when, n, err)
		}
	}

	says := func(word string) {
		t.Helper()
		for !strings.Contains(string(next(t, beats).Data), " "+word+" ") {
			continue
		}
	}

	quiet("at first")
	names, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
	says("waits")
	says("rings")

	testenv.Eventually(t, func() error { // until the first bridge has heard that the second waits
		push(t, e, "pq."+names[0]+".push", nil, "a")
		m, err := rings.NextMsg(10 * time.Millisecond)

		if err == nil && m.Subject != g.root+"bell.pq."+names[0] {
			err = fmt.Errorf("rang on %s", m.Subject)
		}

		return err
	})

	wantNext(t, replies[0], "a")
	calm := 0 // heartbeats in a row, so those of both bridges
	testenv.Eventually(t, func() error {
		calm++
		text := string(next(t, beats).Data)

		if strings.Contains(text, " rings ") || strings.Contains(text, " waits ") {
			calm = 0
		}

		if calm < 8 {
			return errors.New("somebody waits or rings")
		}

		return nil
	})

	for n, _, _ := rings.Pending(); n > 0; n-- { // those of before
		next(t, rings)
	}

	quiet("in the end")
}

// Programs with their own transactions do not ring, yet waiting pops soon find what they write.
func TestForeignWriterWakesWaiters(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		for owner, other := range map[*testenv.Bridge]*testenv.Bridge{
			e.Bridge: second,
			second:   e.Bridge,
		} {
			names, replies := waitOn(t, e, owner, other, 1, `{"expires":"1h"}`)
			q, err := e.Keyspace.PriorityQueue(names[0])
			must(t, err)
			must(t, kv.Update(t.Context(), e.DB, func(tx kv.Transaction) error {
				_, err := q.Push(tx, 1, fdbpq.Message{Value: []byte("a")})
				return err
			}))

			wantNext(t, replies[0], "a")
		}
	})
}

// Bridges ignore what they cannot read on the subjects of bells and in heartbeats.
func TestHostileBells(t *testing.T) {
	e := start(t, testenv.Options{})
	replies := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	g := newGhost(t, e)

	for _, text := range []string{"", "no such id", "\x00", strings.Repeat("x", 100_000)} {
		g.publish("bell.pq.jobs", text)
	}

	for _, beat := range []string{
		"waits ghost", "here waits", "here rings waits", " waits ghost", "here  ",
		"here waits rings waits unknown ghost",
	} {
		g.publish("members", beat)
	}

	for range 100 {
		g.publish("bell.pq.jobs", "ghost")
		g.publish("bell.q.jobs", "ghost")
		g.publish("bell.pq.other", "ghost")
	}

	e.Request("pq.jobs.len", nil, nil)
	waitForWaiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "a")
	wantNext(t, replies, "a")
}
