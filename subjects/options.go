package subjects

import (
	"bytes"
	"cmp"
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
	// MaxHolder is the longest name of a lease's holder, in bytes.
	MaxHolder = settings.MaxHolder
)

// PopOptions is what the payload of a pop asks for, a JSON object:
//
//	{"batch": 10, "expires": "30s", "ack_wait": "30s", "max_bytes": 1048576, "idle_heartbeat": "5s",
//	 "no_wait": true, "frames": true, "id": "Q7..."}
//	{"cancel": "Q7..."}
//
// The names are those of JetStream's pull requests, and ack_wait, frames, id, holder and cancel. Durations
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
	// Holder is the name of who takes the leases, up to MaxHolder bytes of UTF-8 without control
	// characters, for people who look at the queue; "" is none. It needs Lease. After +NXT, without
	// Lease, it is that of the lease before unless it says another.
	Holder string
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

// popObject is PopOptions as JSON; PopOptions.object writes the same.
type popObject struct {
	Batch         popBatch       `json:"batch"`
	AckWait       *time.Duration `json:"ack_wait"`
	MaxBytes      int            `json:"max_bytes"`
	Expires       time.Duration  `json:"expires"`
	IdleHeartbeat time.Duration  `json:"idle_heartbeat"`
	NoWait        bool           `json:"no_wait"`
	Frames        bool           `json:"frames"`
	ID            requestID      `json:"id"`
	Holder        holderName     `json:"holder"`
	Cancel        requestID      `json:"cancel"`
}

// popBatch is 1 to MaxPopBatch.
type popBatch int

// UnmarshalJSON implements json.Unmarshaler.
func (b *popBatch) UnmarshalJSON(v []byte) error {
	n, err := strconv.Atoi(string(v))
	*b = popBatch(n)
	return cmp.Or(err, within("batch", &n, 1, MaxPopBatch))
}

func (popBatch) Want() string { return fmt.Sprintf("an integer from 1 to %d", MaxPopBatch) }

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
	return fmt.Sprintf("a text of at most %d bytes without control characters", MaxHolder)
}

// ParsePopOptions reads the payload of a pop; an empty one asks for nothing. Errors wrap
// ErrOptions.
func ParsePopOptions(payload []byte) (PopOptions, error) {
	if len(payload) == 0 {
		return PopOptions{}, nil
	}
	var p popObject
	if err := readObject(payload, &p); err != nil {
		return PopOptions{}, err
	}
	if p.Holder != "" && p.AckWait == nil {
		return PopOptions{}, fmt.Errorf("%w: holder without ack_wait: only a lease has a holder: want both or neither", ErrOptions)
	}
	return p.options(), nil
}

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does not
// check the bounds.
func (o PopOptions) Encode() []byte {
	if o == (PopOptions{}) {
		return nil // which most pops of one item do
	}
	return o.object().end()
}

func (o *PopOptions) object() (b object) {
	b.put("batch", o.Batch != 0, o.Batch)
	b.put("ack_wait", o.Lease || o.AckWait != 0, o.AckWait)
	b.put("max_bytes", o.MaxBytes != 0, o.MaxBytes)
	b.put("expires", o.Expires != 0, o.Expires)
	b.put("idle_heartbeat", o.IdleHeartbeat != 0, o.IdleHeartbeat)
	b.put("no_wait", o.NoWait, true)
	b.put("frames", o.Frames, true)
	b.put("id", o.ID != "", o.ID)
	b.put("holder", o.Holder != "", o.Holder)
	b.put("cancel", o.Cancel != "", o.Cancel)
	return b
}

func (p *popObject) options() PopOptions {
	return PopOptions{
		Batch: int(p.Batch), Lease: p.AckWait != nil, AckWait: deref(p.AckWait), NoWait: p.NoWait,
		MaxBytes: p.MaxBytes, Expires: p.Expires, IdleHeartbeat: p.IdleHeartbeat, Frames: p.Frames,
		ID: string(p.ID), Holder: string(p.Holder), Cancel: string(p.Cancel),
	}
}

func (p *popObject) check() error {
	err := cmp.Or(
		lasts("ack_wait", deref(p.AckWait), MinAckWait, MaxAckWait),
		within("max_bytes", &p.MaxBytes, 0, 1<<40),
		lasts("expires", p.Expires, MinExpires, MaxExpires),
		lasts("idle_heartbeat", p.IdleHeartbeat, MinIdleHeartbeat, MaxExpires),
	)
	switch {
	case err != nil:
		return err
	case p.Cancel != "" && *p != popObject{Cancel: p.Cancel}:
		return errors.New("cancel ends another request: want nothing else with it")
	case p.IdleHeartbeat != 0 && p.Expires == 0:
		return errors.New("idle_heartbeat without expires: only a pop that waits has heartbeats: want both or neither")
	case p.ID != "" && p.Expires == 0:
		return errors.New("id without expires: only a pop that waits can be cancelled: want both or neither")
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
		var o ackObject
		err = readObject([]byte(rest), &o)
		a.Also = o.Also
		return a, err
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

// ackObject is what follows +ACK, nextObject +NXT, and nakObject -NAK.
type ackObject struct {
	Also texts `json:"also"`
}

type nextObject struct {
	popObject
	ackObject
}

type nakObject struct {
	Delay  *time.Duration `json:"delay"`
	Snooze bool           `json:"snooze"`
	Reason string         `json:"reason"`
}

func (o *ackObject) check() error { return o.Also.atMost("also", MaxAlso) }

func (o *nextObject) check() error { return cmp.Or(o.popObject.check(), o.ackObject.check()) }

func (o *nakObject) check() error { return lasts("delay", deref(o.Delay), 0, MaxDelay) }

// parseNext reads what follows +NXT: nothing, a number, as JetStream has it, or an object.
func (a *Ack) parseNext(text string) (err error) {
	if text == "" {
		return nil
	}
	if text[0] != '{' { // where Atoi would take long to fail
		if a.Next.Batch, err = strconv.Atoi(text); err == nil {
			if a.Next.Batch < 1 || a.Next.Batch > MaxPopBatch {
				err = fmt.Errorf("%w: +NXT %s: want 1 to %d items",
					ErrOptions, quote(text), MaxPopBatch)
			}
			return err
		}
	}

	var o nextObject
	if err = readObject([]byte(text), &o); err == nil && o.Cancel != "" {
		err = fmt.Errorf("%w: +NXT with cancel, which the subject of a pop takes: want something else", ErrOptions)
	}
	a.Next, a.Also = o.options(), o.Also
	return err
}

// parseNak reads what follows -NAK: nothing, a duration, or an object.
func (a *Ack) parseNak(text string) (err error) {
	switch {
	case text == "":
		return nil
	case text[0] == '{':
		var o nakObject
		err = readObject([]byte(text), &o)
		a.Delay, a.HasDelay, a.Snooze = deref(o.Delay), o.Delay != nil, o.Snooze
		a.Reason = strings.TrimSpace(o.Reason)
		return err
	}

	a.HasDelay = true
	if a.Delay, err = time.ParseDuration(text); err != nil || a.Delay < 0 || a.Delay > MaxDelay {
		return fmt.Errorf("%w: -NAK %s: want a duration with a unit, such as 30s, from 0s to %v, or a JSON object",
			ErrOptions, quote(text), MaxDelay)
	}
	return nil
}

// Encode returns the payload that ParseAck reads. It does not check the bounds.
func (a Ack) Encode() []byte {
	verb, b := "+ACK", object(nil)
	switch a.Kind {
	case AckNak:
		verb = "-NAK"
		b.put("delay", a.HasDelay || a.Delay != 0, a.Delay)
		b.put("snooze", a.Snooze, true)
		b.put("reason", a.Reason != "", a.Reason)
	case AckTerm:
		return bytes.TrimSuffix([]byte("+TERM "+a.Reason), []byte(" "))
	case AckProgress:
		return []byte("+WPI")
	case AckNext:
		verb, b = "+NXT", a.Next.object()
	}

	b.put("also", len(a.Also) > 0 && a.Kind != AckNak, a.Also)
	if b == nil {
		return []byte(verb)
	}
	return append([]byte(verb+" "), b.end()...)
}
