package client

import (
	"bytes"
	"errors"
	"fmt"
	"net/textproto"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// received is an item as the bridge sent it.
type received struct {
	message Message
	headers subjects.ItemHeaders // what the other headers say
	ack     string               // the subject of its acknowledgements, "" if it is not leased
}

// receivedIn returns the item in a message without frames.
func receivedIn(m *nats.Msg) *received {
	r := &received{message: Message{Value: m.Data, Headers: nats.Header{}}, ack: m.Reply}
	for name, values := range m.Header {
		for _, value := range values {
			r.header(name, value)
		}
	}
	return r
}

// header reads a header. A wrong one counts as absent: a pop has already removed the item, and an
// error would lose it.
func (r *received) header(name, value string) {
	if subjects.OfItem(name) {
		r.message.Headers[name] = append(r.message.Headers[name], value)
	}
	_ = r.headers.Set(name, value)
}

// item returns the item, which belongs to the caller.
func (r *received) item() *Item {
	return &Item{ItemInfo: r.headers.ItemInfo, Message: r.message}
}

// popped is item for fetchAll.
func (r *received) popped() (*Item, error) { return r.item(), nil }

// receiver is called with each item of a reply. It must not keep the received.
type receiver func(*received) error

// readFrames calls receive for each item of a message with items in frames, until it returns an
// error. The received is reused for the next item. acks is the subject of acknowledgements up to
// the token. More items than limit are an error, because callers have no place for them. readFrames
// returns the number of items, 0 if the message has no frames.
func readFrames(m *nats.Msg, acks string, limit int, receive receiver) (n int, err error) {
	if n, err = subjects.FramesOf(m.Header); n == 0 || err != nil {
		return 0, badReply(err)
	}

	frames, err := subjects.ParseFrames(m.Data)
	if err == nil && len(frames) != n {
		err = fmt.Errorf("%d frames: want %d", len(frames), n)
	}
	if err == nil && n > limit {
		err = fmt.Errorf("%d items: want at most %d", n, limit)
	}
	if err != nil {
		return 0, badReply(err)
	}

	var r received
	for i, frame := range frames {
		// A copy of the value, because otherwise an item that is kept would keep the whole message.
		r = received{message: Message{Value: bytes.Clone(frame.Value), Headers: nats.Header{}}}
		if err := r.readHeaders(frame.Headers); err != nil {
			return i, badReply(fmt.Errorf("frame %d: %w", i, err))
		}
		if r.headers.Token != "" {
			r.ack = acks + r.headers.Token
		}
		if err := receive(&r); err != nil {
			return i, err
		}
	}
	return n, nil
}

var errHeaders = errors.New("the headers cannot be read")

// readHeaders reads a block of headers, which may be empty, as nats.DecodeHeadersMsg does.
func (r *received) readHeaders(block []byte) error {
	if len(block) == 0 {
		return nil
	}

	rest, ok := strings.CutPrefix(string(block), "NATS/1.0\r\n")
	for ok && rest != "\r\n" {
		var line, name, value string
		if line, rest, ok = strings.Cut(rest, "\r\n"); ok {
			name, value, ok = strings.Cut(line, ":")
		}
		r.header(name, textproto.TrimString(value))
	}

	if !ok {
		return errHeaders
	}
	return nil
}
