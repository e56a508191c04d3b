package subjects

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// TimeLayout is the layout of times in replies: RFC 3339 in UTC, with microseconds.
const TimeLayout = strictjson.TimeLayout

// Members of the metadata of a bridge in service discovery.
const (
	// MetadataStore is the identity of the store. Bridges with the same store serve the same items.
	MetadataStore = "store"
	// MetadataJetStream is MetadataConnected if the bridge can serve JetStream's programs, or else
	// says why it cannot. Only the INFO of a bridge that is configured to serve them has it.
	MetadataJetStream = "jetstream"
	MetadataConnected = "connected"
	// MetadataNotReady says why the bridge is not ready, as BridgeStats.Why does. Only the INFO of
	// a bridge that is not ready has it.
	MetadataNotReady = "not_ready"
	// MetadataTime is the time of the bridge's clock, in TimeLayout. Only an INFO has it.
	MetadataTime = "time"
	// MetadataHost is the name of the machine or container that the bridge runs on, if it is known.
	MetadataHost = "host"
	// MetadataProcess is the bridge's process id there, and only sent with the host.
	MetadataProcess = "process"
)

// Pushed is the payload of the reply to a push.
type Pushed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Priority is nil in a FIFO queue.
	Priority *int64 `json:"priority,omitzero"`
	// Duplicate means that the push changed nothing. ID, Priority and Seq describe the push that
	// came before.
	Duplicate bool `json:"duplicate,omitzero"`
	// Stream is the name of the queue, and Seq the time of the push in microseconds since 1970,
	// which fits a float64, as JavaScript needs. They make the reply what JetStream calls a PubAck,
	// so that JetStream's publishers can push.
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
}

// endPushed appends the members for JetStream and ends the object.
func endPushed(b []byte, queue string, at time.Time) []byte {
	b = append(b, `,"stream":"`...)
	b = append(b, queue...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, at.UnixMicro(), 10)
	return append(b, '}')
}

// AppendPushed appends the JSON of a Pushed to b, such as
//
//	{"queue":"jobs","id":"...","priority":5,"stream":"jobs","seq":1795000000000000}
//
// It allocates nothing but room in b. It does not escape queue and id, which must not need it. at
// is the time of the push.
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
	return endPushed(b, queue, at)
}

// PushedBatch is the payload of the reply to a batch of pushes.
type PushedBatch struct {
	Queue string `json:"queue"`
	// IDs are the ids of the jobs, in the order of the items.
	IDs []string `json:"ids"`
	// Duplicates are the indexes of items that were not pushed because they were there before.
	Duplicates []int `json:"duplicates,omitzero"`
	// Stream and Seq are as in a Pushed.
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
}

// MaxPushedBatch is the most bytes of the reply to a batch of n pushes without duplicates; see
// [MaxDuplicates].
func MaxPushedBatch(n int) int {
	const (
		maxID = 51 // of the largest priority and count
		rest  = len(`{"queue":"","ids":[],"stream":"","seq":}`) + 2*settings.MaxQueueName + 19
	)
	return n*(maxID+len(`"",`)) + rest
}

// AppendPushedBatch appends the JSON of a PushedBatch with n ids to b, such as
//
//	{"queue":"jobs","ids":["..."],"stream":"jobs","seq":1795000000000000}
//
// appendID appends the id of item i to b, without escaping. at is the time of the push.
func AppendPushedBatch(
	b []byte, queue string, n int, appendID func(b []byte, i int) []byte, at time.Time,
) []byte {
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
	return endPushed(b, queue, at)
}

// ParsePushedBatch reads the payload of the reply to a batch of pushes. It ignores unknown members.
func ParsePushedBatch(payload []byte) (PushedBatch, error) {
	var reply struct {
		IDs texts `json:"ids"` // by far the most of it
		PushedBatch
	}
	if strictjson.UnmarshalReply(payload, &reply) != nil {
		return PushedBatch{}, notReply(payload)
	}

	// The outer IDs, which are read faster, hide PushedBatch.IDs.
	reply.PushedBatch.IDs = reply.IDs
	return reply.PushedBatch, nil
}

// Length is the payload of the reply to a len.
type Length struct {
	Queue string `json:"queue"`
	Len   int64  `json:"len"`
}

func notReply(payload []byte) error {
	return fmt.Errorf("reply %s: want a JSON object with the members of such a reply",
		quote(string(payload)))
}

// ItemInfo describes the item in a reply to a pop, peek or get.
type ItemInfo struct {
	ID       string    // of the job: it stays the same wherever the item goes
	Priority int64     // 0 in a FIFO queue
	PushedAt time.Time // zero for an item that another program wrote to the store
	Unique   string    // "" for an item without a unique key
	Group    string    // "" for an item without a group
	// Keep is for how long the job is kept once it is done, 0 if its push did not say.
	Keep time.Duration
	// Join is for how long a joiner waits for its members at most; 0 for any other item.
	Join time.Duration
	// Joiner is the joiner whose member the item is, nil if there is none.
	Joiner *Joiner
	// Joined is what became of the members of a joiner that has waited, nil for any other item.
	Joined *Joined
	// Parent is the job whose acknowledgement has pushed the item, nil if that is not known.
	Parent *trail.Job
	// DeadLetter is nil for an item that is not in a dead-letter queue.
	DeadLetter *DeadLetter

	// Place is where the item is, or was until it was popped, if that is not its ID. It holds until
	// the item moves.
	Place string
	// FoundIn is the dead-letter queue in which a get found the item; "" for the queue that was
	// asked.
	FoundIn string
}

// DeadLetter says how an item became a dead letter.
type DeadLetter struct {
	Queue      string    // where the item was before
	Reason     string    // "max_deliver", "terminated", or the text of the worker that dropped it
	At         time.Time // when it became a dead letter
	Deliveries int64     // how many the item had
	Error      string    // reason of the last negative acknowledgement that gave one
}

// ItemHeaders describes the item in a reply, and its lease. Copies share the DeadLetter.
type ItemHeaders struct {
	ItemInfo
	Lease LeaseInfo
	// Token is the token of the lease of an item in a frame; other items have it in the reply
	// subject.
	Token string
}

// ParseItemHeaders reads the headers of a reply with an item. The result is zero if the reply had
// no room for them. A header that is wrong counts as absent; the error joins one for each, and
// wraps [ErrPriority] if the priority is wrong.
func ParseItemHeaders(h map[string][]string) (item ItemHeaders, err error) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			err = errors.Join(err, item.Set(name, value))
		}
	}
	return item, err
}

// Set reads one header, for callers without a map of headers. It ignores headers that have no field
// here. If a header is repeated, the last counts. After an error the header counts as absent.
func (h *ItemHeaders) Set(name, value string) (err error) {
	switch name {
	case HeaderID:
		h.ID = value
	case HeaderPlace:
		h.Place = value
	case HeaderQueue:
		h.FoundIn = value
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
	case HeaderKeep:
		h.Keep, err = parseLength(name, value)
	case HeaderJoin:
		h.Join, err = parseLength(name, value)
	case HeaderJoiner:
		if value != "" {
			var joiner Joiner
			joiner, err = ParseJoiner(value)
			h.Joiner = &joiner
		}
	case HeaderJoined:
		if value != "" {
			h.Joined, err = parseJoined(value)
		}
	case HeaderParent:
		if job, ok := trail.ParseJob(value); ok {
			h.Parent = &job
		}
	case HeaderDeliveries:
		h.Lease.Deliveries, err = parseCount(name, value)
	case HeaderLeaseUntil:
		h.Lease.Until, err = parseTime(name, value)
	case HeaderAckWait:
		h.Lease.AckWait, err = parseLength(name, value)
	case HeaderMaxDeliver:
		h.Lease.MaxDeliver, err = parseCount(name, value)
	case HeaderToken:
		h.Token = value
	case HeaderDeadQueue, HeaderDeadReason, HeaderDeadAt, HeaderDeadDeliveries, HeaderDeadError:
		err = h.setDead(name, value)
	}
	return err
}

func (h *ItemHeaders) setDead(name, value string) (err error) {
	d := cmp.Or(h.DeadLetter, new(DeadLetter))
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
	if err == nil {
		h.DeadLetter = d
	}
	return err
}

// parseCount reads a number from the header of a reply, 0 if it is absent.
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

// parseLength reads a duration from the header of a reply, 0 if it is absent.
func parseLength(name, value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := strictjson.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("header %s: %s: want a duration such as 30s", name, quote(value))
	}
	return d, nil
}

// parseTime reads a time from the header of a reply, the zero time if it is absent.
func parseTime(name, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, value) // quicker than with TimeLayout
	if err != nil || len(value) != len(TimeLayout) || value[len(value)-1] != 'Z' {
		return time.Time{}, fmt.Errorf("header %s: %s: want a time such as %s",
			name, quote(value), TimeLayout)
	}
	return at, nil
}

// Headers adds the headers that describe the dead letter to h.
func (d *DeadLetter) Headers(h map[string][]string) {
	h[HeaderDeadQueue] = []string{d.Queue}
	h[HeaderDeadReason] = []string{d.Reason}
	h[HeaderDeadAt] = []string{d.At.UTC().Format(TimeLayout)}
	h[HeaderDeadDeliveries] = []string{strconv.FormatInt(d.Deliveries, 10)}
	if d.Error != "" {
		h[HeaderDeadError] = []string{d.Error}
	}
}

// Failure is the error for one of several ids; the zero value means success.
type Failure struct {
	Code   Code   `json:"code,omitzero"`
	Reason Reason `json:"error_reason,omitempty"`
	Text   string `json:"error,omitempty"`
}
