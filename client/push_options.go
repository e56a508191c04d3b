package client

import (
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushOption is an option of a push.
type PushOption struct{ header, value string }

// MsgID gives a push an id of 1 to 512 bytes. A later push to the queue with the same id is a duplicate for the
// duplicate window of the queue, two minutes unless its settings say otherwise: it changes nothing. So a push
// whose outcome is unknown can be repeated.
func MsgID(id string) PushOption { return PushOption{subjects.HeaderMsgID, id} }

// Unique gives an item a key of 1 to 512 bytes. As long as the item is in the queue, ready, leased or delayed,
// other pushes with the key are duplicates, which change nothing.
func Unique(key string) PushOption { return PushOption{subjects.HeaderUnique, key} }

// With returns the message with options, for pushes of several items.
func (m Message) With(options ...PushOption) Message {
	if len(options) == 0 {
		return m
	}
	if m.Headers = maps.Clone(m.Headers); m.Headers == nil {
		m.Headers = nats.Header{}
	}
	for _, o := range options {
		m.Headers[o.header] = []string{o.value}
	}
	return m
}
