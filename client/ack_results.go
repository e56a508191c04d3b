package client

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// result is what a job returns, and what its acknowledgement pushes.
type result struct {
	given       bool
	value       []byte
	contentType string

	next   []byte // frames
	pushes int    // how many
}

// set sets what the job returns.
func (r *result) set(value []byte, contentType string) {
	r.given, r.value, r.contentType = true, value, contentType
}

// push adds what the acknowledgement pushes.
func (r *result) push(queue string, priority int64, m Message, options []PushOption) error {
	if r.pushes == subjects.MaxSuccessors {
		return badRequest("an acknowledgement pushes at most %d items", subjects.MaxSuccessors)
	}

	h := m.With(options...).With(header(subjects.HeaderQueue, queue)).Headers
	delete(h, subjects.HeaderPriority)
	block, err := subjects.AppendHeaders(nil, h)
	if err != nil {
		return badRequest("%v", err)
	}

	frame := subjects.Frame{Priority: priority, Headers: block, Value: m.Value}
	r.next = subjects.AppendFrame(r.next, frame)
	r.pushes++
	return nil
}

func (r *result) headers() nats.Header {
	if r.contentType == "" {
		return nats.Header{}
	}
	return nats.Header{subjects.HeaderContentType: {r.contentType}}
}
