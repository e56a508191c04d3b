package requests

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// testTokens returns tokens of n leases.
func testTokens(n int) (tokens []string) {
	for i := range n {
		token := fdbpq.Token{Fence: int64(i + 1)}
		tokens = append(tokens, token.String())
	}
	return tokens
}

// resultFrame returns a frame with these header lines.
func resultFrame(lines, value string) subjects.Frame {
	f := subjects.Frame{Value: []byte(value)}
	if lines != "" {
		f.Headers = []byte("NATS/1.0\r\n" + lines + "\r\n")
	}
	return f
}

func framed(list ...subjects.Frame) (payload []byte) {
	for _, f := range list {
		payload = subjects.AppendFrame(payload, f)
	}
	return payload
}

// decodeTestAck decodes an acknowledgement of the lease of a token.
func decodeTestAck(
	h *Handler, token string, header nats.Header, payload []byte,
) ([]fdbpq.Op, error) {
	r := subjects.Request{Verb: subjects.AckLease, Queue: "jobs", Token: token}
	q, err := decoded(h, r, &nats.Msg{Header: header, Data: payload, Reply: "inbox"})
	return q.ops, err
}

// An acknowledgement in the header leaves the payload to the result, whatever it looks like. With
// frames, each lease has the result with its token, and a lease without a frame has none.
func TestResults(t *testing.T) {
	h := newTestHandler(t)
	tokens := testTokens(3)
	also := fmt.Sprintf(`{"also":[%q,%q]}`, tokens[1], tokens[2])
	of := func(i int, lines, value string) subjects.Frame {
		return resultFrame(lines+"Pq-Token: "+tokens[i]+"\r\n", value)
	}

	const none = "no result"
	for _, test := range []struct {
		name    string
		header  nats.Header
		payload []byte
		want    []string // type and result, by lease
	}{
		{"one", nats.Header{"Pq-Ack": {"+ACK"}}, []byte("done"), []string{" done"}},
		{"empty", nats.Header{"Pq-Ack": {"+ACK"}}, nil, []string{" "}},
		{"without the header", nats.Header{"Content-Type": {"x"}}, []byte("+ACK"), []string{none}},
		{
			"typed",
			nats.Header{"Pq-Ack": {"+ACK"}, "content-type": {"text/plain"}, "Other": {"x"}},
			[]byte("done"),
			[]string{"text/plain done"},
		},
		{"like -NAK", nats.Header{"Pq-Ack": {"+ACK"}}, []byte("-NAK 1h"), []string{" -NAK 1h"}},
		{"first of several", nats.Header{"Pq-Ack": {"+ACK " + also}}, []byte("+TERM"),
			[]string{" +TERM", none, none}},
		{
			"in frames",
			nats.Header{"Pq-Ack": {"+ACK " + also}, "Pq-Frames": {"2"}, "Content-Type": {"x"}},
			framed(of(2, "Content-Type: a/b\r\nOther: x\r\n", "c"), of(0, "", "")),
			[]string{" ", none, "a/b c"},
		},
		{
			"before the next", nats.Header{"Pq-Ack": {"+NXT"}, "Pq-Frames": {"1"}},
			framed(of(0, "", "-NAK")),
			[]string{" -NAK"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ops, err := decodeTestAck(h, tokens[0], test.header, test.payload)
			must(t, err)

			var got []string
			for _, op := range ops[:dispatch.LeadingAcks(ops)] {
				o := op.Report
				if o == nil {
					got = append(got, none)
					continue
				}
				got = append(got, o.ContentType+" "+string(o.Result))
				if o.Result == nil {
					t.Error("a result of no bytes is none")
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("results %q, want %q", got, test.want)
			}
		})
	}
}

// The same token given twice for one request is one lease, which has the result of its frame.
func TestResultOfATokenGivenAgain(t *testing.T) {
	token := testTokens(1)[0]
	header := nats.Header{
		"Pq-Ack": {fmt.Sprintf(`+ACK {"also":[%q]}`, token)}, "Pq-Frames": {"1"},
	}

	ops, err := decodeTestAck(newTestHandler(t), token, header,
		framed(resultFrame("Pq-Token: "+token+"\r\n", "x")))

	must(t, err)
	if ops[0].Report == nil || ops[1].Report != nil {
		t.Errorf("results %v and %v, want the first alone", ops[0].Report, ops[1].Report)
	}
}

// A result may be as large as a message with it and its headers.
func TestMaxResult(t *testing.T) {
	h := newTestHandler(t)
	h.config.MaxResult = 1 << 20
	token := testTokens(1)[0]
	largest := 1<<20 - 4<<10
	header := nats.Header{"Pq-Ack": {"+ACK"}}

	_, err := decodeTestAck(h, token, header, make([]byte, largest))
	must(t, err)

	_, err = decodeTestAck(h, token, header, make([]byte, largest+1))
	if !errors.Is(err, errBadRequest) || !strings.Contains(err.Error(), "want at most 1044480") {
		t.Errorf("one byte more: %v", err)
	}
}

// FuzzDecodeAck: any acknowledgement is either refused with an error that can be sent, or each
// result that it has is one of the payload's, and it has none unless it ends a job for good.
func FuzzDecodeAck(f *testing.F) {
	tokens := testTokens(2)
	also := fmt.Sprintf(` {"also":[%q]}`, tokens[1])
	good := framed(resultFrame("Pq-Token: "+tokens[1]+"\r\nContent-Type: a\r\n", "result"))
	next := framed(resultFrame("Pq-Queue: a\r\nPq-Delay: 5s\r\nX: y\r\n", "next"))
	for _, block := range []string{
		"", "Pq-Ack: +ACK\r\n", "Pq-Ack: -NAK\r\n", "Pq-Ack: +NXT 5\r\n", "Pq-Ack: +WPI\r\n",
		"Pq-Ack: +ACK" + also + "\r\nPq-Frames: 1\r\n", "Pq-Frames: 1\r\n", "pq-ack: +ACK\r\n",
		"Pq-Ack: +TERM gone\r\nPq-Frames: 2\r\n", "Pq-Ack: +ACK\r\nPq-Ack: +ACK\r\n",
		"Pq-Ack: +NXT" + also + "\r\nPq-Frames: 01\r\n", "Status: 503\r\n",
		"Pq-Ack: +ACK\r\nContent-Type: \xff\r\n", "Pq-Ack: +ACK\r\nPq-Frames: 2\r\n",
	} {
		f.Add(block, []byte{})
		f.Add(block, []byte("result"))
		f.Add(block, good)
		f.Add(block, append(next, good...))
	}

	h := newTestHandler(f)
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(f, err)
	h.config.Keyspace = keyspace
	f.Fuzz(func(t *testing.T, block string, payload []byte) {
		header, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + block + "\r\n"))
		if err != nil {
			return
		}

		inHeader := header["Pq-Ack"] != nil
		ops, err := decodeTestAck(h, tokens[0], header, payload)
		if err != nil {
			told := replied(t, err)
			if told == nil || told.Code != 400 || told.Text == "" || len(told.Text) > 1000 {
				t.Fatalf("%v is sent as %v", err, told)
			}
			return
		}

		for _, op := range ops {
			said := op.Report
			if said == nil {
				continue
			}
			if said.Result != nil && (op.Kind != fdbpq.OpAck || !inHeader ||
				len(said.Result) > maxTestResult || !bytes.Contains(payload, said.Result)) {
				t.Fatalf("%q %q: operation %d with %+v", block, payload, op.Kind, said)
			}
			for _, next := range said.Next {
				m := next.Message
				if op.Kind != fdbpq.OpAck || !inHeader || next.Kind != fdbpq.OpPush ||
					m.MsgID != "" || m.Unique != "" || m.Headers["Pq-Queue"] != nil {
					t.Fatalf("%q %q: operation %d pushes %+v", block, payload, op.Kind, next)
				}
			}
		}
	})
}
