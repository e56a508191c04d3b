package subjects

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// TimeLayout is how replies write times: RFC 3339 with microseconds. The time is in UTC.
const TimeLayout = strictjson.TimeLayout

// Members of the metadata of a bridge in service discovery.
const (
	// MetadataStore is the identity of the store: bridges with the same serve the same items.
	MetadataStore = "store"
	// MetadataJetStream is MetadataConnected if the JetStream face is connected, or else why it is not.
	// Only an INFO has it, and of a bridge that has the face.
	MetadataJetStream = "jetstream"
	MetadataConnected = "connected"
	// MetadataTime is what the bridge's clock says, in TimeLayout. Only an INFO has it.
	MetadataTime = "time"
)

// Pushed is the payload of the reply to a push.
type Pushed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Priority is nil in a FIFO queue.
	Priority *int64 `json:"priority,omitempty"`
	// Duplicate says that the push changed nothing: ID, Priority and Seq are those of the item that
	// was pushed before.
	Duplicate bool `json:"duplicate,omitempty"`
	Stored
}

// Stored makes the reply to a push what JetStream calls a PubAck, so that its publishers can push.
type Stored struct {
	// Stream is the name of the queue.
	Stream string `json:"stream"`
	// Seq is the time of the push in microseconds since 1970. A float64 can hold it, as
	// JavaScript needs.
	Seq uint64 `json:"seq"`
}

// appendStored appends the members of a Stored, and the end of the object.
func appendStored(b []byte, queue string, at time.Time) []byte {
	b = append(b, `,"stream":"`...)
	b = append(b, queue...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, at.UnixMicro(), 10)
	return append(b, '}')
}

// AppendPushed appends the JSON of a Pushed to b: {"queue":"jobs","id":"...",
// "priority":5,"stream":"jobs","seq":1795000000000000}. It allocates nothing else. Queue
// names and ids need no escaping.
func AppendPushed(b []byte, kind Kind, queue, id string, priority int64, at time.Time) []byte {
	b = append(b, `{"queue":"`...)
	b = append(b, queue...)
	b = append(b, `","id":"`...)
	b = append(b, id...)
	b = append(b, '"')
	if kind == Priority {
		b = append(b, `,"priority":`...)
		b = strconv.AppendInt(b, priority, 10)
	}
	return appendStored(b, queue, at)
}

// PushedBatch is the payload of the reply to a batch of pushes.
type PushedBatch struct {
	Queue string `json:"queue"`
	// IDs are in the order of the items.
	IDs []string `json:"ids"`
	// Duplicates are the indexes of items that were not pushed, as in Pushed.
	Duplicates []int `json:"duplicates,omitempty"`
	Stored
}

// MaxPushedBatch is the largest size of a reply to a batch of n pushes.
func MaxPushedBatch(n int) int {
	const (
		maxID = 51 // of the largest priority and count
		rest  = len(`{"queue":"","ids":[],"stream":"","seq":}`) + 2*MaxQueueName + 19
	)
	return n*(maxID+len(`"",`)) + rest
}

// AppendPushedBatch appends the JSON of a PushedBatch with n ids to b: {"queue":"jobs",
// "ids":["..."],"stream":"jobs","seq":1795000000000000}. appendID appends the id of an item,
// which needs no escaping.
func AppendPushedBatch(b []byte, queue string, n int, appendID func(b []byte, i int) []byte, at time.Time) []byte {
	b = append(b, `{"queue":"`...)
	b = append(b, queue...)
	b = append(b, `","ids":[`...)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = appendID(b, i)
		b = append(b, '"')
	}
	b = append(b, ']')
	return appendStored(b, queue, at)
}

// ParsePushedBatch reads what AppendPushedBatch wrote. It ignores members that it does not know.
func ParsePushedBatch(payload []byte) (PushedBatch, error) {
	var reply struct {
		IDs texts `json:"ids"` // by far the most of it
		PushedBatch
	}
	if strictjson.UnmarshalReply(payload, &reply) != nil {
		return PushedBatch{}, notReply(payload)
	}
	reply.PushedBatch.IDs = reply.IDs
	return reply.PushedBatch, nil
}

// Length is the payload of the reply to a len.
type Length struct {
	Queue string `json:"queue"`
	Len   int64  `json:"len"`
}

func notReply(payload []byte) error {
	return fmt.Errorf("reply %s: want a JSON object with the members of such a reply", quote(string(payload)))
}

// ItemInfo is what the headers of a reply to pop and peek say about the item.
type ItemInfo struct {
	ID       string
	Priority int64     // 0 in a FIFO queue
	PushedAt time.Time // zero for an item that another program wrote
	Unique   string    // "" for an item without a unique key
	Group    string    // "" for an item without a group
	// DeadLetter is nil for an item that is not in a dead-letter queue.
	DeadLetter *DeadLetter
}

// DeadLetter is what the headers of a reply say about how its item came into a dead-letter queue.
type DeadLetter struct {
	Queue      string    // the item was in
	Reason     string    // "max_deliver", "terminated", or as its last holder put it
	At         time.Time // it was moved
	Deliveries int64     // that the item had
	Error      string    // reason of the last negative acknowledgement that gave one
}

// ItemHeaders is what the headers of a reply say about its item and the lease of that. A copy shares the DeadLetter.
type ItemHeaders struct {
	ItemInfo
	Lease LeaseInfo
	// Token is that of the lease of an item in a frame.
	Token string

	dead *DeadLetter // as far as it is known, DeadLetter once it has a reason
}

// ParseItemHeaders returns what the headers of a reply say about its item: the zero value if it had no
// room for them. The error names all headers that are wrong, which count as absent. It wraps
// [ErrPriority] if the priority is.
func ParseItemHeaders(h map[string][]string) (item ItemHeaders, err error) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			err = errors.Join(err, item.Set(name, value))
		}
	}
	return item, err
}

// Set takes in one header, for callers that have no map of them. It ignores headers that have no
// field here. Of one that is repeated, the last counts. After an error the header counts as absent.
func (h *ItemHeaders) Set(name, value string) (err error) {
	switch name {
	case HeaderID:
		h.ID = value
	case HeaderPriority:
		if value != "" {
			h.Priority, err = ParsePriority(value)
		}
		if err != nil {
			err = fmt.Errorf("header %s: %w", name, err)
		}
	case HeaderPushedAt:
		h.PushedAt, err = parseTime(name, value)
	case HeaderUnique:
		h.Unique = value
	case HeaderGroup:
		h.Group = value
	case HeaderDeliveries:
		h.Lease.Deliveries, err = parseCount(name, value)
	case HeaderLeaseUntil:
		h.Lease.Until, err = parseTime(name, value)
	case HeaderToken:
		h.Token = value
	case HeaderDeadQueue, HeaderDeadReason, HeaderDeadAt, HeaderDeadDeliveries, HeaderDeadError:
		err = h.setDead(name, value)
	}
	return err
}

func (h *ItemHeaders) setDead(name, value string) error {
	d := h.dead
	if d == nil {
		d = new(DeadLetter)
	}
	if err := d.set(name, value); err != nil {
		return err
	}
	h.dead = d
	if name == HeaderDeadReason {
		h.DeadLetter = d
	}
	return nil
}

func (d *DeadLetter) set(name, value string) (err error) {
	switch name {
	case HeaderDeadQueue:
		d.Queue = value
	case HeaderDeadReason:
		d.Reason = value
	case HeaderDeadAt:
		d.At, err = parseTime(name, value)
	case HeaderDeadDeliveries:
		d.Deliveries, err = parseCount(name, value)
	case HeaderDeadError:
		d.Error = value
	}
	return err
}

// parseCount reads a header of a reply that is a number, 0 if it is absent.
func parseCount(name, value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header %s: %s: want an integer", name, quote(value))
	}
	return n, nil
}

// parseTime reads a header of a reply that is a time, the zero time if it is absent.
func parseTime(name, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, value) // which is quicker than with TimeLayout
	if err != nil || len(value) != len(TimeLayout) || value[len(value)-1] != 'Z' {
		return time.Time{}, fmt.Errorf("header %s: %s: want a time such as %s", name, quote(value), TimeLayout)
	}
	return at, nil
}

// Headers adds the headers of a DeadLetter to those of a reply.
func (d *DeadLetter) Headers(h map[string][]string) {
	h[HeaderDeadQueue] = []string{d.Queue}
	h[HeaderDeadReason] = []string{d.Reason}
	h[HeaderDeadAt] = []string{d.At.UTC().Format(TimeLayout)}
	h[HeaderDeadDeliveries] = []string{strconv.FormatInt(d.Deliveries, 10)}
	if d.Error != "" {
		h[HeaderDeadError] = []string{d.Error}
	}
}
