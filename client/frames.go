package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// framesAgain is how long a client does without frames after a bridge of an earlier version has refused them.
const framesAgain = time.Minute

// pop is a request that pops, as often as it is sent.
type pop struct {
	subject string
	encode  func(subjects.PopOptions) []byte
	acks    string // what a token follows in the subject of acknowledgements
}

// fetch sends a request that pops with the options, and calls receive for each item of the
// reply. It allows several items in a message; a bridge that does not know that is asked again without.
func (c *Client) fetch(ctx context.Context, p *pop, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	o.Frames = o.Batch > 1 && time.Now().UnixNano() >= c.framesAfter.Load()
	err := c.ask(ctx, p, o, receive)
	if !o.Frames || !errors.Is(err, ErrBadRequest) { // which changes nothing
		return err
	}
	o.Frames = false
	if err = c.ask(ctx, p, o, receive); !errors.Is(err, ErrBadRequest) {
		c.framesAfter.Store(time.Now().Add(framesAgain).UnixNano())
	}
	return err
}

// unframe returns the items of a message that carries them in frames, as messages of their own, none if it is another.
func (p *pop) unframe(m *nats.Msg) ([]*nats.Msg, error) {
	n, err := subjects.FramesOf(m.Header)
	if n == 0 || err != nil {
		return nil, err
	}
	frames, err := subjects.ParseFrames(m.Data)
	if err != nil {
		return nil, err
	}
	if frames.Len() != n {
		return nil, fmt.Errorf("%d frames: want %d", frames.Len(), n)
	}
	items := make([]*nats.Msg, n)
	for i, frame := range frames.All() {
		item := &nats.Msg{Subject: m.Subject, Data: bytes.Clone(frame.Value)} // one that is kept must not keep all
		if len(frame.Headers) > 0 {
			if item.Header, err = nats.DecodeHeadersMsg(frame.Headers); err != nil {
				return nil, fmt.Errorf("frame %d: %w", i, err)
			}
		}
		if token := item.Header.Get(subjects.HeaderToken); token != "" {
			item.Reply = p.acks + token
		}
		items[i] = item
	}
	return items, nil
}
