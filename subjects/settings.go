package subjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of settings, besides those of options.
const (
	// MaxBackoffs is the most durations in a backoff.
	MaxBackoffs = 100
	// MaxMaxDeliver is the most deliveries of an item that max_deliver can allow.
	MaxMaxDeliver = 1_000_000
	// MaxCount is the most items that max_leased and max_items can allow.
	MaxCount = 1_000_000_000
	// MaxTotalBytes is the most bytes that max_bytes can allow.
	MaxTotalBytes = 1 << 50
)

// Settings are settings of a queue, a JSON object:
//
//	{"ack_wait":"1m0s", "backoff":["1s","10s"], "max_deliver":5, "dead_letter":"failed"}
//
// A reply has the members that are set. A change has those to be changed, with null, 0, [] or,
// here, a zero value for those to be reset. A field that is nil is not there.
type Settings struct {
	// AckWait is the length of leases whose length nothing else says, MinAckWait to MaxAckWait.
	AckWait *time.Duration
	// Backoff is how long an item stays back after its first delivery, its second, and so on,
	// 0 to MaxDelay each; the last counts for all later deliveries.
	Backoff []time.Duration
	// MaxDeliver is how many deliveries an item may have, up to MaxMaxDeliver.
	MaxDeliver *int
	// DeadLetter is the name of the queue to which items go that are given up.
	DeadLetter *string
	// TTL is after how long items expire that are pushed without HeaderTTL, MinTTL to MaxDelay.
	TTL *time.Duration
	// PauseUntil is when pops go on, to the microsecond, in a year from 1970 to 9999; until then they find
	// nothing.
	PauseUntil *time.Time
	// MaxLeased is how many items may be leased at a time, up to MaxCount.
	MaxLeased *int
	// MaxItems is how many items pushes may leave in the queue, up to MaxCount: ready, leased and delayed.
	MaxItems *int
	// MaxBytes is how many bytes these may have, values and headers, up to MaxTotalBytes.
	MaxBytes *int
	// Discard says what becomes of pushes beyond MaxItems and MaxBytes: DiscardNew or DiscardOld.
	Discard *string
	// DuplicateWindow is how long the message id of a push is remembered, MinAckWait to MaxDelay, or
	// NoDuplicateWindow, which is written as "0s".
	DuplicateWindow *time.Duration
}

// NoDuplicateWindow is the duplicate window of a queue that remembers no message ids.
const NoDuplicateWindow time.Duration = -1

// Values of Settings.Discard.
const (
	// DiscardNew refuses pushes that exceed a limit.
	DiscardNew = "new"
	// DiscardOld makes room for them: the items with the largest priorities go, of a FIFO queue the oldest.
	DiscardOld = "old"
)

// settingRow is a member of Settings.
type settingRow struct {
	name string
	// parse sets the field from a value that is not null.
	parse func(*Settings, json.RawMessage) error
	// reset sets the field to its zero value.
	reset func(*Settings)
	// json returns the value of the field: nil if it is not there, and null if it is zero.
	json func(*Settings) []byte
	// fromText returns the JSON of a value that somebody has typed; nil means a JSON text.
	fromText func(string) json.RawMessage
}

var null = []byte("null")

// settingRows has a row for each setting.
var settingRows = []settingRow{
	{
		name: "ack_wait",
		parse: func(s *Settings, v json.RawMessage) (err error) {
			return set(&s.AckWait)(parseDuration(v, MinAckWait, MaxAckWait))
		},
		reset: func(s *Settings) { s.AckWait = new(time.Duration) },
		json:  func(s *Settings) []byte { return valueJSON(s.AckWait, durationJSON) },
	},
	{
		name: "backoff",
		parse: func(s *Settings, v json.RawMessage) (err error) {
			s.Backoff, err = parseDurations(v, MaxBackoffs, MaxDelay)
			return err
		},
		reset:    func(s *Settings) { s.Backoff = []time.Duration{} },
		json:     func(s *Settings) []byte { return durationsJSON(s.Backoff) },
		fromText: listFromText,
	},
	{
		name: "max_deliver",
		parse: func(s *Settings, v json.RawMessage) error {
			return set(&s.MaxDeliver)(parseCount(v, 0, MaxMaxDeliver))
		},
		reset:    func(s *Settings) { s.MaxDeliver = new(int) },
		json:     func(s *Settings) []byte { return valueJSON(s.MaxDeliver, countJSON) },
		fromText: countFromText,
	},
	{
		name:  "dead_letter",
		parse: func(s *Settings, v json.RawMessage) error { return set(&s.DeadLetter)(parseQueueName(v)) },
		reset: func(s *Settings) { s.DeadLetter = new(string) },
		json:  func(s *Settings) []byte { return valueJSON(s.DeadLetter, textJSON) },
	},
	{
		name:  "ttl",
		parse: func(s *Settings, v json.RawMessage) error { return set(&s.TTL)(parseDuration(v, MinTTL, MaxDelay)) },
		reset: func(s *Settings) { s.TTL = new(time.Duration) },
		json:  func(s *Settings) []byte { return valueJSON(s.TTL, durationJSON) },
	},
	{
		name:  "pause_until",
		parse: func(s *Settings, v json.RawMessage) error { return set(&s.PauseUntil)(parseTime(v)) },
		reset: func(s *Settings) { s.PauseUntil = new(time.Time) },
		json:  func(s *Settings) []byte { return valueJSON(s.PauseUntil, timeJSON) },
	},
	countRow("max_leased", MaxCount, func(s *Settings) **int { return &s.MaxLeased }),
	countRow("max_items", MaxCount, func(s *Settings) **int { return &s.MaxItems }),
	countRow("max_bytes", MaxTotalBytes, func(s *Settings) **int { return &s.MaxBytes }),
	{
		name:  "discard",
		parse: func(s *Settings, v json.RawMessage) error { return set(&s.Discard)(parseDiscard(v)) },
		reset: func(s *Settings) { s.Discard = new(string) },
		json:  func(s *Settings) []byte { return valueJSON(s.Discard, textJSON) },
	},
	{
		name: "duplicate_window",
		parse: func(s *Settings, v json.RawMessage) error {
			d, err := parseDuration(v, MinAckWait, MaxDelay)
			if err == nil && d == 0 {
				d = NoDuplicateWindow
			}
			return set(&s.DuplicateWindow)(d, err)
		},
		reset: func(s *Settings) { s.DuplicateWindow = new(time.Duration) },
		json: func(s *Settings) []byte {
			return valueJSON(s.DuplicateWindow, func(d time.Duration) []byte {
				if d == NoDuplicateWindow {
					d = 0
				}
				return durationJSON(d)
			})
		},
	},
}

// countRow is a member that is a number of items or bytes.
func countRow(name string, most int64, field func(*Settings) **int) settingRow {
	return settingRow{
		name:     name,
		parse:    func(s *Settings, v json.RawMessage) error { return set(field(s))(parseCount(v, 0, most)) },
		reset:    func(s *Settings) { *field(s) = new(int) },
		json:     func(s *Settings) []byte { return valueJSON(*field(s), countJSON) },
		fromText: countFromText,
	}
}

// ParseSettings reads a change of settings. Errors wrap ErrOptions.
func ParseSettings(payload []byte) (*Settings, error) {
	s := &Settings{}
	var members memberList
	for i := range settingRows {
		row := &settingRows[i]
		members = append(members, member{row.name, func(v json.RawMessage) error {
			if string(v) == string(null) {
				row.reset(s)
				return nil
			}
			return row.parse(s, v)
		}})
	}
	if err := members.parse(payload); err != nil {
		return nil, err
	}
	return s, nil
}

// Encode returns the object that ParseSettings and ParseSettingsReply read. It does not check the
// bounds.
func (s *Settings) Encode() []byte {
	var o object
	for i := range settingRows {
		if value := settingRows[i].json(s); value != nil {
			o.add(settingRows[i].name, value)
		}
	}
	return o.end()
}

// ParseSettingsReply reads the settings in a reply. It ignores members that it does not know, so
// that a newer bridge may add some.
func ParseSettingsReply(payload []byte) (*Settings, error) {
	members, err := parseReply[map[string]json.RawMessage](payload)
	if err != nil {
		return nil, err
	}
	s := &Settings{}
	for i := range settingRows {
		if v, given := members[settingRows[i].name]; given {
			if err := settingRows[i].parse(s, v); err != nil {
				return nil, fmt.Errorf("reply %s: %s: %w", shown(payload), settingRows[i].name, err)
			}
		}
	}
	return s, nil
}

// set returns a function that makes *field point to a value, unless there is an error.
func set[T any](field **T) func(T, error) error {
	return func(value T, err error) error {
		if err == nil {
			*field = &value
		}
		return err
	}
}

// parseDurations reads an array of up to n durations of up to most.
func parseDurations(v json.RawMessage, n int, most time.Duration) ([]time.Duration, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(v, &values); err != nil || len(values) > n {
		return nil, fmt.Errorf("%s: want an array of up to %d durations", shown(v), n)
	}
	list := make([]time.Duration, len(values))
	for i, value := range values {
		d, err := parseDuration(value, 0, most)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		list[i] = d
	}
	return list, nil
}

func parseQueueName(v json.RawMessage) (string, error) {
	name, err := parseText(v)
	if err == nil {
		if problem := tokenProblem(name); problem != "" {
			err = errors.New(quote(name) + " " + problem)
		}
	}
	return name, err
}

func parseDiscard(v json.RawMessage) (string, error) {
	what, err := parseText(v)
	if err == nil && what != DiscardNew && what != DiscardOld {
		err = fmt.Errorf("%s: want %q or %q", quote(what), DiscardNew, DiscardOld)
	}
	return what, err
}

// parseTime reads a time, and rounds it up to the next microsecond.
func parseTime(v json.RawMessage) (time.Time, error) {
	text, err := parseText(v)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		at = at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
	}
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%s: want a time such as \"2030-01-31T12:00:00Z\", with a year from 1970 to 9999", quote(text))
	}
	return at, nil
}

func valueJSON[T comparable](p *T, encode func(T) []byte) []byte {
	var zero T
	switch {
	case p == nil:
		return nil
	case *p == zero:
		return null
	}
	return encode(*p)
}

func countJSON(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func durationJSON(d time.Duration) []byte { return strconv.AppendQuote(nil, durationText(d)) }

// durationText is ASCII.
func durationText(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }

func timeJSON(t time.Time) []byte { return textJSON(t.UTC().Format(TimeLayout)) }

func textJSON(text string) []byte {
	b, _ := jsontext.AppendQuote(nil, text) // complains only of invalid UTF-8, which it replaces
	return b
}

func durationsJSON(list []time.Duration) []byte {
	switch {
	case list == nil:
		return nil
	case len(list) == 0:
		return null
	}
	b := []byte{'['}
	for i, d := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, durationJSON(d)...)
	}
	return append(b, ']')
}
