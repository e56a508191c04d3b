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

// frameReader reads the items in the frames of a message.
type frameReader struct {
	acks   string   // subject of acknowledgements up to the token
	item   nats.Msg // that receive gets
	values []string // in its header
}

// read calls receive for each item of a message that carries items in frames, until that returns an
// error. The message that receive gets, but not its value, is that of the next item afterwards. read returns the number of
// items, 0 if the message has no frames. More items than limit are an error: callers have no place
// for them.
func (r *frameReader) read(m *nats.Msg, limit int, receive func(*nats.Msg) error) (n int, err error) {
	if n, err = subjects.FramesOf(m.Header); n == 0 || err != nil {
		return 0, badReply(err)
	}

	frames, err := subjects.ParseFrames(m.Data)
	if err == nil && frames.Len() != n {
		err = fmt.Errorf("%d frames: want %d", frames.Len(), n)
	}
	if err == nil && n > limit {
		err = fmt.Errorf("%d items: want at most %d", n, limit)
	}
	if err != nil {
		return 0, badReply(err)
	}

	for i, frame := range frames.All() {
		if err := r.decode(frame.Headers); err != nil {
			return i, badReply(fmt.Errorf("frame %d: %w", i, err))
		}

		// The value is copied, so that an item which is kept does not keep all others.
		r.item.Subject, r.item.Reply, r.item.Data = m.Subject, "", bytes.Clone(frame.Value)
		if token := r.item.Header.Get(subjects.HeaderToken); token != "" {
			r.item.Reply = r.acks + token
		}
		if err := receive(&r.item); err != nil {
			return i, err
		}
	}
	return n, nil
}

var errHeaders = errors.New("the headers cannot be read")

// decode sets the headers to those of a block, which may be empty. It is nats.DecodeHeadersMsg for
// a frame, several times as fast.
func (r *frameReader) decode(block []byte) error {
	if r.item.Header == nil {
		r.item.Header = nats.Header{}
	}
	header := r.item.Header
	clear(header)
	r.values = r.values[:0]
	if len(block) == 0 {
		return nil
	}

	rest, ok := strings.CutPrefix(string(block), "NATS/1.0\r\n")
	for ok && rest != "\r\n" {
		var line, name, value string
		if line, rest, ok = strings.Cut(rest, "\r\n"); ok {
			name, value, ok = strings.Cut(line, ":")
		}
		value = trim(value)
		if before := header[name]; before != nil {
			header[name] = append(before, value)
			continue
		}

		// First values share one array, instead of an allocation for each.
		r.values = append(r.values, value)
		last := len(r.values)
		header[name] = r.values[last-1 : last : last]
	}
	if !ok {
		return errHeaders
	}
	return nil
}

// trim is textproto.TrimString, quicker for a value after one space.
func trim(value string) string {
	value = strings.TrimPrefix(value, " ")
	if value != "" && (value[0] <= ' ' || value[len(value)-1] <= ' ') {
		return textproto.TrimString(value)
	}
	return value
}
