package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushesTo returns a frame that pushes a value to a queue.
func pushesTo(queue string, priority int64, lines, value string) subjects.Frame {
	return frame(priority, "Pq-Queue: "+queue+"\r\n"+lines, value)
}

// framed returns the headers of an acknowledgement with n frames.
func framed(ack string, n int) nats.Header {
	return nats.Header{"Pq-Ack": {ack}, "Pq-Frames": {strconv.Itoa(n)}}
}

// An acknowledgement of one lease or several, that leases the next item or does not, pushes the
// items in its frames, beside results. Pops that wait get them, with the headers of a push.
func TestSuccessors(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range []string{"pq", "q"} {
			waiting := askAndWaitKind(t, e, kind, "mail", `{"expires":"1h"}`)
			ok(t, e, kind+".jobs.config", nil, `{"next":["mail","jobs"]}`)
			var acks []string
			for i := range 4 {
				push(t, e, kind+".jobs.push", nil, fmt.Sprint("job ", i))
				acks = append(acks, ok(t, e, popOf(kind, "jobs"), nil, `{"ack_wait":"1h"}`).Reply)
			}

			m := ok(t, e, acks[0], framed("+ACK", 1), frames(pushesTo("mail", 0, "", "rung")))
			same(t, "payload", string(m.Data), "")
			wantNext(t, waiting, "rung")

			h := framed(alsoPayload("+ACK", acks[1:3]), 4)
			ok(t, e, acks[3], h, frames(resultOf(acks[2], "result"),
				pushesTo("mail", 0, "Pq-Keep: 1h\r\nX: y\r\nPq-Group: acme\r\n", "a"),
				resultOf(acks[3], "result"), pushesTo("jobs", 0, "", "again")))
			m = ok(t, e, popOf(kind, "mail"), nil, "")
			wantData(t, m, "a")
			same(t, "headers", fmt.Sprint(m.Header.Get("Pq-Keep"), m.Header.Get("X"),
				m.Header.Get("Pq-Group")), "1h0m0syacme")

			again := ok(t, e, popOf(kind, "jobs"), nil, `{"ack_wait":"1h"}`)
			wantData(t, again, "again")
			next := ok(t, e, again.Reply, framed("+NXT", 2), frames(
				pushesTo("jobs", 0, "", "next"), pushesTo("mail", 0, "Pq-Delay: 1h\r\n", "late")))
			wantData(t, next, "next")
			ok(t, e, next.Reply, nil, "+ACK")

			var length subjects.Length
			must(t, json.Unmarshal(ok(t, e, kind+".jobs.len", nil, "").Data, &length))
			same(t, "left", length.Len, 0)
			info := string(ok(t, e, kind+".mail.info", nil, "").Data)
			if !strings.Contains(info, `"delayed":1`) {
				t.Errorf("%s: want one delayed item", info)
			}
		}
		checkStore(t, e)
	})
}

// popOf returns the subject that pops from a queue, and askAndWaitKind waits for an item there.
func popOf(kind, queue string) string {
	if kind == "q" {
		return "q." + queue + ".pop"
	}
	return "pq." + queue + ".pop.min"
}

func askAndWaitKind(
	t *testing.T, e *testenv.Env, kind, queue, options string,
) *nats.Subscription {
	t.Helper()
	inbox := e.Conn.NewInbox()
	replies := subscribe(t, e.Conn, inbox)
	must(t, e.Conn.PublishRequest(popOf(kind, queue), inbox, []byte(options)))
	return replies
}

// An acknowledgement pushes once: repeated, it pushes nothing, nor does one of several leases of
// which one is lost.
func TestLostLeasePushesNothing(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		acks := pushAndLease(t, e, "jobs", 2)
		done, held := acks[0], acks[1]
		letter := frames(pushesTo("mail", 5, "", "x"))
		ok(t, e, "pq.jobs.config", nil, `{"next":["mail"]}`)
		ok(t, e, done, framed("+ACK", 1), letter)

		_ = refused(t, e, 409, done, framed("+ACK", 1), []byte(letter))
		also := alsoPayload("+NXT", []string{done})
		_ = refused(t, e, 409, held, framed(also, 1), []byte(letter))

		wantData(t, ok(t, e, "pq.mail.len", nil, ""), `{"queue":"mail","len":1}`)
		checkStore(t, e)
	})
}

// An acknowledgement that may not push to one of its queues pushes nothing, and the lease stays.
func TestRefusedSuccessors(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		ok(t, e, "pq.jobs.config", nil, `{"next":["mail"]}`)
		held := pushAndLease(t, e, "jobs", 1)[0]
		letters := frames(pushesTo("mail", 5, "", "x"), pushesTo("other", 0, "", "x"))

		for _, verb := range []string{"+ACK", "+NXT"} {
			err := refused(t, e, 400, held, framed(verb, 2), []byte(letters))
			if !strings.Contains(err.Text, `successor 1: the setting next of the queue "jobs"`) {
				t.Error(err)
			}
		}

		wantData(t, ok(t, e, "pq.mail.len", nil, ""), `{"queue":"mail","len":0}`)
		ok(t, e, held, nil, "+ACK")
		checkStore(t, e)
	})
}

// A forwarded +NXT has its successors, and two bridges push to one queue.
func TestForwardedSuccessors(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		queues, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+queues[0]+".push", nil, "first")
		wantNext(t, replies[0], "first")
		ok(t, e, "pq."+queues[0]+".config", nil, `{"next":["mail"]}`)
		acks := pushAndLease(t, e, queues[0], 10)
		before := count(t, e.Bridge, "pq_passed_total")

		for _, ack := range acks {
			_ = refused(t, e, 404, ack, framed("+NXT", 1), []byte(frames(
				pushesTo("mail", 1, "", "x"))))
		}

		wantMetric(t, e.Bridge, "pq_passed_total", before+10)
		wantData(t, ok(t, e, "pq.mail.len", nil, ""), `{"queue":"mail","len":10}`)
		checkStore(t, e)
	})
}

// Whatever dies between, each job is done and has its successors once, or neither: workers at two
// bridges repeat acknowledgements until they know, while one bridge is killed and the other starts
// again.
func TestSuccessorsOutliveBridges(t *testing.T) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		patience := func(o *bridge.Options) { o.RequestTimeout = 2 * time.Second }
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: patience})
		w := newWire(t, e)
		second := e.StartBridge(w.use, patience)
		waitForPeers(t, e.Bridge, second)
		ok(t, e, "pq.jobs.config", nil, `{"next":["mail"],"keep":"1h"}`)
		acks := pushAndLease(t, e, "jobs", 100)

		var workers sync.WaitGroup
		for i, ack := range acks {
			workers.Go(func() { acknowledgeUntilKnown(t, e, ack, fmt.Sprint(i)) })
			if i == len(acks)/2 {
				w.kill()
			}
		}
		workers.Wait()

		_ = second.Stop() // it is dead
		restart(t, e)
		var values, want []string
		for i := range acks {
			want = append(want, fmt.Sprint(i, " a"), fmt.Sprint(i, " b"))
		}
		for range want {
			values = append(values, string(ok(t, e, "pq.mail.pop.min", nil, "").Data))
		}
		slices.Sort(values)
		slices.Sort(want)
		same(t, "pushed", fmt.Sprint(values), fmt.Sprint(want))
		wantData(t, ok(t, e, "pq.mail.len", nil, ""), `{"queue":"mail","len":0}`)
		checkStore(t, e)
	})
}

// acknowledgeUntilKnown acknowledges a job with two successors until it is known to be done.
func acknowledgeUntilKnown(t *testing.T, e *testenv.Env, ack, value string) {
	m := &nats.Msg{Subject: ack, Header: framed("+ACK", 2), Data: []byte(frames(
		pushesTo("mail", 1, "", value+" a"), pushesTo("mail", 1, "", value+" b")))}
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		reply, err := e.Conn.RequestMsgWithContext(ctx, m)
		cancel()
		if err != nil {
			continue
		}
		if failed := subjects.ErrorFromHeaders(reply.Header); failed == nil ||
			failed.Reason == subjects.ReasonDone {
			return
		}
	}
	t.Errorf("%s: nobody says what became of the acknowledgement", value)
}
