package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pair returns a system with a second bridge that only gets what the first forwards.
func pair(t *testing.T, engine testenv.Engine, changes ...func(*bridge.Options)) (e *testenv.Env, second *testenv.Bridge) {
	e = testenv.New(t, testenv.Options{Engine: engine, NATS: withForwardedOnly})
	second = e.StartBridge(append(changes, forwardedOnly)...)
	together(t, e.Bridge, second)
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
func waitOn(t *testing.T, e *testenv.Env, owner, other *testenv.Bridge, n int, options string) (names []string, replies []*nats.Subscription) {
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
		got(t, asked, "x")
		waiters(t, other, name, 0)
	}
	return names, replies
}

// What one bridge stores wakes the pops that wait on another, and fast; so do acknowledgements there, and changes of
// max_leased, if leases wait for places.
func TestBellAcrossBridges(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		const rounds, lease = 41, `{"expires":"1h","ack_wait":"1h"}`
		names, replies := waitOn(t, e, second, e.Bridge, 1, lease)
		subject := "pq." + names[0]
		var took [2][]time.Duration // of pushes, and of free places
		waits, held := replies[0], ""
		for i := range 2 * rounds {
			value, began := fmt.Sprint(i), time.Now()
			switch {
			case i < rounds:
				publish(t, e, subject+".push", "", value)
			case i < 2*rounds-1:
				acked(t, e, held, []string{"", "+TERM"}[i%2])
			default:
				configured(t, e, subject, `{"max_leased":2}`, `{"max_leased":2}`)
			}
			held = got(t, waits, value).Reply
			took[i/rounds] = append(took[i/rounds], time.Since(began))

			if i < rounds-1 {
				acked(t, e, held, "")
			} else if i == rounds-1 { // from now on one at a time
				configured(t, e, subject, `{"max_leased":1}`, `{"max_leased":1}`)
				for n := range rounds {
					push(t, e, subject+".push", nil, fmt.Sprint(rounds+n))
				}
			}
			waits = ask(t, e.Conn, subject+".pop.min", lease)
			waiters(t, second, names[0], 1)
		}
		for i, list := range took {
			slices.Sort(list)
			median := list[len(list)/2]
			t.Logf("%s on one bridge: an item from another in %v, the median, all within %v", []string{"a push", "a free place"}[i], median, list[len(list)-1])
			if median > 200*time.Millisecond { // without a bell, half a second
				t.Errorf("the median is %v", median)
			}
		}
	})
}

// Items given back, those that fall due, and pushes with a delay, wake pops on other bridges as well.
func TestBellForWhatComesBack(t *testing.T) {
	e, second := pair(t, testenv.Mem())
	names, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h","ack_wait":"1h"}`)
	subject := "pq." + names[0]
	push(t, e, subject+".push", nil, "a")
	ack := got(t, replies[0], "a").Reply
	for payload, least := range map[string]time.Duration{"-NAK": 0, "-NAK 100ms": 100 * time.Millisecond} {
		again := ask(t, e.Conn, subject+".pop.min", `{"expires":"1h","ack_wait":"1h"}`)
		waiters(t, second, names[0], 1)
		began := time.Now()
		acked(t, e, ack, payload) // runs on the first bridge
		ack = got(t, again, "a").Reply
		if took := time.Since(began); took < least || took > least+testenv.Patience/2 {
			t.Errorf("%s: it came back after %v", payload, took)
		}
	}

	delayed := ask(t, e.Conn, subject+".pop.min", `{"expires":"1h"}`)
	waiters(t, second, names[0], 1)
	began := time.Now()
	push(t, e, subject+".push", nats.Header{subjects.HeaderDelay: {"200ms"}}, "b") // runs on the first bridge
	got(t, delayed, "b")
	if took := time.Since(began); took < 200*time.Millisecond || took > testenv.Patience/2 {
		t.Errorf("a push with a delay came after %v", took)
	}
}

// Without pops that wait nobody rings, and soon after the last one nobody does any more.
func TestBellIsSilentWithoutWaiters(t *testing.T) {
	e, second := pair(t, testenv.Mem())
	g := newGhost(t, e)
	rings, beats := g.hears("bell.>"), g.hears("members")
	quiet := func(when string) {
		t.Helper()
		pushAll(t, e, "pq.other.push", "x", "x")
		heartbeats(t, e.Conn, 2, 1)
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
		if err == nil && m.Subject != g.root+"bell.priority."+names[0] {
			err = fmt.Errorf("rang on %s", m.Subject)
		}
		return err
	})
	got(t, replies[0], "a")
	calm := 0 // heartbeats in a row, so those of both bridges
	testenv.Eventually(t, func() error {
		calm++
		if text := string(next(t, beats).Data); strings.Contains(text, " rings ") || strings.Contains(text, " waits ") {
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

// Programs with their own transactions do not ring. What they write is found soon.
func TestForeignWriterWakesWaiters(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		for owner, other := range map[*testenv.Bridge]*testenv.Bridge{e.Bridge: second, second: e.Bridge} {
			names, replies := waitOn(t, e, owner, other, 1, `{"expires":"1h"}`)
			q, err := e.Keyspace.PriorityQueue(names[0])
			must(t, err)
			began := time.Now()
			err = kv.Update(t.Context(), e.DB, func(tx kv.Transaction) error {
				_, err := q.Push(tx, 1, fdbpq.Message{Value: []byte("a")})
				return err
			})
			must(t, err)
			got(t, replies[0], "a")
			took := time.Since(began)
			t.Logf("it was found after %v", took)
			if took > 5*time.Second {
				t.Errorf("it was found after %v, want 1.2 s", took)
			}
		}
	})
}

// What bridges cannot read on the subjects of bells and in heartbeats is ignored.
func TestHostileBells(t *testing.T) {
	log := &syncLog{}
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = log.logger() }})
	replies := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	g := newGhost(t, e)
	for _, text := range []string{"", "no such id", "\x00", strings.Repeat("x", 100_000)} {
		g.says("bell.priority.jobs", text)
	}
	testenv.Eventually(t, func() error { return log.says("rang the bell of a queue without its name") })
	for _, beat := range []string{"waits ghost", "here waits", "here rings waits", " waits ghost", "here  ", "here waits rings waits unknown ghost"} {
		g.says("members", beat)
	}
	for range 100 {
		g.says("bell.priority.jobs", "ghost")
		g.says("bell.fifo.jobs", "ghost")
		g.says("bell.priority.other", "ghost")
	}
	e.Request("pq.jobs.len", nil, nil)
	waiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "a")
	got(t, replies, "a")
}

// pipelined is a shared store that claims to pipeline, as no engine does today.
type pipelined struct{ kv.Database }

func (pipelined) Traits() kv.Traits { return kv.Traits{Pipelines: true, Shared: true} }

// Bridges look for each other because their store is shared, whatever its other traits.
func TestSharedStoreThatPipelines(t *testing.T) {
	e := testenv.New(t, testenv.Options{Wrap: func(db kv.Database) kv.Database { return pipelined{db} }})
	second := e.StartBridge()
	together(t, e.Bridge, second)
}
