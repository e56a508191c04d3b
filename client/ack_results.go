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
// number in the request. parent is the token of the job's lease, "" for that of the subject.
//
// Bridges from before the setting trail refuse the parent, and nothing is done. As for any result
// that is refused, each job is then acknowledged on its own: there none has to be named.
func (r *result) appendSuccessors(data []byte, first int, parent string) []byte {
	for _, next := range r.next {
		if next.member {
			next.add(subjects.HeaderJoiner, strconv.Itoa(first+next.joiner))
		}
		if parent != "" {
			next.add(subjects.HeaderToken, parent)
		}
		data = subjects.AppendFrame(data, next.Frame)
	}
	return data
}

// add adds a header to a copy of the headers.
func (s *successor) add(name, value string) {
	lines := slices.Clone(s.Headers[:len(s.Headers)-2]) // without the empty line
	s.Headers = append(subjects.AppendHeaderLine(lines, name, value), "\r\n"...)
}

func (r *result) headers() nats.Header {
	if r.contentType == "" {
		return nats.Header{}
	}
	return nats.Header{subjects.HeaderContentType: {r.contentType}}
}
