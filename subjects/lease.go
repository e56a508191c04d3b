package subjects

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// LeaseInfo describes the lease of an item in a reply. It is zero for an item without a lease.
type LeaseInfo struct {
	// Deliveries is how many times the item was delivered, this time included.
	Deliveries int64
	// Until is when the lease ends, by the bridge's clock.
	Until time.Time
	// AckWait is the length of the lease if the request did not say one, otherwise 0.
	AckWait time.Duration
	// MaxDeliver is how many deliveries the settings of the queue allow; 0 means no limit.
	MaxDeliver int64
}

// ParseBatchEnd reports whether a message with these headers ends the reply to a pop of several
// items, and how many items were sent. The error says that the number is none.
func ParseBatchEnd(h map[string][]string) (sent int, ends bool, err error) {
	text := first(h, HeaderBatchCount)
	n, err := parseCount(HeaderBatchCount, text)
	return int(n), text != "", err
}

// FramesOf returns how many items a message with these headers carries in frames, or 0 if it has no
// [HeaderFrames].
func FramesOf(h map[string][]string) (int, error) {
	text := first(h, HeaderFrames)
	n, err := parseCount(HeaderFrames, text)
	if err == nil && text != "" && (n < 1 || n > MaxFrames) {
		err = fmt.Errorf("header %s: %d: want 1 to %d", HeaderFrames, n, MaxFrames)
	}
	return int(n), err
}

// IsHeartbeat reports whether a message with these headers only says that a pop still waits.
func IsHeartbeat(h map[string][]string) bool { return len(h[HeaderHeartbeat]) > 0 }

// FormatNumbers returns the value of [HeaderLost], [HeaderDone], [HeaderNotKept] or, in the reply
// to an acknowledgement, [HeaderValueDropped]: numbers of leases, such as "0,3". 0 is the lease in
// the subject, and 1 the first of Ack.Also.
func FormatNumbers(leases []int) string { return string(appendList(nil, leases)) }

// ParseNumbers reads one of these headers in the reply to an acknowledgement of that many leases.
// It returns the numbers, as [FormatNumbers] counts them, in ascending order, or nil without the
// header.
func ParseNumbers(h map[string][]string, name string, leases int) (list []int, err error) {
	text := first(h, name)
	if text == "" {
		return nil, nil
	}

	last := -1
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n <= last || n >= leases {
			return nil, fmt.Errorf("header %s: %s: want ascending numbers from 0 to %d",
				name, quote(text), leases-1)
		}
		list, last = append(list, n), n
	}
	return list, nil
}

// AckKind says what an acknowledgement does.
type AckKind uint8

// The acknowledgements, with JetStream's payloads.
const (
	AckDone     AckKind = iota // "" or "+ACK": the item is done
	AckNak                     // "-NAK ...": the item goes back
	AckProgress                // "+WPI": the lease restarts
	AckNext                    // "+NXT ...": the item is done; lease the next
	AckTerm                    // "+TERM ...": the item becomes a dead letter
)

// Ack is the payload of an acknowledgement.
type Ack struct {
	Kind AckKind
	// Delay is how long AckNak holds the item back, 0 to settings.MaxDelay, if HasDelay is set.
	// Otherwise the backoff of the queue counts.
	Delay    time.Duration
	HasDelay bool
	// RetryDelay is how long AckNak holds the item back if the queue has no backoff, 0 to
	// settings.MaxDelay, as settings.RetryAfter says. It excludes Delay and Snooze.
	RetryDelay time.Duration
	// Snooze makes AckNak not count the delivery.
	Snooze bool
	// Reason is any text that says why AckNak or AckTerm was sent, or "".
	Reason string
	// Next says what AckNext leases.
	Next PopOptions
	// Also has the tokens of up to MaxAlso further leases of the queue that AckDone or AckNext
	// acknowledges, all or none. ParseAck does not check the tokens.
	Also []string
}

// ParseAck reads the payload of an acknowledgement. Errors wrap [ErrOptions].
func ParseAck(payload []byte) (a Ack, err error) {
	verb, rest := string(payload), ""
	if end := bytes.IndexFunc(payload, notInVerb); end >= 0 {
		verb, rest = verb[:end], verb[end:]
	}
	more := rest != ""
	rest = strings.TrimSpace(rest)

	switch {
	case verb == "-NAK":
		a.Kind = AckNak
		return a, a.parseNak(rest)
	case verb == "+TERM":
		a.Kind, a.Reason = AckTerm, rest
		return a, nil
	case len(payload) > mostIDs && strings.HasPrefix(verb, "+"):
		return a, fmt.Errorf("%w: %s with %d bytes: want at most %d",
			ErrOptions, quote(verb), len(payload), mostIDs)
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
		return a, fmt.Errorf("%w: %s: want nothing, +ACK, -NAK, +WPI, +NXT or +TERM",
			ErrOptions, quote(string(payload)))
	}

	// The verbs that are left take nothing.
	if more {
		want := "want nothing after " + verb
		if verb == "+ACK" {
			want += `, or a JSON object such as {"also":["token"]}`
		}
		return a, fmt.Errorf("%w: %s: %s", ErrOptions, quote(string(payload)), want)
	}
	return a, nil
}

// notInVerb reports whether a verb ends before c.
func notInVerb(c rune) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !letter && c != '+' && c != '-'
}

// ackObject is what follows +ACK, nextObject +NXT, and nakObject -NAK.
type ackObject struct {
	Also texts `json:"also"`
}

type nextObject struct {
	popMembers
	ackObject
}

type nakObject struct {
	Delay      *time.Duration `json:"delay"`
	RetryDelay *time.Duration `json:"retry_delay"`
	Snooze     bool           `json:"snooze"`
	Reason     string         `json:"reason"`
}

func (o *ackObject) check() error { return o.Also.atMost("also", MaxAlso) }

func (o *nextObject) check() error { return cmp.Or(o.popMembers.check(), o.ackObject.check()) }

// parseNext reads what follows +NXT: nothing, a number, as JetStream has it, or an object.
func (a *Ack) parseNext(text string) (err error) {
	if text == "" {
		return nil
	}

	// Atoi would take long to fail for an object.
	if text[0] != '{' {
		if a.Next.Batch, err = strconv.Atoi(text); err == nil {
			if a.Next.Batch < 1 || a.Next.Batch > MaxPopBatch {
				err = fmt.Errorf("%w: +NXT %s: want 1 to %d items",
					ErrOptions, quote(text), MaxPopBatch)
			}
			return err
		}
	}

	var o nextObject
	err = readObject([]byte(text), &o)
	a.Next, a.Also = o.options(), o.Also
	return err
}

// parseNak reads what follows -NAK: nothing, a duration, or an object. If only a delay is out of
// bounds, or stands beside another, a has all but the retry delay beside the error.
func (a *Ack) parseNak(text string) (err error) {
	switch {
	case text == "":
		return nil
	case text[0] == '{':
		var o nakObject
		if err = strictjson.Unmarshal([]byte(text), &o); err == nil {
			a.Delay, a.HasDelay, a.Snooze = deref(o.Delay), o.Delay != nil, o.Snooze
			a.Reason = strings.TrimSpace(o.Reason)
			retry := deref(o.RetryDelay)
			err = cmp.Or(durationWithin("delay", a.Delay, 0, settings.MaxDelay),
				durationWithin("retry_delay", retry, 0, settings.MaxDelay))
			if err == nil && o.RetryDelay != nil && (a.HasDelay || a.Snooze) {
				err = errors.New("retry_delay with delay or snooze: want only one of them")
			}
			if err == nil {
				a.RetryDelay = retry
			}
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrOptions, err)
		}
		return err
	}

	a.Delay, err = strictjson.ParseDuration(text)
	if a.HasDelay = err == nil; err != nil || a.Delay < 0 || a.Delay > settings.MaxDelay {
		return fmt.Errorf("%w: -NAK %s: want a duration with a unit, such as 30s, from 0s to %v, "+
			"or a JSON object", ErrOptions, quote(text), settings.MaxDelay)
	}
	return nil
}

// Encode returns the payload that [ParseAck] reads. It checks nothing.
func (a Ack) Encode() []byte {
	verb, b := "+ACK", object(nil)
	switch a.Kind {
	case AckNak:
		verb = "-NAK"
		b.put("delay", a.HasDelay || a.Delay != 0, a.Delay)
		b.put("retry_delay", a.RetryDelay != 0, a.RetryDelay)
		b.put("snooze", a.Snooze, true)
		b.put("reason", a.Reason != "", a.Reason)
	case AckTerm:
		return bytes.TrimSuffix([]byte("+TERM "+a.Reason), []byte(" "))
	case AckProgress:
		return []byte("+WPI")
	case AckNext:
		verb, b = "+NXT", a.Next.object()
	}

	// A -NAK is for one lease, and the others that get here may name more.
	b.put("also", len(a.Also) > 0 && a.Kind != AckNak, a.Also)
	if b == nil {
		return []byte(verb)
	}
	return append([]byte(verb+" "), b.end()...)
}
