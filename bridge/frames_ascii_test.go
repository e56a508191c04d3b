package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// beyondASCII returns headers of a push with values that are not ASCII.
func beyondASCII() nats.Header {
	return nats.Header{
		"Pq-Group":  {"Müller"},
		"Pq-Unique": {"schlüssel"},
		"Type":      {"größe"},
		"X":         {"\xff\xfe", "plain", "日本"},
	}
}

// withFrames adds frames to the payload of a request.
func withFrames(payload string) string {
	if payload == "" {
		return `{"frames":true}`
	}
	return strings.TrimSuffix(payload, "}") + `,"frames":true}`
}

// wantASCII fails the test if a reply has a header value that is not ASCII.
func wantASCII(t *testing.T, what string, m *nats.Msg) {
	t.Helper()
	for name, values := range m.Header {
		for _, value := range values {
			if strings.ContainsFunc(value, func(c rune) bool { return c >= 0x80 }) {
				t.Errorf("%s: the reply has a header %s: %q", what, name, value)
			}
		}
	}
}

// asInFrame makes a request without frames and with them. The first reply has a header beyond
// ASCII; the other is one frame with the same.
func asInFrame(t *testing.T, e *testenv.Env, subject, payload string) sentItem {
	t.Helper()
	queue := queueOf(subject)
	plain := unpacked(t, queue, ok(t, e, subject, nil, payload))[0]
	return wantInFrame(t, queue, ok(t, e, subject, nil, withFrames(payload)), plain)
}

// wantInFrame checks that a reply is one frame with the same as a reply without frames.
func wantInFrame(t *testing.T, queue string, m *nats.Msg, plain sentItem) sentItem {
	t.Helper()
	wantASCII(t, queue, m)
	same(t, "frames", m.Header.Get(subjects.HeaderFrames), "1")
	if strings.IndexFunc(fmt.Sprint(plain.header), func(c rune) bool { return c >= 0x80 }) < 0 {
		t.Errorf("the headers have nothing beyond ASCII without frames: %v", plain.header)
	}
	item := unpacked(t, queue, m)[0]
	wantSame(t, item, plain)
	return item
}

// A peek with frames has an item whose headers are beyond ASCII in a frame, from both ends and
// whatever its size. An item in ASCII comes as without frames.
func TestPeekInAFrame(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			for _, value := range []string{"", strings.Repeat("x", 200_000)} {
				push(t, e, kind.push, beyondASCII(), value)
				asInFrame(t, e, kind.peek, "")
				if kind.queue == "pq.jobs" {
					asInFrame(t, e, "pq.jobs.peek.max", "")
				}
				ok(t, e, kind.pop, nil, "")
			}

			push(t, e, kind.push, nats.Header{"Type": {"plain"}}, "a")
			m := ok(t, e, kind.peek, nil, `{"frames":true}`)
			wantData(t, m, "a")
			same(t, "type", m.Header.Get("Type"), "plain")
			same(t, "frames", m.Header.Get(subjects.HeaderFrames), "")
			refused(t, e, 400, kind.peek, nil, []byte(`{"frames":true,"batch":1}`))
			refused(t, e, 400, kind.peek, nil, []byte(`{"frames":1}`))
		}
	})
}

// A plain pop of one item with frames has it in a frame, at once and after a wait, on each bridge.
func TestPopInAFrame(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		here, there := ownedBy(t, e, e.Bridge, second), ownedBy(t, e, second, e.Bridge)
		for _, name := range []string{here, there} {
			queue := "pq." + name
			for _, value := range []string{"a", strings.Repeat("x", 200_000)} {
				push(t, e, queue+".push.7", beyondASCII(), value)
				plain := unpacked(t, queue, ok(t, e, queue+".peek.min", nil, ""))[0]
				wantInFrame(t, queue, ok(t, e, queue+".pop.min", nil, `{"frames":true}`), plain)
				wantLen(t, e, "pq", name, 0)

				h := nats.Header{"Type": {"größe"}}
				replies := ask(t, e.Conn, queue+".pop.max", `{"frames":true,"expires":"1h"}`)
				push(t, e, queue+".push", h, value)
				m := next(t, replies)
				wantASCII(t, queue, m)
				item := unpacked(t, queue, m)[0]
				same(t, "type", item.header.Get("Type"), "größe")
				same(t, "value", item.value, value)
			}
		}
		wantAllSettled(t, e, second)
	})
}

// A batch with frames has in frames whatever has headers beyond ASCII, also what is too large for a
// frame among others.
func TestBatchInFrames(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		values := []string{"a", strings.Repeat("x", 200_000), "c", strings.Repeat("y", 200_000)}
		for _, options := range []string{`"ack_wait":"1h"`, `"max_bytes":0`} {
			for _, kind := range kinds {
				for i, value := range values {
					push(t, e, kind.push, nats.Header{"Type": {"größe", fmt.Sprint(i)}}, value)
				}

				replies := ask(t, e.Conn, kind.pop, `{"batch":9,"frames":true,`+options+`}`)
				var items []sentItem
				for len(items) < len(values) {
					m := next(t, replies)
					wantASCII(t, kind.pop, m)
					items = append(items, unpacked(t, kind.queue, m)...)
				}
				wantEnd(t, replies, len(values), "")

				for i, item := range items {
					same(t, "value", item.value, values[i])
					same(t, "types", fmt.Sprint(item.header["Type"]),
						fmt.Sprintf("[größe %d]", i))
					if item.ack != "" {
						acknowledge(t, e, item.ack, "")
					}
				}
			}
		}
		checkStore(t, e)
	})
}

// A single lease with frames is in a frame with its token, whatever the size of the item, and ends
// at once if nobody receives it.
func TestLeaseInAFrame(t *testing.T) {
	e := start(t, testenv.Options{})
	unheard := 0
	for _, kind := range kinds {
		for _, value := range []string{"a", strings.Repeat("x", 200_000)} {
			push(t, e, kind.push, beyondASCII(), value)

			lease := `{"ack_wait":"1h","holder":"jürgen"}`
			plain := unpacked(t, kind.queue, ok(t, e, kind.pop, nil, lease))[0]
			acknowledge(t, e, plain.ack, `-NAK {"snooze":true}`)
			delete(plain.header, subjects.HeaderLeaseUntil)

			publish(t, e, kind.pop, nats.NewInbox(), withFrames(lease))
			unheard++
			wantMetric(t, e.Bridge, noResponders, float64(unheard))
			waitUntil(t, "the end of the lease that nobody received", func() bool {
				info := string(ok(t, e, kind.queue+".info", nil, "").Data)
				return strings.Contains(info, `"ready":1,"leased":0`)
			})

			m := ok(t, e, kind.pop, nil, withFrames(lease))
			framed := unpacked(t, kind.queue, m)[0]
			delete(framed.header, subjects.HeaderLeaseUntil)
			wantASCII(t, kind.pop, m)
			wantSame(t, framed, plain)
			acknowledge(t, e, framed.ack, "+ACK")
			wantError(t, 409, framed.ack, e.Request(framed.ack, nil, []byte("+ACK")))
		}
	}
	checkStore(t, e)
}

// +NXT with frames has the next item in a frame, and the numbers of the leases whose results are
// not kept beside it.
func TestNextInAFrame(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			for _, value := range []string{"b", strings.Repeat("x", 200_000)} {
				push(t, e, kind.push, nil, "a")
				push(t, e, kind.push, beyondASCII(), value)
				ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
				m := ok(t, e, ack, nats.Header{"Pq-Ack": {`+NXT {"frames":true}`}}, "result")
				wantASCII(t, ack, m)
				same(t, "not kept", m.Header.Get(subjects.HeaderNotKept), "0")
				item := unpacked(t, kind.queue, m)[0]
				same(t, "value", item.value, value)
				same(t, "group", item.header.Get("Pq-Group"), "Müller")
				acknowledge(t, e, item.ack, "")
			}
		}
	})
}

// eachState calls check with the payloads that name a job whose headers are beyond ASCII, by its id
// and by its message id, in each state in which a job can be.
func eachState(t *testing.T, e *testenv.Env, check func(queue, id, msgID, state string)) {
	for _, kind := range kinds {
		configure(t, e, kind.queue, `{"keep":"1h","trail":3}`, `{"keep":"1h0m0s","trail":3}`)
		for _, state := range []string{"ready", "delayed", "leased", "done", "dead"} {
			h := beyondASCII()
			h["Nats-Msg-Id"] = []string{"schlüssel " + state}
			id := idOf(push(t, e, kind.push, h, "value").ID)
			lease := func() string {
				return leaseOne(t, e, kind.pop, `{"ack_wait":"1h","holder":"jürgen"}`, "value")
			}
			acknowledge(t, e, lease(), `-NAK {"reason":"kein Grünton","delay":"0s"}`)
			switch state {
			case "delayed":
				acknowledge(t, e, lease(), "-NAK 1h")
			case "leased":
				m := e.Request(lease(), nats.Header{"Pq-Ack": {"+WPI"}}, []byte("hälfte"))
				wantASCII(t, "+WPI", m)
			case "done":
				h := nats.Header{"Pq-Ack": {"+ACK"}, "Content-Type": {"text/größe"}}
				wantASCII(t, "+ACK", ok(t, e, lease(), h, "ergebnis"))
			case "dead":
				acknowledge(t, e, lease(), "+TERM nicht möglich")
			}
			check(kind.queue, id, fmt.Sprintf(`{"msg_id":%q}`, h.Get("Nats-Msg-Id")), state)
			ok(t, e, kind.queue+".purge", nil, "")
			ok(t, e, kind.queue+"-dead.purge", nil, "")
		}
	}
}

// A get with frames has a job in a frame in each state, with the headers that it has without.
func TestGetInAFrame(t *testing.T) {
	e := start(t, testenv.Options{})
	eachState(t, e, func(queue, id, msgID, state string) {
		item := asInFrame(t, e, queue+".get", id)
		same(t, "state", item.header.Get("Pq-State"), strings.ReplaceAll(state, "dead", "ready"))
		same(t, "group", item.header.Get("Pq-Group"), "Müller")
		asInFrame(t, e, queue+".get", msgID)
		ids := strings.NewReplacer(`"id":`, `"ids":[`, "}", "]}").Replace(id)
		same(t, "with ids", string(ok(t, e, queue+".get", nil, withFrames(ids)).Data),
			string(ok(t, e, queue+".get", nil, ids).Data))
	})
	for _, verb := range []string{"rank", "remove", "release", "redrive"} {
		refused(t, e, 400, "pq.jobs."+verb, nil, []byte(`{"id":"x","frames":false}`))
	}
}

// A result with frames is in a frame in each state, with the headers that it has without, and also
// if it was waited for.
func TestResultInAFrame(t *testing.T) {
	e := start(t, testenv.Options{})
	eachState(t, e, func(queue, id, msgID, state string) {
		item := asInFrame(t, e, queue+".result", id)
		same(t, "state", item.header.Get("Pq-State"), state)
		asInFrame(t, e, queue+".result", msgID)
		if state == "done" {
			same(t, "result", item.value, "ergebnis")
			asInFrame(t, e, queue+".result", strings.Replace(msgID, "}", `,"expires":"1h"}`, 1))
		}
	})

	id := push(t, e, "pq.call.push.3", nats.Header{"Pq-Keep": {"1h"}}, "value").ID
	waits := ask(t, e.Conn, "pq.call.result", fmt.Sprintf(
		`{"id":%q,"expires":"1h","frames":true}`, id))
	ack := leaseOne(t, e, "pq.call.pop.min", `{"ack_wait":"1h"}`, "value")
	ok(t, e, ack, nats.Header{"Pq-Ack": {"+ACK"}, "Content-Type": {"text/größe"}}, "ergebnis")
	plain := unpacked(t, "pq.call", ok(t, e, "pq.call.result", nil, idOf(id)))[0]
	wantInFrame(t, "pq.call", next(t, waits), plain)
}

// What a client sends in frames needs no header beyond ASCII: a push is a batch of one, a result
// has its type in its frame, and call is these two.
func TestSentInFrames(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			h := beyondASCII()
			h["Nats-Msg-Id"] = []string{"nächste"}
			block, err := subjects.AppendHeaders(nil, h)
			must(t, err)
			pushed := subjects.Frame{Headers: block, Value: []byte("value")}
			reply := ok(t, e, kind.push+".batch", nil, frames(pushed))
			wantASCII(t, "push", reply)
			id := pushedIDs(t, "jobs", 1, reply.Data)[0]
			again := string(ok(t, e, kind.push+".batch", nil, frames(pushed)).Data)
			if !strings.Contains(again, id) || !strings.Contains(again, `"duplicates":[0]`) {
				t.Errorf("pushed again: %s", again)
			}

			configure(t, e, kind.queue, `{"keep":"1h"}`, `{"keep":"1h0m0s"}`)
			lease := ok(t, e, kind.pop, nil, `{"ack_wait":"1h","frames":true}`)
			item := unpacked(t, kind.queue, lease)[0]
			for name, values := range h {
				same(t, name, fmt.Sprint(item.header[name]), fmt.Sprint(values))
			}

			lines := "Pq-Token: " + tokenOf(item.ack) + "\r\nContent-Type: text/größe\r\n"
			ok(t, e, item.ack, framed("+ACK", 1), frames(frame(0, lines, "ergebnis")))
			done := unpacked(t, kind.queue,
				ok(t, e, kind.queue+".result", nil, withFrames(idOf(id))))[0]
			same(t, "result", done.value, "ergebnis")
			same(t, "type", done.header.Get("Content-Type"), "text/größe")
		}
	})
}

// An error that repeats what the client sent has it in ASCII, whatever the request was and whether
// it could be read. The payload after a push has the text itself.
func TestErrorsAreASCII(t *testing.T) {
	e := start(t, testenv.Options{})
	ack := pushAndLease(t, e, "jobs", 1)[0]
	bad := frame(0, "Pq-Delay: zwölf\r\n", "")
	for _, c := range []struct {
		subject string
		header  nats.Header
		payload string
	}{
		{"pq.jobs.push", nats.Header{"Pq-Delay": {"zwölf"}}, "x"},
		{"q.jobs.push", nats.Header{"Nats-Expected-Stream": {"größe"}}, "x"},
		{"pq.jobs.push.batch", nil, frames(bad)},
		{"pq.jobs.pushö", nil, "x"},
		{"pq.größe.len", nil, ""},
		{"pq.jobs.pop.min", nil, `{"größe":1}`},
		{"pq.jobs.pop.min", nil, `{"frames":true,"expires":"1h","id":"größe"}`},
		{"q.jobs.pop", nil, `{"frames":true,"batch":2,"ack_wait":"zwölf"}`},
		{"pq.jobs.peek.max", nil, `{"größe":1}`},
		{"q.jobs.get", nil, `{"id":"größe","frames":true}`},
		{"q.jobs.result", nil, `{"id":"größe","frames":true}`},
		{ack, nil, "größe"},
		{ack, nats.Header{"Pq-Ack": {"größe"}}, ""},
		{ack, framed("+ACK", 1), frames(frame(0, "Pq-Queue: größe\r\n", ""))},
		{"pq.jobs.items", nil, `{"state":"größe"}`},
		{"pq.jobs.config", nil, `{"größe":1}`},
		{"pq.jobs.schedule", nil, `{"größe":1}`},
		{"pq.jobs.unschedule", nil, `{"id":"größe"}`},
		{"pq.list", nil, `{"größe":1}`},
	} {
		m := e.Request(c.subject, c.header, []byte(c.payload))
		wantASCII(t, c.subject, m)
		err := replyError(m.Header)
		if err == nil || !strings.Contains(err.Error(), `\u00f6`) {
			t.Errorf("%s: got %v", c.subject, err)
		}
	}

	m := e.Request("q.jobs.push", nats.Header{"Nats-Expected-Stream": {"größe"}}, nil)
	if !strings.Contains(string(m.Data), `the stream \"größe\" is expected`) {
		t.Errorf("the payload is %s", m.Data)
	}
}

// With frames no reply has a header beyond ASCII, to any request, to any kind of queue, though all
// that users can name is.
func TestNoReplyBeyondASCII(t *testing.T) {
	e := start(t, testenv.Options{})
	grammar, err := subjects.New("pq", "q")
	must(t, err)
	requests := map[subjects.Verb][]string{
		subjects.Push:      {"value"},
		subjects.PushBatch: {frames(frame(0, "Type: größe\r\n", ""))},
		subjects.Pop: {
			`{"frames":true}`, `{"frames":true,"batch":2}`, `{"frames":true,"ack_wait":"1h"}`,
			`{"frames":true,"ack_wait":"1h","batch":2,"holder":"jürgen"}`,
			`{"frames":true,"max_bytes":1}`, `{"frames":true,"batch":2,"max_bytes":1}`,
		},
		subjects.Peek:       {`{"frames":true}`},
		subjects.Len:        {""},
		subjects.AckLease:   {"+WPI", `+NXT {"frames":true}`, "größe"},
		subjects.Config:     {`{"paused_groups":["größe"]}`, ""},
		subjects.Info:       {""},
		subjects.List:       {""},
		subjects.Get:        {`{"id":%q,"frames":true}`, `{"ids":[%q]}`, `{"msg_id":"größe"}`},
		subjects.Result:     {`{"id":%q,"frames":true}`, `{"msg_id":"größe","frames":true}`},
		subjects.Rank:       {`{"id":%q}`},
		subjects.Items:      {`{"match":"größe"}`, `{"state":"leased"}`},
		subjects.Move:       {`{"id":%q,"priority":3}`},
		subjects.Release:    {`{"id":%q}`},
		subjects.Remove:     {`{"id":%q}`, `{"ids":[%q]}`},
		subjects.Schedule:   {`{"id":"größe","every":"1h","headers":{"A":["ü"]}}`},
		subjects.Schedules:  {""},
		subjects.Unschedule: {`{"id":"größe"}`},
		subjects.Purge:      {`{"state":"ready"}`, ""},
		subjects.Redrive:    {"", `{"ids":[%q]}`},
	}
	requests[subjects.PopMax] = requests[subjects.Pop]
	requests[subjects.PeekMax] = requests[subjects.Peek]

	answered := 0
	for _, endpoint := range grammar.Endpoints() {
		payloads := requests[endpoint.Verb]
		if len(payloads) == 0 {
			t.Errorf("%s: no request", endpoint.Name)
		}
		prefix := grammar.Prefix(endpoint.Kind)
		for _, payload := range payloads {
			ok(t, e, prefix+".jobs.purge", nil, "")
			ok(t, e, prefix+".jobs.config", nil, `{"paused_groups":null,"trail":3}`)
			h := beyondASCII()
			h["Nats-Msg-Id"] = []string{fmt.Sprint("nächste ", answered)}
			id := push(t, e, prefix+".jobs.push", h, "value").ID
			ack := leaseOne(t, e, popOf(prefix, "jobs"), `{"ack_wait":"1h"}`, "value")
			push(t, e, prefix+".jobs.push", nats.Header{"Type": {"größe"}}, "value")

			subject := strings.Replace(endpoint.Subject, "*", "jobs", 1)
			switch endpoint.Verb {
			case subjects.AckLease:
				subject = ack
			case subjects.Get, subjects.Result, subjects.Release: // in the state leased
			default:
				acknowledge(t, e, ack, `-NAK {"reason":"kein Grünton"}`)
			}
			if endpoint.HasPriority {
				subject = strings.Replace(subject, "*", "4", 1)
			}
			if strings.Contains(payload, "%q") {
				payload = fmt.Sprintf(payload, id)
			}

			what := subject + " " + payload
			replies := ask(t, e.Conn, subject, payload)
			for more := true; more; answered++ {
				m := next(t, replies)
				wantASCII(t, what, m)
				_, ends, _ := subjects.ParseBatchEnd(m.Header)
				more = strings.Contains(payload, `"batch"`) && !ends
			}
		}
	}
	if answered < len(grammar.Endpoints()) {
		t.Errorf("%d replies", answered)
	}
	checkStore(t, e)
}

// The largest item with headers beyond ASCII that can be pushed has room for a frame, where the
// headers of the bridge have none: the lease has its token. A larger one is refused.
func TestFramesOfTheLargestItem(t *testing.T) {
	e := start(t, testenv.Options{})
	const headers = "NATS/1.0\r\nType: größe\r\n\r\n"
	const frameRoom = 160
	h := nats.Header{"Type": {"größe"}}
	value := strings.Repeat("x", int(e.Conn.MaxPayload())-len(headers)-frameRoom)
	for _, kind := range kinds {
		err := refused(t, e, 413, kind.push, h, []byte(value+"x"))
		same(t, "reason", err.Reason, subjects.ReasonSize)
		push(t, e, kind.push, nats.Header{"Type": {"grosse"}}, value+"x")
		ok(t, e, kind.pop, nil, "")

		// These headers have as many bytes.
		unique := nats.Header{"Pq-Unique": {"ö"}}
		refused(t, e, 413, kind.push, unique, []byte(value+"x"))

		id := push(t, e, kind.push, h, value).ID
		wantAlone := func(m *nats.Msg, token bool) string {
			t.Helper()
			wantASCII(t, kind.queue, m)
			list, err := subjects.ParseFrames(m.Data)
			must(t, err)
			item, err := nats.DecodeHeadersMsg(list[0].Headers)
			must(t, err)
			same(t, "type", item.Get("Type"), "größe")
			same(t, "the value is the same", string(list[0].Value) == value, true)
			same(t, "with a token", item.Get("Pq-Token") != "", token)
			return kind.queue + ".ack." + item.Get("Pq-Token")
		}

		wantAlone(ok(t, e, kind.peek, nil, `{"frames":true}`), false)
		wantAlone(ok(t, e, kind.queue+".get", nil, withFrames(idOf(id))), false)
		ack := wantAlone(ok(t, e, kind.pop, nil, `{"frames":true,"ack_wait":"1h"}`), true)
		acknowledge(t, e, ack, "-NAK")
		replies := ask(t, e.Conn, kind.pop, `{"frames":true,"batch":2,"ack_wait":"1h"}`)
		ack = wantAlone(next(t, replies), true)
		wantEnd(t, replies, 1, "")
		acknowledge(t, e, ack, "-NAK")
		wantAlone(ok(t, e, kind.pop, nil, `{"frames":true}`), false)
	}
}

// An item that another program stored without room for a frame stays where it is for clients that
// ask for frames, with an error in ASCII; others get it.
func TestNoRoomForAFrame(t *testing.T) {
	e := start(t, testenv.Options{})
	const headers = "NATS/1.0\r\nType: größe\r\n\r\n"
	value := make([]byte, int(e.Conn.MaxPayload())-len(headers))
	store(t, e, 0, fdbpq.Message{
		Value: value, Headers: map[string][]string{"Type": {"größe"}},
	})
	for _, options := range []string{`{"frames":true}`, `{"frames":true,"ack_wait":"1h"}`} {
		err := refused(t, e, 413, "pq.jobs.pop.min", nil, []byte(options))
		same(t, "reason", err.Reason, subjects.ReasonSize)
	}
	refused(t, e, 413, "pq.jobs.peek.min", nil, []byte(`{"frames":true}`))
	m := ok(t, e, "pq.jobs.pop.min", nil, "")
	same(t, "bytes", len(m.Data), len(value))
	same(t, "type", m.Header.Get("Type"), "größe")
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
}

// A client of another account can acknowledge a lease in a frame by its token and by the reply
// subject of its message.
func TestLeasesInFramesForAnotherAccount(t *testing.T) {
	e := withAccounts(t, farAccount)

	for _, options := range []string{"", `,"batch":2`} {
		for _, value := range []string{"a", strings.Repeat("x", 200_000)} {
			for _, byToken := range []bool{true, false} {
				push(t, e, "far.jobs.push", beyondASCII(), value)
				replies := ask(t, e.Conn, "far.jobs.pop.min",
					`{"ack_wait":"1h","frames":true`+options+`}`)
				m := next(t, replies)
				wantASCII(t, options, m)
				item := unpacked(t, "far.jobs", m)[0]
				same(t, "type", item.header.Get("Type"), "größe")
				if !byToken {
					item.ack = m.Reply
				}
				acknowledge(t, e, item.ack, "+ACK")
				wantLen(t, e, "far", "jobs", 0)
			}
		}
	}
}
