package client

import (
	"errors"
	"strconv"

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

// ackMessage returns the request that acknowledges a lease and others, whose tokens are in a.Also.
// If it ends the leases, it carries the results of the jobs, and what they push.
func ackMessage(a subjects.Ack, d *Delivery, others []*Delivery) *nats.Msg {
	ack := a.Encode()
	m := &nats.Msg{Subject: d.ackSubject, Data: ack}
	if a.Kind != subjects.AckDone && a.Kind != subjects.AckNext {
		return m
	}

	if len(others) == 0 && d.result.pushes == 0 {
		if d.result.given {
			m.Header, m.Data = d.result.headers(), d.result.value
			m.Header[subjects.HeaderAck] = []string{string(ack)}
		}
		return m
	}

	var data []byte
	frames := d.appendFrames(&data)
	for _, other := range others {
		frames += other.appendFrames(&data)
	}
	if frames > 0 {
		m.Data = data
		m.Header = nats.Header{
			subjects.HeaderAck:    {string(ack)},
			subjects.HeaderFrames: {strconv.Itoa(frames)},
		}
	}
	return m
}

// appendFrames appends the result of the job, if it has one, and what it pushes to data. It returns
// how many frames that were.
func (d *Delivery) appendFrames(data *[]byte) int {
	*data = append(*data, d.result.next...)
	if !d.result.given {
		return d.result.pushes
	}
	h := d.result.headers()
	token, _ := d.token()
	h[subjects.HeaderToken] = []string{token}
	block, _ := subjects.AppendHeaders(nil, h) // fails only for bad names of headers
	*data = subjects.AppendFrame(*data, subjects.Frame{Headers: block, Value: d.result.value})
	return d.result.pushes + 1
}

// fittingAcks returns how many of n acknowledgements go into one request, at least one.
func (c *Client) fittingAcks(n int, delivery func(int) *Delivery) int {
	const (
		rest      = 1024 // bytes of a request beside what follows
		eachToken = 84   // the most bytes of a token
		eachFrame = 160  // of a result, beside its value and type
	)
	room := int(min(c.maxPayload(), maxBatchBytes)) - rest

	n = min(n, subjects.MaxAlso+1)
	pushes := 0
	for i := range n {
		r := &delivery(i).result
		pushes += r.pushes
		room -= eachToken + len(r.next)
		if r.given {
			room -= eachFrame + len(r.contentType) + len(r.value)
		}
		if room < 0 || pushes > subjects.MaxSuccessors {
			return max(i, 1)
		}
	}
	return n
}

// isDone reports whether an acknowledgement was refused because an earlier one of the same lease
// has counted.
func isDone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == subjects.ReasonDone
}
