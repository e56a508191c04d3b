package client

import (
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Message is what a producer pushes. It must not change until the call returns.
type Message struct {
	Value []byte
	// Headers are stored with the value and returned with it, each value as one line. Names that
	// begin with Pq- are reserved; see With.
	Headers nats.Header
}

// PushOption changes a push. It sets headers of the message.
type PushOption func(nats.Header)

// MsgID gives a push an id of 1 to 512 bytes, in one line, without spaces at either end. During the
// duplicate window of the queue, two minutes by default, a later push with the same id is a
// duplicate, which changes nothing. So a push whose outcome is unknown can be repeated.
func MsgID(id string) PushOption { return header(subjects.HeaderMsgID, id) }

// Unique gives an item a key in the form of a [MsgID]. As long as the item is in the queue, whether
// ready, leased or delayed, other pushes with the key are duplicates, which change nothing.
func Unique(key string) PushOption { return header(subjects.HeaderUnique, key) }

// Group gives an item a group, such as the name of a customer: 1 to 128 bytes of UTF-8 in one line,
// without spaces at either end. Among items of equal priority, groups take turns, and within a
// group the oldest item comes first. The settings MaxLeasedPerGroup and RatePerGroup limit what a
// group gets.
func Group(name string) PushOption { return header(subjects.HeaderGroup, name) }

// Weight is how many items of a [Group] have a turn together, 1 to 100, by default 1. It should be
// the same for all items of a group.
func Weight(n int) PushOption { return header(subjects.HeaderWeight, strconv.Itoa(n)) }

// Delay holds the item back for a time, up to ten years. Once due, it takes the place it would have
// had without the delay, before items pushed meanwhile.
func Delay(d time.Duration) PushOption { return header(subjects.HeaderDelay, d.String()) }

// At holds the item back until a time, at most ten years from now by the clock of the bridge. A
// time in the past means no delay. See [Delay].
func At(t time.Time) PushOption {
	return header(subjects.HeaderSchedule, subjects.FormatSchedule(t))
}

// TTL makes the item expire that long after the push, one second to ten years. 0 means never,
// whatever the settings of the queue say. The item is returned with the header Nats-TTL.
func TTL(d time.Duration) PushOption {
	if d == 0 {
		return header(subjects.HeaderTTL, subjects.TTLNever)
	}
	return header(subjects.HeaderTTL, d.String())
}

// Keep keeps the job for that long once it is done, one second to ten years: [Queue.Result] then
// finds its result. Without it, the setting Keep of the queue counts, by default none.
func Keep(d time.Duration) PushOption { return header(subjects.HeaderKeep, d.String()) }

// Header stores a header with the value, where a push takes options alone. Names that begin with
// Pq- are reserved.
func Header(name, value string) PushOption { return header(name, value) }

func header(name, value string) PushOption {
	return func(h nats.Header) { h[name] = []string{value} }
}

// With returns a copy of the message with options, which become headers. It is for the items of a
// batch; other pushes take options themselves.
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

// JobRef names a job, and the queue that it was pushed to.
type JobRef = trail.Job

// Attempt is a delivery of a job that has ended, and counts: see the setting Trail.
type Attempt = trail.Attempt

// Item is a message from a queue, and what the bridge says about it. It belongs to the caller. All
// but Value and Headers is zero if the message left no room for it in the reply.
type Item struct {
	subjects.ItemInfo
	Message

	// Attempts are the attempts of the job that have ended, oldest first, as far as the setting
	// Trail keeps them, Successors the first 64 jobs that one which is done has pushed, and
	// MoreSuccessors how many more there were. Only Get returns them.
	Attempts       []Attempt
	Successors     []JobRef
	MoreSuccessors int
}
