package settings

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Setting is a row of the table: all that is known of a setting, except what it does. It must not
// be changed.
type Setting struct {
	Name string
	// About says what the setting is, in at most 23 letters, for the help of pq config.
	About string
	// Field returns a pointer to the field. The type of the field, a time.Duration,
	// []time.Duration, int64, string, []string or time.Time, says how the setting is written.
	Field func(*Settings) any
	// Least and Most bound a number, a duration or each one in a list, in nanoseconds, or the year
	// of a time. A duration may always be 0.
	Least, Most int64
	// Length is the most elements of a list.
	Length int
	// Choices are all values of a text, and CheckText checks one, or an element of a list of texts.
	// With neither, the text or the element is the name of a queue.
	Choices   []string
	CheckText func(string) error
	// Object says that the text is the JSON of an object.
	Object bool
	// Off is the value of a duration for which people write 0; 0 if there is none.
	Off time.Duration
	// Default is the value while the setting is not set; nil if there is none.
	Default any
}

// table is in the order in which settings are stored and listed, so new rows come last.
var table = []*Setting{
	{Name: "ack_wait", About: "length of leases", Least: int64(MinLease), Most: int64(MaxLease),
		Default: DefaultLease, Field: func(s *Settings) any { return &s.AckWait }},
	{Name: "backoff", About: "delays after failures", Most: int64(MaxDelay), Length: MaxBackoffs,
		Field: func(s *Settings) any { return &s.Backoff }},
	{Name: "max_deliver", About: "deliveries of an item", Most: MaxMaxDeliver,
		Field: func(s *Settings) any { return &s.MaxDeliver }},
	{Name: "dead_letter", About: "dead-letter queue",
		Field: func(s *Settings) any { return &s.DeadLetter }},
	{Name: "ttl", About: "life of an item", Least: int64(MinTTL), Most: int64(MaxDelay),
		Field: func(s *Settings) any { return &s.TTL }},
	{Name: "pause_until", About: "see pq pause", Least: 1970, Most: 9999,
		Field: func(s *Settings) any { return &s.PauseUntil }},
	{Name: "max_leased", About: "max leases at a time", Most: MaxCount,
		Field: func(s *Settings) any { return &s.MaxLeased }},
	{Name: "max_items", About: "max items in a queue", Most: MaxCount,
		Field: func(s *Settings) any { return &s.MaxItems }},
	{Name: "max_bytes", About: "max bytes of items", Most: MaxTotalBytes,
		Field: func(s *Settings) any { return &s.MaxBytes }},
	{Name: "discard", About: "drop new or old items", Choices: []string{DiscardNew, DiscardOld},
		Default: DiscardNew, Field: func(s *Settings) any { return &s.Discard }},
	{Name: "duplicate_window", About: "how long ids are kept", Default: DefaultDuplicateWindow,
		Least: int64(MinLease), Most: int64(MaxDelay), Off: NoDuplicateWindow,
		Field: func(s *Settings) any { return &s.DuplicateWindow }},
	{Name: "max_leased_per_group", About: "max leases of a group", Most: MaxCount,
		Field: func(s *Settings) any { return &s.MaxLeasedPerGroup }},
	{Name: "rate", About: "deliveries, as 10/1s", CheckText: checkRate,
		Field: func(s *Settings) any { return &s.Rate }},
	{Name: "rate_per_group", About: "deliveries of a group", CheckText: checkRate,
		Field: func(s *Settings) any { return &s.RatePerGroup }},
	{Name: "source", About: "a stream to draw from", CheckText: checkSource, Object: true,
		Field: func(s *Settings) any { return &s.Source }},
	{Name: "paused_groups", About: "groups that are paused", CheckText: CheckGroup,
		Length: MaxPausedGroups, Field: func(s *Settings) any { return &s.PausedGroups }},
	{Name: "keep", About: "life of a finished job", Least: int64(MinKeep), Most: int64(MaxDelay),
		Field: func(s *Settings) any { return &s.Keep }},
	{Name: "keep_items", About: "max finished jobs kept", Most: MaxCount,
		Default: int64(DefaultKeepItems), Field: func(s *Settings) any { return &s.KeepItems }},
	{Name: "next", About: "queues acks may push to", Length: MaxNext,
		Field: func(s *Settings) any { return &s.Next }},
	{Name: "trail", About: "attempts kept of a job", Most: MaxTrail,
		Field: func(s *Settings) any { return &s.Trail }},
}

// All returns the rows of the table, in its order.
func All() iter.Seq[*Setting] { return slices.Values(table) }

// Find returns the row of a name, nil if there is none.
func Find(name string) *Setting {
	for row := range All() {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// IsSet reports whether the setting is set.
func (row *Setting) IsSet(s *Settings) bool {
	field := row.Field(s)
	if at, ok := field.(*time.Time); ok {
		return !at.IsZero()
	}
	value := reflect.ValueOf(field).Elem()
	return !value.IsZero() && !(value.Kind() == reflect.Slice && value.Len() == 0)
}

// Copy copies the setting from one to the other. The copy shares its memory.
func (row *Setting) Copy(to, from *Settings) {
	reflect.ValueOf(row.Field(to)).Elem().Set(reflect.ValueOf(row.Field(from)).Elem())
}

// Check returns an error if the setting is set to a value that it cannot have. It accepts any name
// of a queue.
func (row *Setting) Check(s *Settings) error {
	if !row.IsSet(s) {
		return nil
	}

	switch field := row.Field(s).(type) {
	case *time.Duration:
		if *field != row.Off {
			return row.CheckDuration(*field)
		}
	case *[]time.Duration:
		if len(*field) > row.Length {
			return fmt.Errorf("%d durations: want at most %d", len(*field), row.Length)
		}

		for _, d := range *field {
			if err := CheckBounds(d, 0, time.Duration(row.Most)); err != nil {
				return err
			}
		}
	case *[]string:
		return row.checkTexts(*field)
	case *int64:
		if *field < row.Least || *field > row.Most {
			return fmt.Errorf("%d: want %d to %d", *field, row.Least, row.Most)
		}
	case *string:
		if row.Choices != nil && !slices.Contains(row.Choices, *field) {
			return fmt.Errorf("%+.130q: want %s", *field, row.Choice())
		}

		if row.CheckText != nil {
			return row.CheckText(*field)
		}
	case *time.Time:
		if year := int64(field.UTC().Year()); year < row.Least || year > row.Most {
			return fmt.Errorf("%v: want a year from %d to %d", *field, row.Least, row.Most)
		}
	}

	return nil
}

// CheckDuration returns an error unless the duration is 0 or one that the setting can have.
func (row *Setting) CheckDuration(d time.Duration) error {
	err := CheckBounds(d, time.Duration(row.Least), time.Duration(row.Most))
	if err != nil && row.Default == nil { // nothing is in force without it
		return fmt.Errorf("%w, or 0 for none", err)
	}
	return err
}

// checkTexts is Check for a list of texts.
func (row *Setting) checkTexts(list []string) error {
	if len(list) > row.Length {
		return fmt.Errorf("%d names: want at most %d", len(list), row.Length)
	}

	for i, text := range list {
		if slices.Contains(list[:i], text) {
			return fmt.Errorf("%.130q is there twice", text)
		}
		if row.CheckText != nil {
			if err := row.CheckText(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Choice returns the choices as errors list them.
func (row *Setting) Choice() string { return `"` + strings.Join(row.Choices, `" or "`) + `"` }

// CheckBounds returns an error unless the duration is 0 or between the bounds.
func CheckBounds(d, least, most time.Duration) error {
	if d != 0 && (d < least || d > most) {
		return fmt.Errorf("%s: want %v to %v", strictjson.DurationText(d), least, most)
	}
	return nil
}
