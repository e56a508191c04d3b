package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// modernAgain is how long a client does without what a bridge of an earlier version has refused.
const modernAgain = time.Minute

// pop is a request that pops, as often as it is sent.
type pop struct {
	subject string
	pops    string // subject of pops of the same queue, to cancel this one; "" if it is not known
	encode  func(subjects.PopOptions) []byte
	acks    string // what a token follows in the subject of acknowledgements
	leases  bool   // whatever the options say

	// What a Worker wants. end ends the wait, and so does a message of again; older returns what a bridge gets that knows no cancel.
	// beat is called when a heartbeat comes.
	end   context.Context
	again <-chan nats.Status
	older func(subjects.PopOptions) subjects.PopOptions
	beat  func()
}

// ends returns a channel that says when a wait with these options is to end, nil if that is not possible.
func (p *pop) ends(o subjects.PopOptions) *endings {
	if p.end == nil || o.ID == "" {
		return nil
	}
	return &endings{p.end.Done(), p.again}
}

// isModern reports whether bridges are asked for what earlier versions refuse.
func (c *Client) isModern() bool { return time.Now().UnixNano() >= c.modernAfter.Load() }

// fetch sends a request that pops with the options, and calls receive for each item of the
// reply. It allows several items in a message, and that it is cancelled; a bridge that does not know that is asked again without.
func (c *Client) fetch(ctx context.Context, p *pop, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	plain := o
	if p.older != nil {
		plain = p.older(o)
	}
	if !c.isModern() {
		return c.ask(ctx, p, plain, receive)
	}
	o.Frames = o.Batch > 1 || o.Lease || p.leases // so that a lease which nobody receives ends at once
	if o.Expires > 0 && p.pops != "" {
		o.ID = rand.Text()
	}
	err := c.ask(ctx, p, o, receive)
	if !o.Frames && o.ID == "" || !errors.Is(err, ErrBadRequest) { // which changes nothing
		return err
	}
	if err = c.ask(ctx, p, plain, receive); !errors.Is(err, ErrBadRequest) {
		c.modernAfter.Store(time.Now().Add(modernAgain).UnixNano())
	}
	return err
}

// frameReader reads the items in the frames of a message.
type frameReader struct {
	acks   string // what a token follows in the subject of acknowledgements
	header nats.Header
	values []string // in header
}

// read calls receive for each item of a message that carries items in frames, until that returns an error. The headers that it
// gets are valid until it returns. It returns the number of items, 0 if the message has no frames. More than most are an error,
// since callers have no place for them.
func (r *frameReader) read(m *nats.Msg, most int, receive func(*nats.Msg) error) (n int, err error) {
	if n, err = subjects.FramesOf(m.Header); n == 0 || err != nil {
		return 0, badReply(err)
	}
	frames, err := subjects.ParseFrames(m.Data)
	if err == nil && frames.Len() != n {
		err = fmt.Errorf("%d frames: want %d", frames.Len(), n)
	}
	if err == nil && n > most {
		err = fmt.Errorf("%d items: want at most %d", n, most)
	}
	if err != nil {
		return 0, badReply(err)
	}
	for i, frame := range frames.All() {
		if err := r.decode(frame.Headers); err != nil {
			return i, badReply(fmt.Errorf("frame %d: %w", i, err))
		}
		item := &nats.Msg{Subject: m.Subject, Header: r.header, Data: bytes.Clone(frame.Value)} // one that is kept must not keep all
		if token := r.header.Get(subjects.HeaderToken); token != "" {
			item.Reply = r.acks + token
		}
		if err := receive(item); err != nil {
			return i, err
		}
	}
	return n, nil
}

var errHeaders = errors.New("the headers cannot be read")

// decode sets the headers to those of a block, which may be empty. It is nats.DecodeHeadersMsg for a frame, several times as fast.
func (r *frameReader) decode(block []byte) error {
	if r.header == nil {
		r.header = nats.Header{}
	}
	clear(r.header)
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
		if value = textproto.TrimString(value); r.header[name] != nil {
			r.header[name] = append(r.header[name], value)
			continue
		}
		r.values = append(r.values, value)
		last := len(r.values)
		r.header[name] = r.values[last-1 : last : last]
	}
	if !ok {
		return errHeaders
	}
	return nil
}
