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

// Setting is all that is known of a setting, besides what it does. It must not be changed.
type Setting struct {
	Name string
	// Field returns a pointer to the field. Its type says how the setting is written: it is a
	// time.Duration, []time.Duration, int64, string or time.Time.
	Field func(*Settings) any
	// Least and Most are the bounds of a number, of a duration or each one in a list, in
	// nanoseconds, or of the year of a time. 0 is within the bounds of a duration, whatever they
	// are.
	Least, Most int64
	// Length is the most elements of a list.
	Length int
	// Choices are all values of a text, and CheckText says what is wrong with one; if there is neither,
	// it is the name of a queue.
	Choices   []string
	CheckText func(string) error
	// Object says that the text is the JSON of an object.
	Object bool
	// Off is the value of a duration for which people write 0; 0 if there is none.
	Off time.Duration
	// Default is in force while it is not set; nil is none.
	Default any
	// About says what it is, in at most 23 letters: see the help of pq config.
	About string
}

// table is in the order in which settings are stored and listed, so new rows come last.
var table = []*Setting{
	{Name: "ack_wait", Field: func(s *Settings) any { return &s.AckWait }, About: "length of leases",
		Least: int64(MinLease), Most: int64(MaxLease), Default: DefaultLease},
	{Name: "backoff", Field: func(s *Settings) any { return &s.Backoff }, About: "delays after failures",
		Most: int64(MaxDelay), Length: MaxBackoffs},
	{Name: "max_deliver", Field: func(s *Settings) any { return &s.MaxDeliver }, About: "deliveries of an item",
		Most: MaxMaxDeliver},
	{Name: "dead_letter", Field: func(s *Settings) any { return &s.DeadLetter }, About: "queue of what failed"},
	{Name: "ttl", Field: func(s *Settings) any { return &s.TTL }, About: "life of an item",
		Least: int64(MinTTL), Most: int64(MaxDelay)},
	{Name: "pause_until", Field: func(s *Settings) any { return &s.PauseUntil }, About: "see pq pause",
		Least: 1970, Most: 9999},
	{Name: "max_leased", Field: func(s *Settings) any { return &s.MaxLeased }, About: "most leases at a time",
		Most: MaxCount},
	{Name: "max_items", Field: func(s *Settings) any { return &s.MaxItems }, About: "most items in the queue",
		Most: MaxCount},
	{Name: "max_bytes", Field: func(s *Settings) any { return &s.MaxBytes }, About: "most bytes in the queue",
		Most: MaxTotalBytes},
	{Name: "discard", Field: func(s *Settings) any { return &s.Discard }, About: "new or old: what goes",
		Choices: []string{DiscardNew, DiscardOld}, Default: DiscardNew},
	{Name: "duplicate_window", Field: func(s *Settings) any { return &s.DuplicateWindow }, About: "how long ids are kept",
		Least: int64(MinLease), Most: int64(MaxDelay), Off: NoDuplicateWindow, Default: DefaultDuplicateWindow},
	{Name: "max_leased_per_group", Field: func(s *Settings) any { return &s.MaxLeasedPerGroup }, About: "most leases of a group",
		Most: MaxCount},
	{Name: "rate", Field: func(s *Settings) any { return &s.Rate }, About: "deliveries, as 10/1s",
		CheckText: checkRate},
	{Name: "rate_per_group", Field: func(s *Settings) any { return &s.RatePerGroup }, About: "deliveries of a group",
		CheckText: checkRate},
	{Name: "source", Field: func(s *Settings) any { return &s.Source }, About: "a stream to draw from",
		CheckText: checkSource, Object: true},
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
	switch field := row.Field(s).(type) {
	case *[]time.Duration:
		return len(*field) > 0
	case *time.Time:
		return !field.IsZero()
	default:
		return !reflect.ValueOf(field).Elem().IsZero()
	}
}

// Copy copies the setting. Both share its memory then.
func (row *Setting) Copy(to, from *Settings) {
	reflect.ValueOf(row.Field(to)).Elem().Set(reflect.ValueOf(row.Field(from)).Elem())
}

// Check returns what is wrong with the value, if it is set. It accepts any name of a queue.
func (row *Setting) Check(s *Settings) error {
	if !row.IsSet(s) {
		return nil
	}

	least, most := time.Duration(row.Least), time.Duration(row.Most)
	switch field := row.Field(s).(type) {
	case *time.Duration:
		if *field != row.Off {
			return CheckBounds(*field, least, most)
		}
	case *[]time.Duration:
		if len(*field) > row.Length {
			return fmt.Errorf("%d durations: want at most %d", len(*field), row.Length)
		}
		for _, d := range *field {
			if err := CheckBounds(d, least, most); err != nil {
				return err
			}
		}
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

// Choice returns the choices, as an error says what it wants.
func (row *Setting) Choice() string { return `"` + strings.Join(row.Choices, `" or "`) + `"` }

// CheckBounds returns an error unless the duration is 0 or between the bounds.
func CheckBounds(d, least, most time.Duration) error {
	if d != 0 && (d < least || d > most) {
		return fmt.Errorf("%s: want %v to %v", strictjson.DurationText(d), least, most)
	}
	return nil
}
