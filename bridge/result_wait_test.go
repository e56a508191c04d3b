package bridge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// resultWaiters is how many requests wait for outcomes.
const resultWaiters = "pq_result_waiters"

// awaitJob asks for the outcome of a job, and returns once a bridge waits for it.
func awaitJob(
	t *testing.T, e *testenv.Env, b *testenv.Bridge, queue, payload string,
) *nats.Subscription {
	t.Helper()
	before := count(t, b, resultWaiters)
	replies := ask(t, e.Conn, queue+".result", payload)
	wantMetric(t, b, resultWaiters, before+1)
	return replies
}

// waitFor is the payload that waits for a job.
func waitFor(id, expires string) string {
	return fmt.Sprintf(`{"id":%q,"expires":%q}`, id, expires)
}

// wantOutcome checks the next reply to a result request.
func wantOutcome(
	t *testing.T, replies *nats.Subscription, id string, state subjects.State, result string,
) {
	t.Helper()
	m := next(t, replies)
	must(t, replyError(m.Header))
	j, err := subjects.ParseJobInfo(m.Header)
	must(t, err)
	if j.ID != id || j.State != state || string(m.Data) != result {
		t.Errorf("job %s is %s with %q, want %s, %s with %q", j.ID, j.State, m.Data, id, state,
			result)
	}
}

// A wait is answered as soon as its job is done or dead, whichever bridge ends it, and otherwise
// with its state at the end.
func TestWaitForOutcome(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		keep := nats.Header{"Pq-Keep": {"1h"}}
		for _, kind := range kinds {
			for _, elsewhere := range []bool{false, true} {
				for _, end := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpTerm} {
					id := push(t, e, kind.push, keep, "value").ID
					ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1m"}`, "value")
					waits := awaitJob(t, e, e.Bridge, kind.queue, waitFor(id, "1h"))

					by := e.Bridge
					if elsewhere {
						by = second
					}
					endJob(t, by, ack, end, "result")

					state, result := subjects.StateDone, "result"
					if end == fdbpq.OpTerm {
						state, result = subjects.StateDead, ""
					}
					wantOutcome(t, waits, id, state, result)
					wantOutcome(t, ask(t, e.Conn, kind.queue+".result", waitFor(id, "1h")), id,
						state, result)
				}
			}

			id := push(t, e, kind.push, keep, "value").ID
			short := ask(t, e.Conn, kind.queue+".result", waitFor(id, "50ms"))
			wantOutcome(t, short, id, subjects.StateReady, "")
			wantSilence(t, e, short)
		}
		wantMetric(t, e.Bridge, resultWaiters, 0)
	})
}

// endJob ends the job of a lease on a bridge, past NATS.
func endJob(t *testing.T, b *testenv.Bridge, ack string, kind fdbpq.OpKind, result string) {
	t.Helper()
	words := strings.Split(ack, ".") // pq.<queue>.ack.<token>
	token, err := fdbpq.ParseToken(words[3])
	must(t, err)
	of, _ := subjects.ParseShort(words[0])
	q, err := b.Dispatcher().Queue(of, words[1])
	must(t, err)

	op := fdbpq.Op{Kind: kind, Token: token}
	if kind == fdbpq.OpAck {
		op.Report = &fdbpq.Report{Outcome: fdbpq.Outcome{Result: []byte(result)}}
	}
	results, err := b.Dispatcher().Do(t.Context(), q, []fdbpq.Op{op})
	must(t, err)
	must(t, results[0].Err)
}

// A wait can name its job by the message id of the push, not by a place. A job that is not there is
// answered at once.
func TestNamesOfAwaitedJobs(t *testing.T) {
	e := start(t, testenv.Options{})
	pushed := push(t, e, "pq.jobs.push.5", nats.Header{"Nats-Msg-Id": {"m"}}, "value")
	job, err := fdbpq.ParseID(pushed.ID)
	must(t, err)
	moved := do(t, e.Bridge, "jobs", fdbpq.Op{Kind: fdbpq.OpMove, ID: job, Priority: 7})
	place := moved.Item.ID.String()
	if place == pushed.ID {
		t.Fatal("the item did not move")
	}

	var waits []*nats.Subscription
	for _, payload := range []string{
		waitFor(pushed.ID, "1h"), `{"msg_id":"m","expires":"1h"}`,
	} {
		waits = append(waits, awaitJob(t, e, e.Bridge, "pq.jobs", payload))
	}
	acknowledge(t, e, leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1m"}`, "value"), "+TERM")
	for _, replies := range waits {
		wantOutcome(t, replies, pushed.ID, subjects.StateDead, "")
	}

	refused(t, e, 400, "pq.jobs.result", nil, []byte(waitFor(place, "1h")))
	refused(t, e, 404, "pq.other.result", nil, []byte(waitFor(pushed.ID, "1h")))
	refused(t, e, 404, "pq.jobs.result", nil, []byte(`{"msg_id":"none","expires":"1h"}`))
}

// Waits for outcomes count in MaxWaiters together with pops, and a bridge that stops answers them.
func TestWaitsForOutcomesAreBounded(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxWaiters = 2 }})
	id := push(t, e, "pq.jobs.push", nil, "value").ID

	waits := awaitJob(t, e, e.Bridge, "pq.jobs", waitFor(id, "1h"))
	pop := askAndWait(t, e, "other", "pop.min", `{"expires":"1h"}`)
	for subject, payload := range map[string]string{
		"pq.jobs.result":   waitFor(id, "1h"),
		"pq.other.pop.min": `{"expires":"1h"}`,
	} {
		refused(t, e, 429, subject, nil, []byte(payload))
	}

	must(t, stopBridge(t, e.Bridge))
	for what, replies := range map[string]*nats.Subscription{"a wait": waits, "a pop": pop} {
		same(t, "unknown", wantError(t, 503, what, next(t, replies)).Unknown, false)
	}
}

// Waits that race the ends of their jobs on two bridges are all answered, each with the outcome of
// its own job.
func TestManyWaitsRaceEnds(t *testing.T) {
	e := start(t, testenv.Options{})
	second := newBridge(e)
	waitForPeers(t, e.Bridge, second)
	n := harness.Times(10_000, 100_000)
	const batch = 100

	ids := make([]string, 0, n)
	for i := 0; i < n; i += batch {
		var items []subjects.Frame
		for j := range batch {
			items = append(items, frame(0, "Pq-Keep: 1h\r\n", strconv.Itoa(i+j)))
		}
		reply := ok(t, e, "pq.jobs.push.batch", nil, frames(items...))
		ids = append(ids, pushedIDs(t, "jobs", batch, reply.Data)...)
	}

	// Each reply names its job, so one inbox is enough. It has room for all.
	inbox, replies := nats.NewInbox(), make(chan *nats.Msg, 2*n)
	_, err := e.Conn.ChanSubscribe(inbox, replies)
	must(t, err)
	asker := e.Connect()
	asked := make(chan error, 1)
	go func() {
		var err error
		for _, i := range rand.Perm(n) {
			payload := []byte(waitFor(ids[i], "1h"))
			err = errors.Join(err, asker.PublishRequest("pq.jobs.result", inbox, payload))
		}
		asked <- errors.Join(err, asker.FlushTimeout(testenv.Patience))
	}()

	for done := 0; done < n; done += batch {
		options := fmt.Sprintf(`{"batch":%d,"ack_wait":"1h"}`, batch)
		leased := ask(t, e.Conn, "pq.jobs.pop.min", options)
		for range batch {
			m := next(t, leased)
			must(t, replyError(m.Header))
			if dead(string(m.Data)) {
				must(t, e.Conn.Publish(m.Reply, []byte("+TERM "+string(m.Data))))
			} else {
				must(t, e.Conn.PublishMsg(&nats.Msg{
					Subject: m.Reply, Data: m.Data,
					Header: nats.Header{subjects.HeaderAck: {"+ACK"}},
				}))
			}
		}
		must(t, leased.Unsubscribe())
	}
	must(t, <-asked)

	told := map[string]string{}
	for range n {
		var m *nats.Msg
		select {
		case m = <-replies:
		case <-time.After(testenv.Patience):
			t.Fatalf("no more replies after %d", len(told))
		}
		must(t, replyError(m.Header))
		j, err := subjects.ParseJobInfo(m.Header)
		must(t, err)
		told[j.ID] = fmt.Sprint(j.State, " ", string(m.Data))
		if j.DeadLetter != nil {
			told[j.ID] = fmt.Sprint(j.State, " ", j.DeadLetter.Reason)
		}
	}
	for i, id := range ids {
		want := fmt.Sprint("done ", i)
		if dead(strconv.Itoa(i)) {
			want = fmt.Sprint("dead ", i)
		}
		if told[id] != want {
			t.Fatalf("job %d: told %q, want %q", i, told[id], want)
		}
	}
	e.Request("pq.silence.len", nil, nil)
	same(t, "more replies", len(replies), 0)
}

// Bad times to wait are refused.
func TestBadWaitsForOutcomes(t *testing.T) {
	e := start(t, testenv.Options{})
	id := push(t, e, "pq.jobs.push", nil, "value").ID

	for _, expires := range []string{"1h0m0.001s", "999us", "-1s", "1", "never"} {
		err := refused(t, e, 400, "pq.jobs.result", nil, []byte(waitFor(id, expires)))
		if !strings.Contains(err.Text, "expires") {
			t.Errorf("%s: %v: want it to name the option", expires, err)
		}
	}
}
