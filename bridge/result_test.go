package bridge_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// resultOf returns a frame with the result of a lease.
func resultOf(ack, result string) subjects.Frame {
	return frame(0, "Pq-Token: "+tokenOf(ack)+"\r\n", result)
}

// A bad acknowledgement in the header, or bad results, are refused with what would be right,
// whether nats.go sends them or a client without a library. Nothing is done, and the lease goes on.
func TestBadResults(t *testing.T) {
	e := start(t, testenv.Options{
		Bridge: func(o *bridge.Options) { o.MaxResult = 100 },
	})
	acks := pushAndLease(t, e, "jobs", 3)
	other := pushAndLease(t, e, "other", 1)[0]
	c := dialRaw(t, e)

	const header = "header Pq-Ack"
	both := "Pq-Ack: " + alsoPayload("+ACK", acks[1:2]) + "\r\n"
	two := both + "Pq-Frames: 2\r\n"
	first, large := resultOf(acks[0], "x"), strings.Repeat("x", 101)
	token := "Pq-Token: " + tokenOf(acks[1]) + "\r\n"
	for _, test := range []struct{ name, headers, payload, text string }{
		{"no value", "Pq-Ack: \r\n", "x", header + " without a value: want +ACK"},
		{"no acknowledgement", "Pq-Ack: done\r\n", "x", header + `: bad options: "done"`},
		{"bad options", "Pq-Ack: +ACK {\"all\":1}\r\n", "x", `unknown member "all"`},
		{"twice", "Pq-Ack: +ACK\r\nPq-Ack: +ACK\r\n", "x", header + " given 2 times"},
		{"in lower case", "pq-ack: +ACK\r\n", "x", `unknown header "pq-ack": of the headers ` +
			"that begin with Pq-, ack takes only these, spelled like this: Pq-Ack, Pq-Frames"},
		{"result of -NAK", "Pq-Ack: -NAK 5s\r\n", "x", `"-NAK 5s" with a payload of 1 bytes`},
		{"result of +TERM", "Pq-Ack: +TERM no\r\n", "x", `"+TERM no" with a payload of 1 bytes`},
		{"progress of 1 KiB and a byte", "Pq-Ack: +WPI\r\n", strings.Repeat("x", 1025),
			header + ": +WPI with a progress of 1025 bytes: want at most 1024"},
		{"frames of -NAK", "Pq-Ack: -NAK\r\nPq-Frames: 1\r\n", "", "header Pq-Frames with"},
		{"type of a result", "Pq-Ack: +ACK\r\nContent-Type: " + strings.Repeat("x", 257) + "\r\n",
			"x", "header Content-Type: bad request: 257 bytes"},
		{"two types", "Pq-Ack: +ACK\r\nContent-Type: a\r\nContent-Type: b\r\n", "x",
			"header Content-Type given twice"},
		{"large result", "Pq-Ack: +ACK\r\n", large, "a result of 101 bytes: want at most 100"},
		{"large result, and next", "Pq-Ack: +NXT\r\n", large, "a result of 101 bytes"},

		{"frames alone", "Pq-Frames: 1\r\n", "", "header Pq-Frames without Pq-Ack"},
		{"frames twice", two + "Pq-Frames: 2\r\n", "x", "header Pq-Frames given 2 times"},
		{"no number", both + "Pq-Frames: two\r\n", "x", `header Pq-Frames: "two": want the number`},
		{"no frame", both + "Pq-Frames: 0\r\n", "", `header Pq-Frames: "0": want the number`},
		{"more than leases", both + "Pq-Frames: 259\r\n", "x", "from 1 to 258: one for each"},
		{"fewer frames", two, frames(first), "header Pq-Frames: 2, but the payload has 1 frames"},
		{"more frames", "Pq-Ack: +ACK\r\nPq-Frames: 1\r\n", frames(first, first),
			"header Pq-Frames: 1, but the payload has 2 frames"},
		{"no frames at all", two, "x", "header Pq-Frames: bad frames: frame 0 ends after " +
			"1 bytes: want 16 bytes for its priority and lengths"},
		{"nothing", two, "", "header Pq-Frames: bad frames: there are none: want"},
		{"very many frames", two, strings.Repeat(frames(frame(0, "", "")), subjects.MaxFrames+1),
			"header Pq-Frames: too many frames: want at most"},
		{"a lease twice", two, frames(first, first), "frame 1: bad request: header Pq-Token: the " +
			"lease 0 has a result already"},
		{"not acknowledged", two, frames(first, resultOf(acks[2], "x")),
			"frame 1: bad request: header Pq-Token: \"F"},
		{"of another queue", two, frames(first, resultOf(other, "x")),
			"want the token of a lease that this acknowledges"},
		{"no token", two, frames(first, frame(0, "", "x")),
			"frame 1: bad request: header Pq-Token given 0 times"},
		{"two tokens", two, frames(first, frame(0, token+token, "x")), "Pq-Token given 2 times"},
		{"successor", two, frames(first, frame(0, "Pq-Queue: mail\r\n", "x")),
			`successor 0: the setting next of the queue "jobs" does not name the queue "mail"`},
		{"foreign parent", two,
			frames(first, frame(0, "Pq-Token: other\r\nPq-Queue: mail\r\n", "x")),
			`frame 1: bad request: header Pq-Token: "othe"...: want the token of a lease`},
		{"two parents", two, frames(first, frame(0, token+token+"Pq-Queue: mail\r\n", "x")),
			"frame 1: bad request: header Pq-Token given 2 times"},
		{"two queues", two, frames(first, frame(0, "Pq-Queue: a\r\nPq-Queue: b\r\n", "x")),
			"frame 1: bad request: header Pq-Queue given 2 times"},
		{"bad queue", two, frames(first, frame(0, "Pq-Queue: a.b\r\n", "x")),
			"frame 1: header Pq-Queue: bad queue name"},
		{"queue in lower case", two, frames(first, frame(0, "pq-queue: a\r\n", "x")),
			"header \"pq-queue\": of the headers"},
		{"message id", two, frames(first, frame(0, "Pq-Queue: a\r\nNats-Msg-Id: 1\r\n", "x")),
			"frame 1: bad request: header Nats-Msg-Id with Pq-Queue: leave it out"},
		{"unique key", two, frames(first, frame(0, "Pq-Queue: a\r\nPq-Unique: 1\r\n", "x")),
			"header Pq-Unique with Pq-Queue: leave it out"},
		{"weight", two, frames(first,
			frame(0, "Pq-Queue: a\r\nPq-Group: g\r\nPq-Weight: 2\r\n", "x")),
			"header Pq-Weight with Pq-Queue: leave it out"},
		{"unknown header", two, frames(first, frame(0, "Pq-Queue: a\r\nPq-A: 2\r\n", "x")),
			`frame 1: bad request: unknown header "Pq-A": of the headers that begin with Pq-, ` +
				"what an acknowledgement pushes takes only these, spelled like this: " +
				"Pq-Priority, Pq-Delay, Pq-Group, Pq-Keep"},
		{"blank before a colon", two, frames(first, frame(0, token+"Content-Type : a\r\n", "x")),
			`frame 1: bad request: header "Content-Type " has a blank in its name`},
		{"bad delay", two, frames(first, frame(0, "Pq-Queue: a\r\nPq-Delay: x\r\n", "x")),
			"frame 1: header Pq-Delay: bad time"},
		{"frames in a frame", two, frames(first,
			frame(0, "Pq-Queue: a\r\nPq-Frames: 2\r\n", "x")),
			"frame 1: bad request: header Pq-Frames"},
		{"other header", two, frames(first, frame(0, token+"Pq-Delay: 5s\r\n", "x")),
			"frame 1: bad request: header \"Pq-Delay\": of the headers"},
		{"token in lower case", two, frames(first, frame(0, strings.ToLower(token), "x")),
			"header \"pq-token\": of the headers"},
		{"priority", two, frames(first, frame(5, token, "x")), "frame 1: bad request: priority 5"},
		{"many lines", two, frames(first, frame(0, token+strings.Repeat("a:b\r\n", 1000), "x")),
			"frame 1: bad request: 1001 header lines"},
		{"bad block", two, frames(first, frame(0, token+"a: b\nc: d\r\n", "x")),
			"frame 1: bad request: the headers can be read in more than one way"},
		{"no block", two, frames(first, subjects.Frame{Headers: []byte("x")}),
			"frame 1: bad request: the headers cannot be read"},
		{"large result in a frame", two, frames(first, frame(0, token, large)),
			"frame 1: bad request: a result of 101 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			block := "NATS/1.0\r\n" + test.headers + "\r\n"
			err := refused(t, e, 400, acks[0], decoded(t, block), []byte(test.payload))
			if !strings.Contains(err.Text, test.text) {
				t.Errorf("%q: want it to say %q", err.Text, test.text)
			}

			c.t = t
			m := c.request(acks[0], block, test.payload)
			if got := replyError(decoded(t, m.headers)); got == nil || got.Error() != err.Error() {
				t.Errorf("over TCP: %v, want %v", got, err)
			}
		})
	}

	// A refused one without a reply subject is counted.
	before := count(t, e.Bridge, "pq_unanswered_total")
	must(t, e.Conn.PublishMsg(&nats.Msg{
		Subject: acks[0], Header: nats.Header{"Pq-Ack": {"+ACK"}}, Data: []byte(large),
	}))
	wantMetric(t, e.Bridge, "pq_unanswered_total", before+1)

	acknowledge(t, e, acks[0], alsoPayload("+ACK", acks[1:]))
	acknowledge(t, e, other, "+ACK")
	checkStore(t, e)
}

// A result is not kept of a job that is not, and the reply says so, also if it brings the next
// item. A lease without a result is not named.
func TestResultsThatAreNotKept(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		acks := pushAndLease(t, e, "jobs", 6)
		push(t, e, "pq.jobs.push", nil, "next")
		header := func(value string) nats.Header { return nats.Header{"Pq-Ack": {value}} }

		m := ok(t, e, acks[0], header("+ACK"), "result")
		same(t, "not kept", m.Header.Get("Pq-Not-Kept"), "0")

		m = ok(t, e, acks[1], nil, "+ACK")
		same(t, "not kept without a result", m.Header.Get("Pq-Not-Kept"), "")

		h := header(alsoPayload("+ACK", acks[3:5]))
		h["Pq-Frames"] = []string{"2"}
		m = ok(t, e, acks[2], h, frames(resultOf(acks[4], "x"), resultOf(acks[2], "y")))
		same(t, "not kept of several", m.Header.Get("Pq-Not-Kept"), "0,2")

		m = ok(t, e, acks[5], header("+NXT"), "result")
		wantData(t, m, "next")
		same(t, "not kept before the next", m.Header.Get("Pq-Not-Kept"), "0")
		acknowledge(t, e, m.Reply, "+ACK")
		checkStore(t, e)
	})
}

// The reply to an acknowledgement of more than a transaction has room for says whose values were
// dropped, as the list of the jobs does.
func TestValuesThatAreDropped(t *testing.T) {
	const n, size = 60, 200_000
	e := start(t, testenv.Options{})
	configure(t, e, "pq.jobs", `{"keep":"1h"}`, `{"keep":"1h0m0s"}`)
	var acks, ids []string
	for range n {
		id := push(t, e, "pq.jobs.push", nil, strings.Repeat("x", size)).ID
		m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
		ids, acks = append(ids, id), append(acks, m.Reply)
	}

	m := ok(t, e, acks[0], nil, alsoPayload("+ACK", acks[1:]))

	dropped, err := subjects.ParseNumbers(m.Header, subjects.HeaderValueDropped, n)
	must(t, err)
	if len(dropped) == 0 || len(dropped) == n {
		t.Errorf("%d of %d values were dropped: the test tests little", len(dropped), n)
	}
	jobs := 0
	for o, more := (subjects.ItemsOptions{State: subjects.StateDone}), true; more; {
		page := parsed[subjects.ItemsPage](t, e, "pq.jobs.items", string(o.Encode()))
		for _, item := range page.Items {
			number := slices.Index(ids, item.ID)
			same(t, "dropped "+item.ID, item.ValueDropped, slices.Contains(dropped, number))
		}
		jobs += len(page.Items)
		if more = page.Next != nil; more {
			o.After = *page.Next
		}
	}
	same(t, "jobs", jobs, n)

	push(t, e, "pq.jobs.push", nil, "small")
	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "small")
	same(t, "dropped of one", ok(t, e, ack, nil, "+ACK").Header.Get("Pq-Value-Dropped"), "")
}

// A forwarded acknowledgement has its headers and its result. One that reads like -NAK does not
// give the job back.
func TestResultsAreForwarded(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		queues, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+queues[0]+".push", nil, "first")
		wantNext(t, replies[0], "first")

		acks := pushAndLease(t, e, queues[0], 3)
		push(t, e, "pq."+queues[0]+".push", nil, "next")
		before := count(t, e.Bridge, "pq_passed_total")
		h := nats.Header{
			"Pq-Ack":    {alsoPayload("+NXT", acks[1:])},
			"Pq-Frames": {strconv.Itoa(len(acks))},
		}
		var results []subjects.Frame
		for _, ack := range acks {
			results = append(results, resultOf(ack, "-NAK"))
		}

		// An error of the owner names the fault as well.
		err := refused(t, e, 400, acks[0], h, []byte("-NAK"))
		if !strings.Contains(err.Text, "Pq-Frames") {
			t.Errorf("%v", err)
		}

		m := ok(t, e, acks[0], h, frames(results...))

		wantData(t, m, "next")
		same(t, "not kept", m.Header.Get("Pq-Not-Kept"), "0,1,2")

		h = nats.Header{"Pq-Ack": {"+NXT"}}
		m = e.Request(m.Reply, h, []byte("-NAK"))
		wantError(t, 404, fmt.Sprint(m.Header), m)
		same(t, "not kept", m.Header.Get("Pq-Not-Kept"), "0")
		wantMetric(t, e.Bridge, "pq_passed_total", before+2)
	})
}

// Pq-Keep comes back with the item, in one form, from any kind of pop.
func TestKeepComesBack(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			ok(t, e, kind.push, nats.Header{"Pq-Keep": {"90m"}, "X": {"y"}}, "a")
			ok(t, e, kind.push+".batch", nil, frames(frame(0, "Pq-Keep: 1h30m\r\n", "b")))

			for range 2 {
				m := ok(t, e, kind.pop, nil, `{"ack_wait":"1h","frames":true}`)

				list, err := subjects.ParseFrames(m.Data)
				must(t, err)
				h := decoded(t, string(list[0].Headers))
				same(t, "keep", h.Get("Pq-Keep"), "1h30m0s")
			}
		}
		checkStore(t, e)
	})
}

// What a worker says of its job is shown until it says something else, or the lease ends.
func TestProgress(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			id := push(t, e, kind.push, nil, "a").ID
			wantProgress := func(want string) {
				t.Helper()
				j, _ := jobInfo(t, e, kind.queue, idOf(id))
				same(t, "progress", string(j.Progress), want)
				page := parsed[subjects.ItemsPage](t, e, kind.queue+".items", "")
				same(t, "progress of the item", string(page.Items[0].Progress), want)
				m := ok(t, e, kind.queue+".get", nil, idOf(id))
				same(t, "header", m.Header.Get("Pq-Progress"),
					base64.StdEncoding.EncodeToString([]byte(want)))
			}
			ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h","holder":"ann"}`, "a")
			wantProgress("")

			h := nats.Header{"Pq-Ack": {"+WPI"}}
			largest := strings.Repeat("\x00", 1024)
			for _, progress := range []string{"10 %", "half\xff\n", largest} {
				m := ok(t, e, ack, h, progress)
				same(t, "lease", m.Header.Get("Pq-Ack-Wait"), "1h0m0s")
				wantProgress(progress)
			}

			acknowledge(t, e, ack, "+WPI") // says nothing new
			ok(t, e, ack, h, "")
			wantProgress(largest)

			acknowledge(t, e, ack, "-NAK")
			wantProgress("")
			ack = leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			wantProgress("")
			acknowledge(t, e, ack, "+ACK")
			checkStore(t, e)
		}
	})
}
