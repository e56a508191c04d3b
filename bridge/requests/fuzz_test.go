package requests

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// carried returns a header's value as NATS delivers it.
func carried(value string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(textproto.TrimString(value))
}

// encoded returns the block in which the NATS client sends headers.
func encoded(h nats.Header) string {
	var b strings.Builder
	b.WriteString("NATS/1.0\r\n")

	for name, values := range h {
		for _, value := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, carried(value))
		}
	}

	b.WriteString("\r\n")
	return b.String()
}

// sent returns the headers as a receiver parses them.
func sent(t *testing.T, h nats.Header) nats.Header {
	t.Helper()
	block := encoded(h)
	if limit := wire.HeaderSize(h); len(h) > 0 && len(block) > limit {
		t.Fatalf("%q takes %d bytes, more than the %d that were counted", h, len(block), limit)
	}

	got, err := nats.DecodeHeadersMsg([]byte(block))
	if err != nil {
		t.Fatalf("%q is sent as %q: %v", h, block, err)
	}

	return got
}

// replied returns what a reply says about an error, as its receiver reads it.
func replied(t *testing.T, err error) *subjects.Error {
	t.Helper()
	return subjects.ErrorFromHeaders(sent(t, failureHeaders(Failure(err), err)))
}

// FuzzDecode: a request with any headers either is refused with an error that can be
// sent, or comes back from the store unchanged.
func FuzzDecode(f *testing.F) {
	for _, headers := range []string{
		"", "Trace: a\r\nTrace: b\r\nother: \r\n", "Pq-Priority: 5\r\n",
		"Pq-Priority:-7\r\nPq-Priority: -007\r\n", "pq-priority: 5\r\n", "Pq-Wait: 5s\r\n",
		"Nats-Service-Error: x\r\n", "Status: 503 \r\n", "no name: x\r\n", "a: x\ry \r\n",
		"a:\xff\x00\r\n", "Pq-Priority: 5\r\nStatus: \t503\r\r\n",
		"Pq-Keep: 1h30m\r\n", "Pq-Ack: +ACK\r\n",
	} {
		f.Add(uint8(0), headers, []byte("payload"))
		f.Add(uint8(1), headers, []byte{})
		f.Add(uint8(2), headers, []byte("payload"))
		f.Add(uint8(3), headers, []byte{})
	}

	requests := []subjects.Request{
		{Verb: subjects.Push, Queue: "jobs"},
		{Verb: subjects.Push, Queue: "jobs", HasPriority: true, Priority: -7},
		{Verb: subjects.Push, Queue: "jobs", Kind: subjects.FIFO},
		{Verb: subjects.Pop, Queue: "jobs"},
	}
	for _, pop := range []string{`{"batch":3,"expires":"5s","id":"a"}`, `{"cancel":"a"}`} {
		f.Add(uint8(len(requests)-1), "", []byte(pop))
	}

	f.Fuzz(func(t *testing.T, verb uint8, block string, payload []byte) {
		h, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + block + "\r\n"))
		if err != nil {
			return // the handler refuses these: see TestUnreadableHeaders
		}

		r := requests[int(verb)%len(requests)]
		q, err := decoded(new(Handler), r, &nats.Msg{Header: h, Data: payload})
		if err != nil {
			told := replied(t, err)
			if told == nil || told.Code != 400 || told.Text == "" || len(told.Text) > 1000 {
				t.Fatalf("%v is sent as %v", err, told)
			}

			return
		}

		if verbs[r.Verb].op == fdbpq.OpPush {
			checkStored(t, r, &q.ops[0], string(payload))
		}
	})
}

// FuzzDecodeFrames: any batch either is refused as a whole, with an error that can be sent,
// or each item of it is what a push of its own would store.
func FuzzDecodeFrames(f *testing.F) {
	const block = "NATS/1.0\r\na: b\r\n\r\n"
	for _, headers := range []string{
		"", block, "NATS/1.0\r\nPq-Priority: 5\r\n\r\n", "NATS/1.0 503\r\n\r\n", "NATS/1.0\r\n\r\n",
		"NATS/1.0\r\na: b\nc: d\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id: 1\r\nPq-Unique: k\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n", "NATS/1.0\r\nPq-Unique: k\r\nPq-Unique: k\r\n\r\n",
		"NATS/1.0\r\nNats-Expected-Stream: jobs\r\n\r\n", "NATS/1.0\r\na:b\r\n\r\n", block + "x",
		block[:len(block)-2],
	} {
		f.Add(true, int64(5), []byte(headers), []byte("value"), []byte{})
		f.Add(false, int64(0), []byte(headers), []byte{}, []byte{})
	}

	f.Add(true, int64(0), []byte{}, []byte{}, []byte("x"))
	f.Fuzz(func(t *testing.T, isPriority bool, priority int64, headers, value, rest []byte) {
		r := subjects.Request{Verb: subjects.PushBatch, Kind: subjects.FIFO, Queue: "jobs"}
		if isPriority {
			r.Kind = subjects.Priority
		}

		payload := subjects.AppendFrame(nil, subjects.Frame{Value: []byte("first")})
		payload = subjects.AppendFrame(payload,
			subjects.Frame{Priority: priority, Headers: headers, Value: value})
		batch, err := decoded(new(Handler), r, &nats.Msg{Data: append(payload, rest...)})
		if err != nil {
			if told := replied(t, err); told == nil || told.Code != 400 || len(told.Text) > 1000 {
				t.Fatalf("%v is sent as %v", err, told)
			}
			return
		}

		if len(rest) > 0 {
			return
		}

		// The second, as a push of its own.
		h, _ := nats.DecodeHeadersMsg(headers)
		alone := subjects.Request{
			Verb:        subjects.Push,
			Kind:        r.Kind,
			Queue:       r.Queue,
			Priority:    priority,
			HasPriority: isPriority,
		}

		if err := checkBlock(h, len(headers)); err != nil {
			t.Fatalf("%q: %v", headers, err)
		}

		single, err := decoded(new(Handler), alone, &nats.Msg{Header: h, Data: value})
		if err != nil {
			t.Fatalf("%q: %v", headers, err)
		}

		ops, want := batch.ops, single.ops[0]
		want.Follows = true
		want.Message.Value = ops[1].Message.Value // an empty one may be nil
		if len(ops) != 2 || !reflect.DeepEqual(ops[1], want) ||
			string(want.Message.Value) != string(value) {
			t.Fatalf("decoded %+v, want %+v", ops, want)
		}

		alone.Priority = ops[1].Priority
		checkStored(t, alone, &ops[1], string(value))
	})
}

// checkStored pushes and pops what was decoded, and compares the reply.
func checkStored(t *testing.T, r subjects.Request, op *fdbpq.Op, payload string) {
	t.Helper()
	item := pushAndPop(t, r, *op)
	if string(item.Value) != payload {
		t.Fatalf("payload %q came back as %q", payload, item.Value)
	}

	var e encoder
	got := sent(t, e.itemHeaders(&dispatch.Queue{Name: r.Queue, Kind: r.Kind}, &item))
	if err := subjects.ErrorFromHeaders(got); err != nil {
		t.Fatalf("%q came back as the error %v", op.Message.Headers, err)
	}
	if subjects.IsStatus(got, item.Value) {
		t.Fatalf("%q came back as %q: a message of the server", op.Message.Headers, got)
	}

	p, err := subjects.ParsePriority(got.Get(subjects.HeaderPriority))
	if r.Kind == subjects.Priority && (err != nil || p != op.Priority) {
		t.Fatalf("priority %d came back as %q", op.Priority, got)
	}

	for _, name := range []string{
		subjects.HeaderID, subjects.HeaderPriority, subjects.HeaderPushedAt,
		subjects.HeaderTraceDest,
	} {
		delete(got, name)
	}

	want := nats.Header{}
	for name, values := range op.Message.Headers {
		for _, value := range values {
			want[name] = append(want[name], carried(value))
		}
	}

	setProperties(want, &fdbpq.Message{
		MsgID: carried(op.Message.MsgID), Unique: carried(op.Message.Unique), Keep: op.Message.Keep,
	})
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("headers %q came back as %q", want, got)
	}
}

func pushAndPop(t *testing.T, r subjects.Request, op fdbpq.Op) fdbpq.Item {
	t.Helper()
	db := memkv.New(memkv.Options{})
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)

	if r.Kind == subjects.FIFO {
		op.Queue, err = keyspace.Queue(r.Queue)
	} else {
		op.Queue, err = keyspace.PriorityQueue(r.Queue)
	}
	must(t, err)
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: op.Queue}
	results, err := fdbpq.NewBatcher(db, keyspace).Start(t.Context(), []fdbpq.Op{op, pop}).Wait()

	if err == nil {
		err = errors.Join(results[0].Err, results[1].Err)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}

	return results[1].Item
}

// FuzzHeaderBlock: whatever precedes the payload of a push, and whatever headers an
// item is stored with, a NATS server finds nothing in the reply to act on.
func FuzzHeaderBlock(f *testing.F) {
	for _, block := range []string{
		"", "a: b\r\n", "Nats-Trace-Dest: x\r\n", "a: b\nNats-Trace-Dest: x\r\n",
		"a: b\r\n\r\nNats-Trace-Dest:x\r\n", "a:b\rNats-Rollup: all\r\n",
		"traceparent: 00-a-b-01\r\n",
		"TraceParent:00-a-b-ff\r\nNats-Trace-Dest: trace disabled\r\n", "nats-trace-dest:x\r\n",
		" Nats-Trace-Dest: x\r\n", ": x\r\nNats-Trace-Only: 1\r\n", "Nats-Trace-Dest : x\r\n",
		"a: \x00\r\nNmqtt-Pub:1\r\n", "Nats-Trace-Dest: trace disabled\r\nNats-Trace-Dest: x\r\n",
		"Nats-Schedule-Whatever: x\r\nNats-Msg-Id: 1\r\n", "a: b\n\n", "Status: 404\r\n",
	} {
		f.Add(block)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		block := "NATS/1.0\r\n" + lines + "\r\n"
		h, err := nats.DecodeHeadersMsg([]byte(block))
		if err != nil {
			return
		}

		q := &dispatch.Queue{Name: "jobs"}
		var e encoder
		stored := fdbpq.Item{Message: fdbpq.Message{Headers: maps.Clone(h)}}

		for _, reply := range []nats.Header{
			maps.Clone(e.itemHeaders(q, &stored)), e.itemAlone(&stored),
		} {
			// Else the reply is not sent.
			if !slices.ContainsFunc(slices.Collect(maps.Keys(reply)),
				func(name string) bool { return !subjects.ValidHeaderName(name) }) {
				checkInert(t, reply)
			}
			if subjects.IsStatus(reply, nil) {
				t.Fatalf("%q is a message of the server", reply)
			}
		}

		op := fdbpq.Op{Kind: fdbpq.OpPush}
		m := &nats.Msg{Header: h, Data: []byte("x")}
		r := subjects.Request{Verb: subjects.Push, Queue: "jobs"}

		if checkBlock(h, len(block)) != nil {
			return
		}
		if _, err := decodePush(m, &r, &op); err != nil {
			return
		}
		checkInert(t, e.itemHeaders(q, &fdbpq.Item{Message: op.Message}))
	})
}

// checkInert fails the test if a NATS server would act on a message with the headers.
func checkInert(t *testing.T, h nats.Header) {
	t.Helper()
	block := encoded(h)
	if traced(block) {
		t.Fatalf("a server traces %q", block)
	}

	for _, list := range []nats.Header{harness.NATSActsOn, harness.NATSAdds} {
		for name := range list { // as the server's getHeaderKeyIndex looks for it
			if name != subjects.HeaderTraceDest && strings.Contains(block, "\r\n"+name+":") {
				t.Fatalf("a server finds %s in %q", name, block)
			}
		}
	}
}

// traced decides whether to trace a message as nats-server 2.15 does, in
// genHeaderMapIfTraceHeadersPresent.
func traced(block string) (found bool) {
	rest := strings.TrimPrefix(block, "NATS/1.0\r\n")
	for {
		name, after, ok := strings.Cut(rest, ":")
		if !ok {
			return found
		}

		value, next, ok := strings.Cut(strings.TrimLeft(after, " \t"), "\r\n")
		if !ok {
			return found
		}

		value = strings.TrimRight(value, " \t")
		rest = next
		parts := strings.Split(value, "-")

		switch {
		case strings.EqualFold(name, "traceparent"):
			if len(parts) == 4 && len(parts[3]) == 2 {
				flags, err := strconv.ParseInt(parts[3], 16, 8)
				found = found || err == nil && flags&1 == 1
			}
		case name == "Nats-Trace-Dest" && value == "trace disabled":
			return false
		case name == "Nats-Trace-Dest":
			found = found || value != ""
		}
	}
}

// FuzzErrorFromHeaders: any headers can be parsed, and an error of any text arrives as
// the same error.
func FuzzErrorFromHeaders(f *testing.F) {
	f.Add("Nats-Service-Error: x\r\nNats-Service-Error-Code: 404\r\nPq-Outcome: unknown\r\n",
		"text")
	f.Add("Nats-Service-Error-Code: 4 0 4\r\n", "\r\n: \x00")
	f.Add("Nats-Service-Error:\r\n", "")

	f.Fuzz(func(t *testing.T, block, text string) {
		if h, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + block + "\r\n")); err == nil {
			told := subjects.ErrorFromHeaders(h)
			ok := h.Get(subjects.HeaderError) == "" && h.Get(subjects.HeaderErrorCode) == ""
			if ok != (told == nil) {
				t.Fatalf("%q is read as %v", h, told)
			}

			if told != nil {
				_ = told.Error() // no panic
			}
		}
		for _, row := range WireErrors() {
			err := fmt.Errorf("%w: %s", row.Err, text)
			told := replied(t, err)
			if told == nil {
				t.Fatalf("%q is sent as no error", err)
			}

			if told.Text = ""; *told != row.Told {
				t.Fatalf("%q is sent as %+v", err, told)
			}
		}
	})
}

// itemHeaders returns the headers of a reply with that item.
func (e *encoder) itemHeaders(q *dispatch.Queue, item *fdbpq.Item) nats.Header {
	e.item(q, item)
	return e.headers()
}
