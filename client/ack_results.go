package client

import (
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// result is what a job returns.
type result struct {
	given       bool
	value       []byte
	contentType string
}

func (r *result) headers() nats.Header {
	if r.contentType == "" {
		return nats.Header{}
	}
	return nats.Header{subjects.HeaderContentType: {r.contentType}}
}

// ackMessage returns the request that acknowledges a lease, and those of others, whose tokens are
// in a.Also. If it ends the leases, it carries the results of the jobs.
func ackMessage(a subjects.Ack, d *Delivery, others []*Delivery) *nats.Msg {
	ack := a.Encode()
	m := &nats.Msg{Subject: d.ackSubject, Data: ack}
	if a.Kind != subjects.AckDone && a.Kind != subjects.AckNext {
		return m
	}

	if len(others) == 0 {
		if d.result.given {
			m.Header, m.Data = d.result.headers(), d.result.value
			m.Header[subjects.HeaderAck] = []string{string(ack)}
		}
		return m
	}

	m.Data = nil
	frames := d.appendResult(m, 0)
	for _, other := range others {
		frames = other.appendResult(m, frames)
	}
	if frames == 0 {
		m.Data = ack
		return m
	}

	m.Header = nats.Header{
		subjects.HeaderAck:    {string(ack)},
		subjects.HeaderFrames: {strconv.Itoa(frames)},
	}
	return m
}

// appendResult appends the frame of a result to a message, if the job has one, and returns how many
// frames there are now.
func (d *Delivery) appendResult(m *nats.Msg, frames int) int {
	if !d.result.given {
		return frames
	}
	h := d.result.headers()
	token, _ := d.token()
	h[subjects.HeaderToken] = []string{token}
	block, _ := subjects.AppendHeaders(nil, h) // fails only for bad names of headers
	m.Data = subjects.AppendFrame(m.Data, subjects.Frame{Headers: block, Value: d.result.value})
	return frames + 1
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
	for i := range n {
		room -= eachToken
		if r := delivery(i).result; r.given {
			room -= eachFrame + len(r.contentType) + len(r.value)
		}
		if room < 0 {
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
