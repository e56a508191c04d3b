package requests

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// checkNames refuses headers that no request may have, or that this one may not.
func checkNames(h nats.Header, r *subjects.Request) error {
	push, ack := r.Verb == subjects.Push, r.Verb == subjects.AckLease
	for name := range h {
		if !subjects.IsReserved(name) {
			continue
		}

		ofAck := slices.Contains(subjects.AckHeaders[:], name)
		ofPush := slices.Contains(subjects.PushHeaders[:], name)
		priority := name == subjects.HeaderPriority
		noPriority := priority && r.Kind == subjects.FIFO
		if push && ofPush && !noPriority || ack && ofAck {
			continue
		}

		switch verb := r.Verb.Name(r.Kind); {
		case ofAck:
			return badRequest("header %s with %s: only an acknowledgement has one", name, verb)
		case priority:
			return badRequest("header %s with %s: only a push to a priority queue has one",
				name, verb)
		case ofPush:
			return badRequest("header %s with %s: only a push has one", name, verb)
		case push:
			return unknownHeader(name, verb, pushHeaders(r.Kind, len(subjects.PushHeaders)))
		case ack:
			return unknownHeader(name, verb, subjects.AckHeaders[:])
		default:
			return badRequest("unknown header %.64q: %s takes no headers that begin with Pq-",
				name, verb)
		}
	}

	return nil
}

// pushHeaders returns the first most headers of pushes, without those that the kind does not have.
func pushHeaders(kind subjects.Kind, most int) []string {
	if kind == subjects.FIFO {
		return subjects.PushHeaders[1:most]
	}
	return subjects.PushHeaders[:most]
}

// unknownHeader is the error of a header that begins with Pq-, which what has it does not know.
func unknownHeader(name, what string, known []string) error {
	return badRequest("unknown header %.64q: of the headers that begin with Pq-, %s takes only "+
		"these, spelled like this: %s", name, what, strings.Join(known, ", "))
}

// checkStatus refuses messages of NATS itself, such as "no responders": they acknowledge nothing.
func checkStatus(h nats.Header) error {
	for name := range h {
		if strings.EqualFold(name, subjects.HeaderStatus) {
			return badRequest("header %s: NATS sends messages with a status, and they acknowledge "+
				"nothing", name)
		}
	}
	return nil
}

// single parses the one value of a header whose name may have any case. It returns the name as the
// client spelled it, "" if there is no such header.
func single[T any](
	h nats.Header, name string, parse func(string) (T, error), to *T,
) (spelled string, err error) {
	for other, values := range h {
		if !strings.EqualFold(other, name) {
			continue
		}
		if spelled != "" || len(values) != 1 {
			return "", badRequest("header %s given twice: want it once", other)
		}
		spelled = other
		if *to, err = parse(values[0]); err != nil {
			return "", fmt.Errorf("header %s: %w", other, err)
		}
	}
	return spelled, nil
}

// checkBlock refuses too many headers, and blocks that wire.CheckBlock refuses.
func checkBlock(h nats.Header, size int) error {
	lines := 0
	for _, values := range h {
		lines += len(values)
	}

	if lines > subjects.MaxHeaders {
		return errTooManyHeaders(lines)
	}

	if err := wire.CheckBlock(h, size, subjects.AddedByServer); err != nil {
		return badRequest("%w", err)
	}

	return nil
}

func errTooManyHeaders(n int) error {
	return fmt.Errorf("%w: %d header lines: want at most %d", errTooLarge, n, subjects.MaxHeaders)
}

// opMemory estimates the memory that an operation takes, with its result, beyond its message.
const opMemory = 512

// measure adds to the size of a request what its payload does not show. It refuses a request whose
// reply or whose items the server could not carry.
func (q *request) measure() error {
	ops := q.ops
	if !q.verb.several {
		successors := ops[0].Successors()
		for i := range successors {
			if err := q.measurePushed(&successors[i]); err != nil {
				return badRequest("successor %d: %w", i, err)
			}
		}

		q.Size += opMemory * (len(ops) - 1 + len(successors))
		return q.measurePushed(&ops[0]) // nothing else has headers
	}

	// All of them may be duplicates.
	size := subjects.MaxPushedBatch(len(ops)) + subjects.MaxDuplicates(len(ops))
	most := q.h.config.MaxPayload()
	if q.reply != "" && int64(size) > most {
		return fmt.Errorf("%w: a reply with %d ids can have %d bytes, and the server carries at "+
			"most %d: send fewer items at once", errTooLarge, len(ops), size, most)
	}

	for i := range ops {
		if err := q.measurePushed(&ops[i]); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}

	q.Size += opMemory * len(ops)
	return nil
}

// measurePushed adds the headers of a pushed message to the size of its request. It refuses a
// message that the server could not carry back.
func (q *request) measurePushed(op *fdbpq.Op) error {
	pushed := op.Message
	if op.MemberOf > 0 { // it will have the longest id of a joiner in a queue with the longest name
		id := fdbpq.ID{Priority: math.MinInt64, Count: math.MinInt64}
		pushed.Joiner = &fdbpq.Joiner{Queue: strings.Repeat("x", fdbpq.MaxQueueName), ID: id}
	}
	properties := nats.Header{}
	setProperties(properties, &pushed)
	headers := headersSize(pushed.Headers, properties)
	if pushed.Join > 0 { // it will say what became of its members
		headers += len(subjects.HeaderJoined) + 4*len(" done=9223372036854775807")
	}
	if headers == 0 {
		return nil
	}

	most := q.h.config.MaxPayload() - int64(wire.FrameRoom(pushed.Headers, properties))
	if size := len(pushed.Value) + headers; int64(size) > most {
		return fmt.Errorf("%w: %d bytes with headers: the server carries at most %d",
			errTooLarge, size, most)
	}

	q.Size += headers + wire.HeaderMemory(pushed.Headers) + keysMemory(&pushed)
	return nil
}

// headersSize is how many bytes the headers of an item and its properties take in a message.
func headersSize(h, properties nats.Header) int {
	if len(h) == 0 {
		return wire.HeaderSize(properties)
	}
	return wire.HeaderSize(h) + wire.LinesSize(properties)
}

// keysMemory estimates how many bytes the MsgID and the unique key of a push add to a transaction,
// besides their own. Package fdbpq writes several store keys that contain them, and the transaction
// holds conflict ranges for these as well.
func keysMemory(m *fdbpq.Message) (n int) {
	const writes, rest = 20, 64
	for _, key := range []string{m.MsgID, m.Unique} {
		if key != "" {
			n += writes * (len(key) + rest)
		}
	}
	return n
}
