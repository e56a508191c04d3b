package jetstream

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

const (
	// maxAckPayload is how much of an acknowledgement is read: more than counts of any reason.
	maxAckPayload = 1 << 10
	// ackMemory estimates what an acknowledgement takes in memory.
	ackMemory = 512
)

var ackNext = []byte("+NXT")

// settled is the dispatch.Replier of an acknowledgement. It confirms one whose client asks for it,
// once it is durable. A client whose lease was lost hears nothing: nobody may take that for a yes.
type settled struct {
	f     *core
	reply string // the subject, "" for none
}

// settle runs an acknowledgement. One that nobody waits for shares the batch of the next pull.
func (f *core) settle(q *dispatch.Queue, op *fdbpq.Op, reply string) {
	op.Queue = q.Target
	s := &settled{f, reply}
	r := dispatch.Request{Queue: q, Replier: s, Received: time.Now(), Size: ackMemory + len(op.Reason),
		Lazy: reply == "" && op.Kind != fdbpq.OpNak}
	if err := f.submit(&r, *op); err != nil {
		s.failed(err)
	}
}

// giveUp ends the lease of an item that the consumer has had as often as it allows, as if the lease
// before had been the last.
func (f *core) giveUp(q *dispatch.Queue, token *fdbpq.Token) {
	f.settle(q, &fdbpq.Op{Kind: fdbpq.OpTerm, Token: *token, Reason: fdbpq.ReasonMaxDeliver, Uncounted: true}, "")
}

// Answer implements dispatch.Replier.
func (s *settled) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	defer s.f.answered()
	failed := results[0].Err != nil
	s.f.config.Counted(countedAck, failed)
	if s.reply != "" && !failed {
		s.f.send(&leaf.Message{Subject: s.reply})
	}
}

// Fail implements dispatch.Replier.
func (s *settled) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) {
	defer s.f.answered()
	s.failed(err)
}

func (s *settled) failed(err error) {
	s.f.config.Counted(countedAck, true)
	s.f.config.Warn("an acknowledgement failed: its item will be delivered again", "error", err)
}

// decodeAck completes the operation of an acknowledgement. It returns false for a payload that
// JetStream does not know either.
func decodeAck(payload []byte, op *fdbpq.Op) bool {
	payload = payload[:min(len(payload), maxAckPayload)]
	is := func(word string) bool { return bytes.HasPrefix(payload, []byte(word)) }
	switch {
	case len(payload) == 0, is("+ACK"), is("+NXT"), string(payload) == "+OK":
		op.Kind = fdbpq.OpAck
	case is("-NAK"):
		op.Kind, op.Delay = fdbpq.OpNak, nakDelay(bytes.TrimSpace(payload[len("-NAK"):]))
	case is("+WPI"):
		op.Kind = fdbpq.OpExtend
	case is("+TERM"):
		op.Kind, op.Reason = fdbpq.OpTerm, string(bytes.TrimSpace(payload[len("+TERM"):]))
	default:
		return false
	}
	return true
}

// nakDelay reads the delay of a -NAK: JSON or a duration. Without one that can be read, the queue's
// backoff counts.
func nakDelay(text []byte) time.Duration {
	var options struct {
		Delay time.Duration `json:"delay"`
	}
	var err error
	switch {
	case len(text) == 0:
		return fdbpq.Backoff
	case text[0] == '{':
		err = json.Unmarshal(text, &options)
	default:
		options.Delay, err = time.ParseDuration(string(text))
	}
	if err != nil {
		return fdbpq.Backoff
	}
	return min(max(options.Delay, 0), fdbpq.MaxDelay)
}
