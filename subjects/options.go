package subjects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// ErrOptions: the payload of a pop, an acknowledgement or a change of settings is not what it
// may be.
var ErrOptions = errors.New("bad options")

// Bounds of options.
const (
	// MaxPopBatch is the most items that one pop may ask for.
	MaxPopBatch = 1000
	// MaxAlso is the most further leases that one acknowledgement may name.
	MaxAlso = MaxPopBatch - 1
	// MinAckWait and MaxAckWait bound the length of a lease.
	MinAckWait = settings.MinLease
	MaxAckWait = settings.MaxLease
	// MinExpires and MaxExpires bound how long a pop may wait for items.
	MinExpires = time.Millisecond
	MaxExpires = time.Hour
	// MinIdleHeartbeat is the shortest time between two heartbeats of a pop that waits.
	MinIdleHeartbeat = 100 * time.Millisecond
	// MaxDelay is the longest delay of a negative acknowledgement, or in a backoff.
	MaxDelay = settings.MaxDelay
)

// PopOptions is what the payload of a pop asks for, a JSON object:
//
//	{"batch": 10, "expires": "30s", "ack_wait": "30s", "max_bytes": 1048576, "idle_heartbeat": "5s",
//	 "no_wait": true, "frames": true, "id": "Q7..."}
//	{"cancel": "Q7..."}
//
// The names are those of JetStream's pull requests, and ack_wait, frames, id and cancel. Durations
// are integers in nanoseconds, as there, or texts such as "30s".
type PopOptions struct {
	// Batch is the most items to return, 1 to MaxPopBatch; 0 if it was not given.
	Batch int
	// Lease says that ack_wait was given: the items are leased.
	Lease bool
	// AckWait is the length of the leases, MinAckWait to MaxAckWait; 0 means as the settings
	// of the queue say.
	AckWait time.Duration
	// MaxBytes is the most bytes of values and headers to return; 0 means no limit.
	MaxBytes int
	// Expires is how long the pop waits for items, MinExpires to MaxExpires; 0 means not at all.
	Expires time.Duration
	// IdleHeartbeat is the time between the heartbeats of a pop that waits, MinIdleHeartbeat to
	// MaxExpires; 0 means none.
	IdleHeartbeat time.Duration
	// NoWait makes a pop with Expires wait only if there is nothing at first. It changes
	// nothing for other pops.
	NoWait bool
	// Frames allows several items in one message, if Batch is more than 1: see HeaderFrames.
	Frames bool
	// ID names a pop with Expires, so that Cancel can end it: a text that nobody else can guess, as
	// CheckRequestID wants it.
	ID string
	// Cancel is the ID of the pop that is to wait no longer. Nothing else goes with it.
	Cancel string
}

// maxRequestID is the most bytes of the id of a request.
const maxRequestID = 64

// CheckRequestID returns an error unless id has 1 to 64 letters, digits, '-' and '_'.
func CheckRequestID(id string) error {
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, notInToken) {
		return fmt.Errorf("%w: %s: want 1 to %d letters, digits, '-' and '_'", ErrOptions, quote(id), maxRequestID)
	}
	return nil
}

// ParsePopOptions reads the payload of a pop; an empty one asks for nothing. Errors wrap
// ErrOptions.
func ParsePopOptions(payload []byte) (o PopOptions, err error) {
	if len(payload) > 0 {
		err = o.parse(payload)
	}
	return o, err
}

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does not
// check the bounds.
func (o PopOptions) Encode() []byte {
	if o == (PopOptions{}) {
		return nil // which most pops of one item do
	}
	return o.encode()
}

// encode adds another member.
func (o *PopOptions) encode(more ...member) []byte {
	list := o.members()
	return members(list[:popMembers+copy(list[popMembers:], more)]).encode()
}

// parse reads the object of a pop, which may have another member.
func (o *PopOptions) parse(payload []byte, more ...member) error {
	list := o.members()
	err := members(list[:popMembers+copy(list[popMembers:], more)]).parse(payload)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		*o = PopOptions{}
	}
	return err
}

// popMembers is the number of members of PopOptions.
const popMembers = 9

// members has room for one more. It is an array because requests with options are frequent.
func (o *PopOptions) members() [popMembers + 1]member {
	return [...]member{
		{name: "batch", to: &o.Batch, least: 1, most: MaxPopBatch},
		{name: "ack_wait", to: &o.AckWait, given: &o.Lease, least: int64(MinAckWait), most: int64(MaxAckWait)},
		{name: "max_bytes", to: &o.MaxBytes, most: 1 << 40},
		{name: "expires", to: &o.Expires, least: int64(MinExpires), most: int64(MaxExpires)},
		{name: "idle_heartbeat", to: &o.IdleHeartbeat, least: int64(MinIdleHeartbeat), most: int64(MaxExpires)},
		{name: "no_wait", to: &o.NoWait},
		{name: "frames", to: &o.Frames},
		{name: "id", to: &o.ID, check: CheckRequestID},
		{name: "cancel", to: &o.Cancel, check: CheckRequestID},
		{},
	}
}

// check returns an error if members do not go together.
func (o *PopOptions) check() error {
	switch {
	case o.Cancel != "" && *o != PopOptions{Cancel: o.Cancel}:
		return fmt.Errorf("%w: cancel ends another request: want nothing else with it", ErrOptions)
	case o.IdleHeartbeat != 0 && o.Expires == 0:
		return fmt.Errorf("%w: idle_heartbeat without expires: only a pop that waits has heartbeats: want both or neither", ErrOptions)
	case o.ID != "" && o.Expires == 0:
		return fmt.Errorf("%w: id without expires: only a pop that waits can be cancelled: want both or neither", ErrOptions)
	}
	return nil
}

// AckKind is what an acknowledgement says.
type AckKind uint8

// The acknowledgements, with JetStream's payloads.
const (
	AckDone     AckKind = iota // "" or "+ACK": the item is done
	AckNak                     // "-NAK ...": give the item back
	AckProgress                // "+WPI": renews the lease
	AckNext                    // "+NXT ...": the item is done, and the next is wanted
	AckTerm                    // "+TERM ...": give the item up
)

// Ack is the payload of an acknowledgement.
type Ack struct {
	Kind AckKind
	// Delay is how long AckNak keeps the item back, 0 to MaxDelay, if HasDelay is set. If not, the
	// settings of the queue say it.
	Delay    time.Duration
	HasDelay bool
	// Snooze makes AckNak not count the delivery.
	Snooze bool
	// Reason is why AckNak or AckTerm was sent, "" if it does not say. It is any text.
	Reason string
	// Next is for AckNext.
	Next PopOptions
	// Also is the tokens of further leases of the queue that AckDone or AckNext acknowledges, up to
	// MaxAlso texts of any form.
	Also []string
}

// ParseAck reads the payload of an acknowledgement. Errors wrap ErrOptions.
func ParseAck(payload []byte) (a Ack, err error) {
	verb, rest, more := strings.Cut(string(payload), " ")
	rest = strings.TrimSpace(rest)

	switch {
	case verb == "-NAK":
		a.Kind = AckNak
		return a, a.parseNak(rest)
	case verb == "+TERM":
		a.Kind, a.Reason = AckTerm, rest
		return a, nil
	case verb == "+NXT":
		a.Kind = AckNext
		return a, a.parseNext(rest)
	case verb == "+ACK" && strings.HasPrefix(rest, "{"):
		return a, members{a.also()}.parse([]byte(rest))
	case verb == "+WPI":
		a.Kind = AckProgress
	case verb != "+ACK" && len(payload) > 0:
		return a, fmt.Errorf("%w: %s: want nothing, +ACK, -NAK, +WPI, +NXT or +TERM", ErrOptions, quote(string(payload)))
	}

	if more {
		want := "want nothing after " + verb
		if verb == "+ACK" {
			want += `, or a JSON object such as {"also":["token"]}`
		}
		return a, fmt.Errorf("%w: %s: %s", ErrOptions, quote(string(payload)), want)
	}
	return a, nil
}

// also is the member that names further leases.
func (a *Ack) also() member { return member{name: "also", to: &a.Also, length: MaxAlso} }

// parseNext reads what follows +NXT: nothing, a number, as JetStream has it, or an object.
func (a *Ack) parseNext(text string) (err error) {
	if text == "" {
		return nil
	}

	if a.Next.Batch, err = strconv.Atoi(text); err == nil {
		if a.Next.Batch < 1 || a.Next.Batch > MaxPopBatch {
			err = fmt.Errorf("%w: +NXT %s: want 1 to %d items", ErrOptions, quote(text), MaxPopBatch)
		}
		return err
	}

	if err = a.Next.parse([]byte(text), a.also()); err == nil && a.Next.Cancel != "" {
		err = fmt.Errorf("%w: +NXT with cancel, which the subject of a pop takes: want something else", ErrOptions)
	}
	return err
}

// parseNak reads what follows -NAK: nothing, a duration, or an object.
func (a *Ack) parseNak(text string) (err error) {
	switch {
	case text == "":
		return nil
	case text[0] == '{':
		err = a.nak().parse([]byte(text))
		a.Reason = strings.TrimSpace(a.Reason)
		return err
	}

	a.HasDelay = true
	if a.Delay, err = parseDurationText(text); err != nil || a.Delay < 0 || a.Delay > MaxDelay {
		return fmt.Errorf("%w: -NAK %s: want a duration with a unit, such as 30s, from 0s to %v, or a JSON object",
			ErrOptions, quote(text), MaxDelay)
	}
	return nil
}

// nak is the members of the object of a -NAK.
func (a *Ack) nak() members {
	return members{
		{name: "delay", to: &a.Delay, given: &a.HasDelay, most: int64(MaxDelay)},
		{name: "snooze", to: &a.Snooze},
		{name: "reason", to: &a.Reason},
	}
}

// Encode returns the payload that ParseAck reads. It does not check the bounds.
func (a Ack) Encode() []byte {
	verb, rest := "+ACK", members{a.also()}.encode()
	switch a.Kind {
	case AckNak:
		verb, rest = "-NAK", a.nak().encode()
	case AckTerm:
		verb, rest = "+TERM", []byte(a.Reason)
	case AckProgress:
		verb, rest = "+WPI", nil
	case AckNext:
		verb, rest = "+NXT", a.Next.encode(a.also())
	}

	if len(rest) == 0 {
		return []byte(verb)
	}
	return append([]byte(verb+" "), rest...)
}
