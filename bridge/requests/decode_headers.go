package requests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
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
