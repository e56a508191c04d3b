package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
//	{"batch": 10, "expires": "30s", "ack_wait": "30s", "max_bytes": 1048576, "idle_heartbeat": "5s", "no_wait": true, "frames": true, "id": "Q7..."}
//	{"cancel": "Q7..."}
//
// The names are those of JetStream's pull requests, and ack_wait, frames, id and cancel. Durations are integers in
// nanoseconds, as there, or texts such as "30s".
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
	// Expires is how long the pop waits for items, MinExpires to MaxExpires; 0 means not at
	// all.
	Expires time.Duration
	// IdleHeartbeat is the time between the heartbeats of a pop that waits, MinIdleHeartbeat to
	// MaxExpires; 0 means none.
	IdleHeartbeat time.Duration
	// NoWait makes a pop with Expires wait only if there is nothing at first. It changes
	// nothing for other pops.
	NoWait bool
	// Frames allows several items in one message, if Batch is more than 1: see HeaderFrames.
	Frames bool
	// ID names a pop with Expires, so that Cancel can end it: a text that nobody else can guess, as CheckRequestID wants it.
	ID string
	// Cancel is the ID of the pop that is to wait no longer. Nothing else goes with it.
	Cancel string
}

// maxRequestID is the most bytes of the id of a request.
const maxRequestID = 64

// CheckRequestID returns an error unless id has 1 to 64 letters, digits, '-' and '_'.
func CheckRequestID(id string) error {
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, bad) {
		return fmt.Errorf("%w: %s: want 1 to %d letters, digits, '-' and '_'", ErrOptions, quote(id), maxRequestID)
	}
	return nil
}

// ParsePopOptions reads the payload of a pop; an empty one asks for nothing. Errors wrap
// ErrOptions.
func ParsePopOptions(payload []byte) (o PopOptions, err error) {
	if len(payload) == 0 {
		return o, nil
	}
	err = o.parse(payload)
	return o, err
}

// parse reads the object of a pop, which may have more members than those of o.
func (o *PopOptions) parse(payload []byte, more ...member) (err error) {
	members := memberList{
		{"batch", func(v json.RawMessage) (err error) { o.Batch, err = parseCount(v, 1, MaxPopBatch); return err }},
		{"ack_wait", func(v json.RawMessage) (err error) {
			o.Lease = true
			o.AckWait, err = parseDuration(v, MinAckWait, MaxAckWait)
			return err
		}},
		{"max_bytes", func(v json.RawMessage) (err error) { o.MaxBytes, err = parseCount(v, 0, 1<<40); return err }},
		{"expires", func(v json.RawMessage) (err error) {
			o.Expires, err = parseDuration(v, MinExpires, MaxExpires)
			return err
		}},
		{"idle_heartbeat", func(v json.RawMessage) (err error) {
			o.IdleHeartbeat, err = parseDuration(v, MinIdleHeartbeat, MaxExpires)
			return err
		}},
		{"no_wait", func(v json.RawMessage) (err error) { o.NoWait, err = parseBool(v); return err }},
		{"frames", func(v json.RawMessage) (err error) { o.Frames, err = parseBool(v); return err }},
		{"id", func(v json.RawMessage) (err error) { o.ID, err = parseRequestID(v); return err }},
		{"cancel", func(v json.RawMessage) (err error) { o.Cancel, err = parseRequestID(v); return err }},
	}
	if err = append(members, more...).parse(payload); err == nil {
		err = o.check()
	}
	if err != nil {
		*o = PopOptions{}
	}
	return err
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
	// Also is the tokens of further leases of the queue that AckDone or AckNext acknowledges, up to MaxAlso
	// texts of any form.
	Also []string
}

// ParseAck reads the payload of an acknowledgement. Errors wrap ErrOptions.
func ParseAck(payload []byte) (a Ack, err error) {
	verb, rest, _ := strings.Cut(string(payload), " ")
	if verb == "" {
		verb, rest = string(payload), "" // a blank is not nothing
	}
	rest = strings.TrimSpace(rest)
	switch verb {
	case "", "+ACK":
		a.Kind = AckDone
		if strings.HasPrefix(rest, "{") {
			return a, memberList{a.also()}.parse([]byte(rest))
		}
	case "-NAK":
		a.Kind = AckNak
		return a, a.parseNak(rest)
	case "+TERM":
		a.Kind, a.Reason = AckTerm, rest
		return a, nil
	case "+WPI":
		a.Kind = AckProgress
	case "+NXT":
		a.Kind = AckNext
		if rest == "" {
			return a, nil
		}
		if a.Next.Batch, err = strconv.Atoi(rest); err == nil { // as JetStream has it
			if a.Next.Batch < 1 || a.Next.Batch > MaxPopBatch {
				err = fmt.Errorf("%w: +NXT %s: want 1 to %d items", ErrOptions, quote(rest), MaxPopBatch)
			}
			return a, err
		}
		if err = a.Next.parse([]byte(rest), a.also()); err == nil && a.Next.Cancel != "" {
			err = fmt.Errorf("%w: +NXT with cancel, which the subject of a pop takes: want something else", ErrOptions)
		}
		return a, err
	default:
		return a, fmt.Errorf("%w: %s: want nothing, +ACK, -NAK, +WPI, +NXT or +TERM", ErrOptions, quote(string(payload)))
	}
	if rest != "" || strings.HasSuffix(string(payload), " ") {
		want := "want nothing after " + verb
		if verb == "+ACK" {
			want += `, or a JSON object such as {"also":["token"]}`
		}
		return a, fmt.Errorf("%w: %s: %s", ErrOptions, quote(string(payload)), want)
	}
	return a, nil
}

// also is the member that names further leases.
func (a *Ack) also() member {
	return member{"also", func(v json.RawMessage) (err error) { a.Also, err = parseTexts(v, MaxAlso); return err }}
}

// parseNak reads what follows -NAK: nothing, a duration, or an object.
func (a *Ack) parseNak(text string) (err error) {
	switch {
	case text == "":
		return nil
	case text[0] != '{':
		a.HasDelay = true
		if a.Delay, err = parseDurationText(text); err != nil || a.Delay < 0 || a.Delay > MaxDelay {
			return fmt.Errorf("%w: -NAK %s: want a duration with a unit, such as 30s, from 0s to %v, or a JSON object",
				ErrOptions, quote(text), MaxDelay)
		}
		return nil
	}
	members := memberList{
		{"delay", func(v json.RawMessage) (err error) {
			a.HasDelay = true
			a.Delay, err = parseDuration(v, 0, MaxDelay)
			return err
		}},
		{"snooze", func(v json.RawMessage) (err error) { a.Snooze, err = parseBool(v); return err }},
		{"reason", func(v json.RawMessage) (err error) {
			a.Reason, err = parseText(v)
			a.Reason = strings.TrimSpace(a.Reason)
			return err
		}},
	}
	return members.parse([]byte(text))
}

// member is a member that an object may have.
type member struct {
	name string
	set  func(json.RawMessage) error
}

type memberList []member

// parse reads an object strictly: names as they are spelled here, each at most once, and
// nothing after the object.
func (list memberList) parse(payload []byte) error {
	var wrong error // in the value of a member
	err := eachMember(payload, func(name string, value json.RawMessage) error {
		i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("unknown member %s", quote(name))
		}
		wrong = list[i].set(value)
		if wrong != nil {
			wrong = fmt.Errorf("%w: %s: %w", ErrOptions, name, wrong)
		}
		return wrong
	})
	if err == nil || wrong != nil {
		return wrong
	}

	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return fmt.Errorf("%w: %s: %w: want a JSON object with members of %s",
		ErrOptions, shown(payload), err, strings.Join(names, ", "))
}

// shown returns a JSON value as an error shows it: as it is written, unless that could not be sent in a header.
func shown(v json.RawMessage) string {
	if len(v) == 0 || len(v) > maxQuoted || strings.ContainsFunc(string(v), func(c rune) bool { return c < ' ' || c > '~' }) {
		return quote(string(v))
	}
	return string(v)
}

// parseCount reads an integer between the bounds.
func parseCount(v json.RawMessage, least, most int64) (int, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: want an integer from %d to %d", shown(v), least, most)
	}
	return int(n), nil
}

func parseBool(v json.RawMessage) (bool, error) {
	switch string(v) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%s: want true or false", shown(v))
	}
}

func parseText(v json.RawMessage) (text string, err error) {
	if text, err = unquote(v); err != nil {
		return "", fmt.Errorf("%s: want a text in quotes", shown(v))
	}
	return text, nil
}

func parseRequestID(v json.RawMessage) (id string, err error) {
	if id, err = parseText(v); err == nil {
		err = CheckRequestID(id)
	}
	return id, err
}

// parseTexts reads an array of up to n texts. v is JSON.
func parseTexts(v json.RawMessage, n int) (list []string, err error) {
	if len(v) == 0 || v[0] != '[' {
		return nil, fmt.Errorf("%s: want an array of texts", shown(v))
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsonOptions...)
	_, _ = d.ReadToken() // the bracket

	list = []string{}
	count := 0
	for ; d.PeekKind() != jsontext.KindEndArray; count++ {
		value, bad := d.ReadValue()
		if bad != nil {
			return nil, errNotJSON
		}
		if count >= n || err != nil {
			continue
		}
		text, bad := parseText(json.RawMessage(value))
		if list = append(list, text); bad != nil {
			err = fmt.Errorf("element %d: %w", count, bad)
		}
	}

	if count > n {
		return nil, fmt.Errorf("an array of %d elements: want at most %d", count, n)
	}
	return list, err
}

// parseDuration reads a duration that is 0 or between the bounds: an integer in nanoseconds
// or a text with a unit.
func parseDuration(v json.RawMessage, least, most time.Duration) (d time.Duration, err error) {
	var text string
	var n int64
	if len(v) == 0 || v[0] != '"' {
		n, err = strconv.ParseInt(string(v), 10, 64)
		d = time.Duration(n)
	} else if text, err = unquote(v); err == nil {
		d, err = parseDurationText(text)
	}
	switch {
	case err != nil && text != "":
		return 0, fmt.Errorf("%s: want a duration with a unit, such as 30s or 1h30m", quote(text))
	case err != nil:
		return 0, fmt.Errorf("%s: want nanoseconds, or a text such as \"30s\"", shown(v))
	}
	if d != 0 && (d < least || d > most) {
		given := shown(v)
		if text == "" {
			given = fmt.Sprintf("%s nanoseconds, which are %s", given, durationText(d))
		}
		return 0, fmt.Errorf("%s: want %v to %v", given, least, most)
	}
	return d, nil
}

// parseDurationText reads a duration that has a unit or is 0.
func parseDurationText(text string) (time.Duration, error) {
	if text != "0" && isNumber(text) {
		return 0, errNoUnit
	}
	return time.ParseDuration(text)
}

var errNoUnit = errors.New("no unit")
