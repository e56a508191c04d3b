package subjects

import (
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

// Settings are the settings of a queue, in replies a JSON object of those that are set:
//
//	{"ack_wait":"1m0s", "backoff":["1s","10s"], "max_deliver":5, "dead_letter":"failed"}
type Settings = settings.Settings

// Change is a change of settings, a JSON object like that of Settings, with null for those that are
// reset. 0 and [] are as null, but as duplicate_window 0 is settings.NoDuplicateWindow.
type Change struct {
	// Settings has those to be set; the others stay.
	Settings Settings
	// Reset has the names of those to be reset to their default, unless they are to be set.
	Reset []string
}

var null = []byte("null")

// ParseChange reads a change of settings. Errors wrap ErrOptions.
func ParseChange(payload []byte) (*Change, error) {
	c := &Change{}
	var members memberList
	for row := range settings.All() {
		members = append(members, member{row.Name, func(v json.RawMessage) error { return c.set(row, v) }})
	}

	if err := members.parse(payload); err != nil {
		return nil, err
	}
	return c, nil
}

// set adds a setting to the change, in place of what the change says about it.
func (c *Change) set(row *settings.Setting, v json.RawMessage) error {
	var s Settings
	if string(v) != string(null) {
		if err := parseSetting(row, &s, v); err != nil {
			return err
		}
	}

	row.Copy(&c.Settings, &s)
	if !row.IsSet(&s) {
		c.Reset = append(c.Reset, row.Name)
	}
	return nil
}

// Encode returns the object that ParseChange reads. It does not check names or bounds.
func (c *Change) Encode() []byte {
	var o object
	for row := range settings.All() {
		if value := valueJSON(row, &c.Settings); value != nil {
			o.add(row.Name, value)
		} else if slices.Contains(c.Reset, row.Name) {
			o.add(row.Name, null)
		}
	}

	for _, name := range c.Reset {
		if settings.Find(name) == nil { // a newer bridge may know it
			quoted := textJSON(name)
			o.add(string(quoted[1:len(quoted)-1]), null)
		}
	}
	return o.end()
}

// Apply makes the change.
func (c *Change) Apply(s *Settings) {
	for row := range settings.All() {
		if row.IsSet(&c.Settings) || slices.Contains(c.Reset, row.Name) {
			row.Copy(s, &c.Settings)
		}
	}
}

// EncodeSettings returns the object that ParseSettings reads. It does not check the bounds.
func EncodeSettings(s *Settings) []byte { return (&Change{Settings: *s}).Encode() }

// ParseSettings reads the settings in a reply. It ignores members that it does not know, so that a
// newer bridge may add some.
func ParseSettings(payload []byte) (*Settings, error) {
	members, err := parseReply[map[string]json.RawMessage](payload)
	if err != nil {
		return nil, err
	}

	s := &Settings{}
	for row := range settings.All() {
		if v, given := members[row.Name]; given {
			if err := parseSetting(row, s, v); err != nil {
				return nil, fmt.Errorf("reply %s: %s: %w", shown(payload), row.Name, err)
			}
		}
	}
	return s, nil
}

// parseSetting sets a setting to a JSON value that is not null.
func parseSetting(row *settings.Setting, s *Settings, v json.RawMessage) (err error) {
	switch field := row.Field(s).(type) {
	case *time.Duration:
		*field, err = parseDuration(v, time.Duration(row.Least), time.Duration(row.Most))
		if err == nil && *field == 0 {
			*field = row.Off
		}
	case *[]time.Duration:
		*field, err = parseDurations(v, row)
	case *int64:
		var n int
		n, err = parseCount(v, row.Least, row.Most)
		*field = int64(n)
	case *string:
		*field, err = parseName(v, row)
	case *time.Time:
		*field, err = parseTime(v, row)
	}
	return err
}

// valueJSON returns the value of a setting, nil if it is not set.
func valueJSON(row *settings.Setting, s *Settings) []byte {
	if !row.IsSet(s) {
		return nil
	}

	switch field := row.Field(s).(type) {
	case *time.Duration:
		if *field == row.Off {
			return durationJSON(0)
		}
		return durationJSON(*field)
	case *[]time.Duration:
		return durationsJSON(*field)
	case *time.Time:
		return textJSON(field.UTC().Format(TimeLayout))
	case *int64:
		return strconv.AppendInt(nil, *field, 10)
	default:
		return textJSON(*field.(*string))
	}
}

// parseDurations reads an array of durations.
func parseDurations(v json.RawMessage, row *settings.Setting) ([]time.Duration, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(v, &values); err != nil || len(values) > row.Length {
		return nil, fmt.Errorf("%s: want an array of up to %d durations", shown(v), row.Length)
	}

	list := make([]time.Duration, len(values))
	for i, value := range values {
		d, err := parseDuration(value, time.Duration(row.Least), time.Duration(row.Most))
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		list[i] = d
	}
	return list, nil
}

// parseName reads a choice or the name of a queue.
func parseName(v json.RawMessage, row *settings.Setting) (string, error) {
	name, err := parseText(v)
	if err != nil {
		return "", err
	}

	if row.Choices != nil {
		if !slices.Contains(row.Choices, name) {
			return "", fmt.Errorf("%s: want %s", quote(name), row.Choice())
		}
	} else if problem := tokenProblem(name); problem != "" {
		return "", errors.New(quote(name) + " " + problem)
	}
	return name, nil
}

// parseTime reads a time, and rounds it up to the next microsecond.
func parseTime(v json.RawMessage, row *settings.Setting) (time.Time, error) {
	text, err := parseText(v)
	if err != nil {
		return time.Time{}, err
	}

	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		at = at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
	}
	if year := int64(at.Year()); err != nil || year < row.Least || year > row.Most {
		return time.Time{}, fmt.Errorf("%s: want a time such as \"2030-01-31T12:00:00Z\", with a year from %d to %d",
			quote(text), row.Least, row.Most)
	}
	return at, nil
}

func countJSON(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func durationJSON(d time.Duration) []byte { return strconv.AppendQuote(nil, durationText(d)) }

// durationText is ASCII.
func durationText(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }

func textJSON(text string) []byte {
	b, _ := jsontext.AppendQuote(nil, text) // complains only of invalid UTF-8, which it replaces
	return b
}

func durationsJSON(list []time.Duration) []byte {
	b := []byte{'['}
	for i, d := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, durationJSON(d)...)
	}
	return append(b, ']')
}
