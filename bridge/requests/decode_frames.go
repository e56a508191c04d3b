package requests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxResults is the most bytes of all results of an acknowledgement. One transaction keeps all of
// them, and their headers.
const maxResults = 4 << 20

// ackFrames gives acknowledgements what their payload has: results, and successors, which the first
// of them pushes.
type ackFrames struct {
	q      *request // the acknowledgements, and the tokens of their leases
	tokens []string

	leases  map[string]int // by token
	lines   int            // of headers, in all frames so far
	results int            // bytes of all results so far

	successors []int // the numbers of their frames, in the order of Report.Next
}

// read reads a payload. With frames that is a result for each lease that has a frame, and
// successors; otherwise a result for the first lease. Errors wrap errBadRequest, so that nobody
// takes them for errors of an item that +NXT leases.
func (f *ackFrames) read(h nats.Header, payload []byte) error {
	values, framed := h[subjects.HeaderFrames]
	if !framed {
		return setResult(&f.q.ops[0], h, payload, f.q.maxResult())
	}

	frames, err := splitFrames(values, len(f.tokens)+subjects.MaxSuccessors, payload)
	if err != nil {
		return err
	}

	f.leases = make(map[string]int, len(f.tokens))
	for i, token := range slices.Backward(f.tokens) { // the first counts of two that are the same
		f.leases[token] = i
	}

	for i, frame := range frames {
		if err := f.add(i, &frame); err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}

	return nil
}

// splitFrames splits a payload into as many frames as the header says, up to most.
func splitFrames(values []string, most int, payload []byte) ([]subjects.Frame, error) {
	const name = subjects.HeaderFrames
	if len(values) != 1 {
		return nil, badRequest("header %s given %d times: want it once", name, len(values))
	}

	n, err := strconv.Atoi(values[0])
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != values[0] {
		return nil, badRequest("header %s: %.64q: want the number of frames, from 1 to %d: one "+
			"for each lease, and %d successors", name, values[0], most, subjects.MaxSuccessors)
	}

	frames, err := subjects.ParseFrames(payload)
	switch {
	case err != nil: // also too many
		return nil, badRequest("header %s: %v", name, err)
	case len(frames) != n:
		return nil, badRequest("header %s: %d, but the payload has %d frames", name, n,
			len(frames))
	}
	return frames, nil
}

// add adds the result or the successor in a frame, which has a number.
func (f *ackFrames) add(number int, frame *subjects.Frame) error {
	lines := headerLines(frame)
	if lines > subjects.MaxHeaders {
		return badRequest("%d header lines: want at most %d", lines, subjects.MaxHeaders)
	}
	if f.lines += lines; f.lines > subjects.MaxBatchHeaders {
		return badRequest("more than %d header lines in all", subjects.MaxBatchHeaders)
	}

	h, _ := nats.DecodeHeadersMsg(frame.Headers) // nil if they cannot be read
	if err := wire.CheckBlock(h, len(frame.Headers), subjects.AddedByServer); err != nil {
		return badRequest("%w", err)
	}
	if h[subjects.HeaderQueue] != nil {
		f.successors = append(f.successors, number)
		return f.addSuccessor(frame, h)
	}
	return f.addResult(frame, h)
}

// addResult gives one of the leases the result in a frame.
func (f *ackFrames) addResult(frame *subjects.Frame, h nats.Header) error {
	for name := range h {
		if name != subjects.HeaderToken && subjects.IsReserved(name) {
			return badRequest("header %.64q: of the headers that begin with Pq-, "+
				"a result takes only %s, and an item to push also %s, spelled like this",
				name, subjects.HeaderToken, subjects.HeaderQueue)
		}
	}

	lease, err := f.leaseOf(h[subjects.HeaderToken])
	switch {
	case err != nil:
		return err
	case reportOf(&f.q.ops[lease]).Result != nil:
		return badRequest("header %s: the lease %d has a result already: want one frame for each",
			subjects.HeaderToken, lease)
	case frame.Priority != 0:
		return badRequest("priority %d: a result has none: want 0", frame.Priority)
	}

	if f.results += len(frame.Value); f.results > maxResults {
		return badRequest("results of %d bytes: want at most %d: acknowledge fewer leases at once",
			f.results, maxResults)
	}
	return setResult(&f.q.ops[lease], h, frame.Value, f.q.maxResult())
}

// leaseOf returns the number of the lease that a frame names by its token.
func (f *ackFrames) leaseOf(tokens []string) (int, error) {
	if len(tokens) != 1 {
		return 0, badRequest("header %s given %d times: want it once, with the token of the lease "+
			"whose result this is, or %s", subjects.HeaderToken, len(tokens), subjects.HeaderQueue)
	}
	lease, acknowledged := f.leases[tokens[0]]
	if !acknowledged {
		return 0, badRequest("header %s: %.4q...: want the token of a lease that this acknowledges",
			subjects.HeaderToken, tokens[0])
	}
	return lease, nil
}

// addSuccessor makes the first acknowledgement push the item in a frame. The frame may name the
// lease of another one: that of its parent.
func (f *ackFrames) addSuccessor(frame *subjects.Frame, h nats.Header) (err error) {
	queues, said := h[subjects.HeaderQueue], reportOf(&f.q.ops[0])
	switch {
	case len(queues) != 1:
		return badRequest("header %s given %d times: want it once, with the queue to push to",
			subjects.HeaderQueue, len(queues))
	case len(said.Next) == subjects.MaxSuccessors:
		return badRequest("more than %d frames with %s", subjects.MaxSuccessors,
			subjects.HeaderQueue)
	}
	delete(h, subjects.HeaderQueue)

	parent := 0 // the lease of the subject
	if tokens := h[subjects.HeaderToken]; tokens != nil {
		if parent, err = f.leaseOf(tokens); err != nil {
			return err
		}
		delete(h, subjects.HeaderToken)
	}

	known := pushHeaders(f.q.parsed.Kind, subjects.NextHeaders)
	for name := range h {
		switch {
		case strings.EqualFold(name, subjects.HeaderMsgID) || name == subjects.HeaderUnique ||
			name == subjects.HeaderWeight:
			return badRequest("header %s with %s: leave it out: "+
				"the lease makes the push happen once, and its turn has one item",
				name, subjects.HeaderQueue)
		case !subjects.RequestHeaderKnown(name):
			return unknownHeader(name, "what an acknowledgement pushes", known)
		}
	}

	r := subjects.Request{Kind: f.q.parsed.Kind, Verb: subjects.Push, Queue: queues[0]}
	r.HasPriority, r.Priority = f.q.parsed.Kind == subjects.Priority, frame.Priority
	if err := subjects.ValidateQueueName(r.Queue); err != nil {
		return fmt.Errorf("header %s: %w", subjects.HeaderQueue, err)
	}
	if err := checkFramePriority(frame, &r); err != nil {
		return err
	}

	next := fdbpq.Op{Kind: fdbpq.OpPush, Parent: parent}
	next.Queue, err = dispatch.TargetOf(f.q.h.config.Keyspace, f.q.parsed.Kind, r.Queue)
	if err == nil {
		err = checkNames(h, &r)
	}
	joiner := noFrame
	if err == nil {
		joiner, err = decodePush(&nats.Msg{Header: h, Data: frame.Value}, &r, &next)
	}
	said.Next = append(said.Next, next)
	if err != nil || joiner == noFrame {
		return err
	}
	return joinFrame(said.Next, slices.Index(f.successors, joiner))
}

// maxResult returns the most bytes of a result: the reply that returns it has headers as well.
func (q *request) maxResult() int {
	const headers = 4 << 10
	return min(q.h.config.MaxResult, max(int(q.h.config.MaxPayload())-headers, 0))
}

// setResult gives an acknowledgement a result, with the type in the headers beside it.
func setResult(op *fdbpq.Op, h nats.Header, value []byte, most int) error {
	if len(value) > most {
		return badRequest("a result of %d bytes: want at most %d", len(value), most)
	}

	said := reportOf(op)
	said.Result = value
	if value == nil {
		said.Result = []byte{} // nil would be none
	}
	_, err := single(h, subjects.HeaderContentType, parseContentType, &said.ContentType)
	return err
}

// reportOf returns the report of an operation, which it gets now if it has none.
func reportOf(op *fdbpq.Op) *fdbpq.Report {
	if op.Report == nil {
		op.Report = &fdbpq.Report{}
	}
	return op.Report
}

// parseContentType checks the type of a result.
func parseContentType(text string) (string, error) {
	if len(text) > fdbpq.MaxContentType || !utf8.ValidString(text) {
		return "", badRequest("%d bytes: want at most %d of UTF-8", len(text), fdbpq.MaxContentType)
	}
	return text, nil
}
