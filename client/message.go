package client

import (
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Message is what a producer pushes. It must not change until the call returns.
type Message struct {
	Value []byte
	// Headers are stored with the value and returned with it. Names that begin with Pq- are
	// reserved: see With.
	Headers nats.Header
}

// PushOption asks for more than a plain push.
type PushOption func(nats.Header)

// MsgID gives a push an id of 1 to 512 bytes, in one line, without spaces at either end. A later
// push to the queue with the same id is a duplicate, which changes nothing, for the duplicate
// window of the queue: two minutes unless its settings say otherwise. So a push whose outcome is
// unknown can be repeated.
func MsgID(id string) PushOption { return header(subjects.HeaderMsgID, id) }

// Unique gives an item a key of 1 to 512 bytes, like that of MsgID. As long as the item is in the
// queue, ready, leased or delayed, other pushes with the key are duplicates, which change nothing.
func Unique(key string) PushOption { return header(subjects.HeaderUnique, key) }

// Group gives an item a group of 1 to 128 bytes, like the key of Unique, such as the name of a
// customer. Among items of equal priority, groups are served in turn, and each in the order of its
// pushes. The settings MaxLeasedPerGroup and RatePerGroup limit what a group gets.
func Group(name string) PushOption { return header(subjects.HeaderGroup, name) }

// Weight is how many items of its group have a turn together, 1 to 100; not given, 1. It goes with
// Group, and should be the same for all items of a group.
func Weight(n int) PushOption { return header(subjects.HeaderWeight, strconv.Itoa(n)) }

// Delay holds the item back for a time, up to ten years. Then it takes the place that it would have
// had without a delay, before items pushed meanwhile.
func Delay(d time.Duration) PushOption { return header(subjects.HeaderDelay, d.String()) }

// At is Delay until a time, by the clock of the bridge. A time in the past is no delay.
func At(t time.Time) PushOption { return header(subjects.HeaderSchedule, subjects.FormatSchedule(t)) }

// TTL makes the item expire that long after the push, one second to ten years. 0 means never,
// whatever the settings of the queue say. The header Nats-TTL comes back with the item.
func TTL(d time.Duration) PushOption {
	if d == 0 {
		return header(subjects.HeaderTTL, subjects.TTLNever)
	}
	return header(subjects.HeaderTTL, d.String())
}

func header(name, value string) PushOption {
	return func(h nats.Header) { h[name] = []string{value} }
}

// With returns the message with options, as headers of it. It is for the items of a batch; other
// pushes take the options themselves.
func (m Message) With(options ...PushOption) Message {
	if len(options) == 0 {
		return m
	}

	if m.Headers = maps.Clone(m.Headers); m.Headers == nil {
		m.Headers = nats.Header{}
	}
	for _, option := range options {
		option(m.Headers)
	}
	return m
}

// Item is a message in a queue, with what the bridge says about it. It belongs to the caller. The
// ItemInfo is empty if the message left no room for it in the reply:
//
//	Value      []byte
//	Headers    nats.Header
//	ID         string
//	Priority   int64       // 0 in a FIFO queue
//	PushedAt   time.Time   // zero for an item that another program wrote
//	Unique     string      // key of the push, "" for none
//	Group      string      // of the push, "" for none
//	DeadLetter *DeadLetter // how it came into a dead-letter queue, nil if it is in another
type Item struct {
	subjects.ItemInfo
	Message
}

// DeadLetter says how an item came into a dead-letter queue:
//
//	Queue      string    // that it was in
//	Reason     string    // "max_deliver", "terminated", or as its last holder put it
//	At         time.Time // when it was moved
//	Deliveries int64     // it had had
//	Error      string    // reason of the last failure that gave one
type DeadLetter = subjects.DeadLetter
