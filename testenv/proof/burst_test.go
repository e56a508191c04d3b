package proof_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxMessage is nearly what the NATS server carries.
const maxMessage = 1<<20 - 10_000

// burster sends many requests at once, and so makes more load than callers do. It handles replies
// as package client does.
type burster struct {
	*caller
	reconnects uint64 // of the connection, when the last requests were sent
	inbox      string // of its replies, without the number
	replies    chan *nats.Msg
	sent       int                        // requests so far; each reply subject is used once
	pulls      map[*nats.Subscription]int // of requests that are under way, by their number
	resting    []*nats.Subscription       // of pulls that have ended, for a while
	// Acknowledgements, by number of the request; see checkAnswers.
	unanswered map[int]books.Operation
}

// pending is one request of a burst.
type pending struct {
	op     books.Operation
	intent books.Intent
	number int      // of the request
	token  string   // the subject of acknowledgements
	also   []string // the tokens of further leases
	silent bool     // without a reply
	once   bool     // pushes with message ids
	rides  bool     // the next request acknowledges this one's lease: it is a +NXT
	bytes  int      // of the messages of a pull
	ended  bool

	answered bool // a Result, which has one answer
}

func newBurster(t *testing.T, c *caller) *burster {
	b := &burster{
		caller:     c,
		inbox:      c.line.nc.NewInbox() + ".",
		replies:    make(chan *nats.Msg, 16*maxGrips),
		pulls:      map[*nats.Subscription]int{},
		unanswered: map[int]books.Operation{},
	}

	_, err := c.line.nc.ChanSubscribe(b.inbox+"*", b.replies)
	must(t, err)
	return b
}

// sendAll sends the requests. It calls begin before each one, and end when its outcome is
// known.
func (b *burster) sendAll(
	requests []pending, padding func(queue string) int, begin, end func(*pending),
) {
	broken, first, open, expires := b.line.context(), b.sent, 0, int64(0)
	b.reconnects = b.line.nc.Stats().Reconnects
	mayBeSilent := 0

	for i := range requests {
		r := &requests[i]
		r.op.Client, r.number = b.number, b.sent
		expires = max(expires, r.op.Expires)
		m := b.encode(r, padding)

		if !r.silent {
			m.Reply = b.replyTo(r)
			open++
		}

		b.sent++
		r.op.Call = time.Since(b.zero).Nanoseconds()
		begin(r)
		var err error

		if !r.rides {
			err = b.line.nc.PublishMsg(m)
		}

		switch {
		case err != nil || r.silent:
			if !r.silent {
				open--
			}
			b.finish(r, nil, err, end)
		case r.mayBeSilent():
			mayBeSilent++
		}
	}

	timeout := time.NewTimer(time.Duration(b.timeout.Load() + expires))
	defer timeout.Stop()
	var silence <-chan time.Time // once only those are open that may get no answer

	for open > 0 {
		if open <= mayBeSilent && silence == nil {
			silence = time.After(silenceTime)
		}
		select {
		case m := <-b.replies:
			n := b.requestOf(m)
			delete(b.unanswered, n)
			i := n - first

			if i >= 0 && i < len(requests) && requests[i].ended && requests[i].answered {
				b.t.Errorf("answered twice: %s", &requests[i].op)
			}
			if i >= 0 && i < len(requests) && !requests[i].ended &&
				b.receiveOne(&requests[i], m, end) {
				open--
				if requests[i].mayBeSilent() {
					mayBeSilent--
				}
			}
		case <-silence:
			open = 0
		case <-broken.Done():
			open = 0
		case <-timeout.C:
			open = 0
		}
	}

	for i := range requests {
		if !requests[i].ended {
			b.finish(&requests[i], nil, nil, end)
		}
	}

	b.dropPulls()
}

// receiveOne records a reply to a request. It reports whether there are no more.
func (b *burster) receiveOne(r *pending, reply *nats.Msg, end func(*pending)) (ended bool) {
	if err := r.noteKept(reply); err != nil {
		b.t.Error(err)
	}
	if !r.op.Kind.Serves() {
		r.answered = r.op.Kind == books.Result
		b.finish(r, reply, nil, end)
		return true
	}

	read := b.readOne
	if r.op.JetStream {
		read = func(*books.Operation, *nats.Msg) (bool, error) { return b.readPulled(r, reply) }
	}

	ended, err := read(&r.op, reply)
	if ended = ended || err != nil || len(r.op.Items) == max(1, r.op.Batch); ended {
		b.conclude(r, err, end)
	}

	return ended
}

// encode returns the message of a request.
func (b *burster) encode(r *pending, padding func(queue string) int) *nats.Msg {
	switch op := &r.op; op.Kind {
	case books.Push:
		return b.encodePush(r, padding)
	case books.Nak:
		if op.JetStream {
			return &nats.Msg{Subject: r.token, Data: encodeNak(op)}
		}

		ack := subjects.Ack{
			Kind:       subjects.AckNak,
			HasDelay:   !op.Backoff,
			RetryDelay: time.Duration(op.Retry),
			Snooze:     op.Snooze,
		}
		if ack.HasDelay {
			ack.Delay = time.Duration(op.Delay)
		}

		return &nats.Msg{Subject: r.token, Data: ack.Encode()}
	case books.Extend:
		return &nats.Msg{Subject: r.token, Data: subjects.Ack{Kind: subjects.AckProgress}.Encode()}
	case books.Remove, books.Move, books.Purge, books.Redrive:
		return b.encodeEdit(op)
	case books.Result, books.Rerun:
		return b.encodeAsk(r)
	case books.Len:
		return &nats.Msg{Subject: b.subject(op.Queue, subjects.Len)}
	case books.PeekMin:
		return &nats.Msg{Subject: b.subject(op.Queue, subjects.Peek)}
	case books.PeekMax:
		return &nats.Msg{Subject: b.subject(op.Queue, subjects.PeekMax)}
	case books.Term:
		return &nats.Msg{Subject: r.token, Data: subjects.Ack{Kind: subjects.AckTerm}.Encode()}
	case books.Ack:
		m := &nats.Msg{Subject: r.token}
		switch {
		case len(r.also) > 0:
			m.Data = subjects.Ack{Kind: subjects.AckDone, Also: r.also}.Encode()
		case op.JetStream:
			m.Data = []byte("+ACK")
		}

		return b.encodeOutcome(r, m)
	case books.NextMin, books.NextMax:
		next := subjects.PopOptions{
			Batch:    op.Batch,
			Expires:  time.Duration(op.Expires),
			MaxBytes: int(op.MaxBytes),
		}

		ack := subjects.Ack{Kind: subjects.AckNext, Also: r.also, Next: next}
		return b.encodeOutcome(r, &nats.Msg{Subject: r.token, Data: ack.Encode()})
	default:
		if op.JetStream {
			return encodePull(r)
		}
		return b.encodePop(op, false)
	}
}

// encodePush returns the message of a push, or of a batch of them.
func (b *burster) encodePush(r *pending, padding func(queue string) int) *nats.Msg {
	op := &r.op
	fifo := isFIFO(op.Queue)

	if op.Batch > 0 {
		m := &nats.Msg{Subject: b.subject(op.Queue, subjects.PushBatch)}
		for i, item := range op.Items {
			size := min(padding(op.Queue), maxMessage-len(m.Data))
			if op.Join > 0 {
				size = min(size, maxJoiner)
			}
			frame := subjects.Frame{Value: pad(item.Value, 3*(size/3))} // needs no header
			var err error

			pushed := grouped(delayed(client.Message{}, op), op.Queue, item.Value)
			pushed = joined(r.keyed(kept(pushed, op.Queue), item.Value), op, i)
			frame.Headers, err = subjects.AppendHeaders(nil, pushed.Headers)
			must(b.t, err)

			if !fifo {
				frame.Priority = op.Priority + int64(i%2)
			}

			m.Data = subjects.AppendFrame(m.Data, frame)
		}

		return m
	}

	pushed := joined(r.keyed(message(op, padding(op.Queue)), op.Value), op, 0)
	m := &nats.Msg{
		Subject: b.subject(op.Queue, subjects.Push),
		Data:    pushed.Value,
		Header:  pushed.Headers,
	}

	if op.Priority != 0 {
		m.Header = maps.Clone(m.Header)
		if m.Header == nil {
			m.Header = nats.Header{}
		}

		m.Header[subjects.HeaderPriority] = []string{strconv.FormatInt(op.Priority, 10)}
	}

	return m
}

// subject returns the subject of a verb.
func (c *caller) subject(queue string, verb subjects.Verb) string {
	kind := subjects.Priority
	if isFIFO(queue) {
		kind = subjects.FIFO
	}

	subject, err := bridgeGrammar().Build(subjects.Request{Kind: kind, Verb: verb, Queue: queue})
	must(c.t, err)
	return subject
}

// finish records the reply to a request, nil if there was none. sendErr is why it was not
// sent.
func (b *burster) finish(r *pending, reply *nats.Msg, sendErr error, end func(*pending)) {
	err := sendErr
	switch {
	case sendErr != nil:
	case reply == nil:
		err = fmt.Errorf("%w: no reply", client.ErrUnknownOutcome)
	default:
		err = b.read(&r.op, reply)
	}

	b.conclude(r, err, end)
}

// conclude records the end of a request.
func (b *burster) conclude(r *pending, err error, end func(*pending)) {
	op := &r.op
	op.Return = time.Since(b.zero).Nanoseconds()
	op.Outcome = b.outcome(op, err)

	if err != nil && !r.silent {
		op.Text = err.Error()
	}

	r.ended = true
	end(r)
}

// read reads the reply to an operation.
func (b *burster) read(op *books.Operation, reply *nats.Msg) error {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return client.ErrNoBridge
	}

	if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
		return refused(op, reply, failure)
	}

	switch op.Kind {
	case books.Push:
		if op.Batch > 0 {
			return readBatch(op, reply)
		}

		pushed, err := subjects.ParseReply[subjects.Pushed](reply.Data)
		if err != nil || pushed.ID == "" {
			return errors.Join(client.ErrBadReply, err)
		}

		op.ID = pushed.ID
		if pushed.Duplicate && op.Unique != "" {
			return errDuplicate
		}
	case books.Remove, books.Move, books.Purge, books.Redrive:
		return readEdit(op, reply.Data)
	case books.Result, books.Rerun:
		return readAsked(op, reply)
	case books.Len:
		n, err := subjects.ParseReply[subjects.Length](reply.Data)
		if op.Len = n.Len; err != nil {
			return errors.Join(client.ErrBadReply, err)
		}
	case books.Extend:
		if op.JetStream {
			return nil
		}

		info, err := subjects.ParseItemHeaders(reply.Header)
		if err != nil || info.Lease.Until.IsZero() {
			return errors.Join(client.ErrBadReply, err)
		}

		op.Until = b.since(info.Lease.Until)
	}

	return nil
}

// readBatch reads the reply to a batch of pushes.
func readBatch(op *books.Operation, reply *nats.Msg) error {
	pushed, err := subjects.ParsePushedBatch(reply.Data)
	if err != nil || len(pushed.IDs) != len(op.Items) {
		return errors.Join(client.ErrBadReply, err)
	}

	for i, id := range pushed.IDs {
		op.Items[i].ID = id
	}

	return nil
}
