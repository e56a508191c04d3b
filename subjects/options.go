package subjects

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// ErrOptions: the payload of a pop, an acknowledgement, a change of settings or a request about
// items is not valid.
var ErrOptions = errors.New("bad options")

// Bounds of options.
const (
	// MaxPopBatch is the most items that a pop may ask for.
	MaxPopBatch = 1000
	// MaxAlso is the most further leases that an acknowledgement may name.
	MaxAlso = MaxPopBatch - 1
	// MinExpires and MaxExpires bound how long a pop may wait for items, and a request for the
	// result of a job for its end.
	MinExpires = time.Millisecond
	MaxExpires = time.Hour
	// MinIdleHeartbeat is the shortest time between two heartbeats of a pop that waits.
	MinIdleHeartbeat = 100 * time.Millisecond
)

// PopOptions is what the payload of a pop asks for, a JSON object:
//
//	{"batch": 10, "expires": "30s", "ack_wait": "30s", "max_bytes": 1048576,
//	 "idle_heartbeat": "5s", "no_wait": true, "frames": true, "id": "Q7..."}
//	{"cancel": "Q7..."}
//
// JetStream's pull requests have the same names, except ack_wait, frames, id, holder and cancel.
// Durations are integers in nanoseconds, as there, or texts such as "30s".
type PopOptions struct {
	// Batch is the most items to return, 1 to MaxPopBatch; 0 if it was not given, which means 1.
	Batch int
	// Lease leases the items instead of removing them. It is set if ack_wait was given.
	Lease bool
	// AckWait is the length of the leases, settings.MinLease to settings.MaxLease; 0 means the
	// setting of the queue.
	AckWait time.Duration
	// MaxBytes is the most bytes of values and headers to return; 0 means no limit.
	MaxBytes int
	// Expires is how long the pop waits for items, MinExpires to MaxExpires; 0 means it does not
	// wait.
	Expires time.Duration
	// IdleHeartbeat is the time between the heartbeats of a waiting pop, MinIdleHeartbeat to
	// MaxExpires; 0 means none.
	IdleHeartbeat time.Duration
	// NoWait makes a pop with Expires wait only if there is nothing at first. Other pops ignore it.
	NoWait bool
	// Frames allows several items in one message, if Batch is more than 1, and keeps all header
	// values that are beyond ASCII in frames: see [HeaderFrames].
	Frames bool
	// ID names a pop with Expires, so that another request can cancel it. Choose one that nobody
	// can guess and that [CheckRequestID] accepts.
	ID string
	// Holder is the name of who takes the leases, for people who look at the queue: see
	// settings.CheckHolder. "" is none. It needs Lease, except after +NXT, where "" means the
	// holder of the lease that it ends.
	Holder string
	// Cancel is the ID of the pop that should stop waiting. It excludes all other options.
	Cancel string
}

// PeekOptions is what the payload of a peek asks for: nothing, or a JSON object, {"frames":true}.
type PeekOptions struct {
	// Frames is as in [PopOptions].
	Frames bool `json:"frames"`
}

// ParsePeekOptions reads the payload of a peek. Errors wrap [ErrOptions].
func ParsePeekOptions(payload []byte) (o PeekOptions, err error) {
	if len(payload) > 0 {
		err = readObject(payload, &o)
	}
	return o, err
}

func (*PeekOptions) check() error { return nil }

// maxRequestID is the most bytes of the id of a request.
const maxRequestID = 64

// CheckRequestID returns an error wrapping [ErrOptions] unless id has 1 to 64 letters, digits, '-'
// and '_'.
func CheckRequestID(id string) error {
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, notInToken) {
		return fmt.Errorf("%w: %s: want %s", ErrOptions, quote(id), requestID("").Want())
	}
	return nil
}

// popObject is PopOptions as JSON. PopOptions.object writes the same.
type popObject struct {
	popMembers
	Cancel requestID `json:"cancel"`
}

// popMembers is what +NXT takes too.
type popMembers struct {
	Batch         *int           `json:"batch"`
	AckWait       *time.Duration `json:"ack_wait"`
	MaxBytes      int            `json:"max_bytes"`
	Expires       time.Duration  `json:"expires"`
	IdleHeartbeat time.Duration  `json:"idle_heartbeat"`
	NoWait        bool           `json:"no_wait"`
	Frames        bool           `json:"frames"`
	ID            requestID      `json:"id"`
	Holder        holderName     `json:"holder"`
}

// requestID is a text that CheckRequestID accepts.
type requestID string

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *requestID) UnmarshalText(text []byte) error {
	*id = requestID(text)
	return CheckRequestID(string(text))
}

// Want says what UnmarshalText reads.
func (requestID) Want() string {
	return fmt.Sprintf("1 to %d letters, digits, '-' and '_'", maxRequestID)
}

// holderName is the name of a lease's holder.
type holderName string

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *holderName) UnmarshalText(text []byte) error {
	*n = holderName(text)
	return settings.CheckHolder(string(text))
}

// Want says what UnmarshalText reads.
func (holderName) Want() string {
	return fmt.Sprintf("a string of at most %d bytes without control characters",
		settings.MaxHolder)
}

// ParsePopOptions reads the payload of a pop. An empty one is valid and means one item, at once and
// without a lease. Errors wrap [ErrOptions].
func ParsePopOptions(payload []byte) (PopOptions, error) {
	if len(payload) == 0 {
		return PopOptions{}, nil
	}

	var p popObject
	if err := readObject(payload, &p); err != nil {
		return PopOptions{}, err
	}
	if p.Holder != "" && p.AckWait == nil {
		return PopOptions{}, fmt.Errorf("%w: holder without ack_wait: "+
			"only a lease has a holder: want both or neither", ErrOptions)
	}
	o := p.options()
	o.Cancel = string(p.Cancel)
	return o, nil
}

func (p *popMembers) options() PopOptions {
	return PopOptions{
		Batch: deref(p.Batch), Lease: p.AckWait != nil, AckWait: deref(p.AckWait), NoWait: p.NoWait,
		MaxBytes: p.MaxBytes, Expires: p.Expires, IdleHeartbeat: p.IdleHeartbeat, Frames: p.Frames,
		ID: string(p.ID), Holder: string(p.Holder),
	}
}

func (p *popObject) check() error {
	if p.Cancel != "" && p.popMembers != (popMembers{}) {
		return errors.New("cancel ends another request: want nothing else with it")
	}
	return p.popMembers.check()
}

func (p *popMembers) check() error {
	err := cmp.Or(
		within("batch", p.Batch, 1, MaxPopBatch),
		durationWithin("ack_wait", deref(p.AckWait), settings.MinLease, settings.MaxLease),
		within("max_bytes", &p.MaxBytes, 0, 1<<40),
		durationWithin("expires", p.Expires, MinExpires, MaxExpires),
		durationWithin("idle_heartbeat", p.IdleHeartbeat, MinIdleHeartbeat, MaxExpires),
	)
	if err != nil {
		return err
	}

	switch {
	case p.IdleHeartbeat != 0 && p.Expires == 0:
		return errors.New("idle_heartbeat without expires: " +
			"only a pop that waits has heartbeats: want both or neither")
	case p.ID != "" && p.Expires == 0:
		return errors.New("id without expires: " +
			"only a pop that waits can be cancelled: want both or neither")
	}
	return nil
}

// readObject reads and checks the payload of a request. Errors wrap ErrOptions.
func readObject(payload []byte, to interface{ check() error }) error {
	err := strictjson.Unmarshal(payload, to)
	if err == nil {
		err = to.check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// within returns an error if n is given and not within its bounds.
func within(name string, n *int, least, most int) error {
	if n != nil && (*n < least || *n > most) {
		return fmt.Errorf("%s: %d: want an integer from %d to %d", name, *n, least, most)
	}
	return nil
}

// deref returns the value of a member, or zero if it is not given.
func deref[T any](member *T) (v T) {
	if member != nil {
		v = *member
	}
	return v
}

// durationWithin returns an error unless d is 0 or within its bounds.
func durationWithin(name string, d, least, most time.Duration) error {
	if err := settings.CheckBounds(d, least, most); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
