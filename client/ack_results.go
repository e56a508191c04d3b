package client

import (
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// result is what a job returns, and what its acknowledgement pushes.
type result struct {
	given       bool
	value       []byte
	contentType string

	next []successor
	size int // about how many bytes their frames take
}

// successor is an item that the acknowledgement of a job pushes.
type successor struct {
	subjects.Frame
	member bool // its joiner is another successor of the job
	joiner int  // the index of that
}

// set sets what the job returns.
func (r *result) set(value []byte, contentType string) {
	r.given, r.value, r.contentType = true, value, contentType
}

// push adds what the acknowledgement pushes.
func (r *result) push(queue string, priority int64, m Message, options []PushOption) error {
	if len(r.next) == subjects.MaxSuccessors {
		return badRequest("an acknowledgement pushes at most %d items", subjects.MaxSuccessors)
	}

	h := m.With(options...).With(header(subjects.HeaderQueue, queue)).Headers
	delete(h, subjects.HeaderPriority)
	next := successor{Frame: subjects.Frame{Priority: priority, Value: slices.Clone(m.Value)}}
	if of, err := subjects.ParseJoiner(h.Get(subjects.HeaderJoiner)); err == nil && of.Queue == "" {
		next.member, next.joiner = true, of.Frame
		delete(h, subjects.HeaderJoiner) // the frame has its number only in the request
	}

	block, err := subjects.AppendHeaders(nil, h)
	if err != nil {
		return badRequest("%v", err)
	}
	next.Headers = block
	r.next, r.size = append(r.next, next), r.size+next.Size()+len(subjects.HeaderJoiner)+8
	return nil
}

// appendSuccessors appends the frames of what the acknowledgement pushes, of which the first has a
// number in the request.
func (r *result) appendSuccessors(data []byte, first int) []byte {
	for _, next := range r.next {
		if next.member {
			lines := next.Headers[:len(next.Headers)-2] // without the empty line
			number := strconv.Itoa(first + next.joiner)
			lines = subjects.AppendHeaderLine(slices.Clone(lines), subjects.HeaderJoiner, number)
			next.Headers = append(lines, "\r\n"...)
		}
		data = subjects.AppendFrame(data, next.Frame)
	}
	return data
}

func (r *result) headers() nats.Header {
	if r.contentType == "" {
		return nats.Header{}
	}
	return nats.Header{subjects.HeaderContentType: {r.contentType}}
}
