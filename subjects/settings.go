package subjects

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
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
	members, err := strictjson.Members(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if settings.Find(name) == nil {
			return nil, fmt.Errorf("%w: unknown member %s: want a JSON object with members of %s",
				ErrOptions, quote(name), settingNames())
		}
	}

	c := &Change{}
	for row := range settings.All() {
		if v, given := members[row.Name]; given {
			if err := c.set(row, v); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrOptions, row.Name, err)
			}
		}
	}
	return c, nil
}

func settingNames() string {
	var names []string
	for row := range settings.All() {
		names = append(names, row.Name)
	}
	return strings.Join(names, ", ")
}

// set adds a setting to the change, in place of what the change says about it.
func (c *Change) set(row *settings.Setting, v []byte) error {
	var s Settings
	if !bytes.Equal(v, null) {
		if err := readSetting(row, &s, v); err != nil {
			return err
		}
	}

	row.Copy(&c.Settings, &s)
	if !row.IsSet(&s) {
		c.Reset = append(c.Reset, row.Name)
	}
	return nil
}

// readSetting reads the value of a setting, which is not null.
func readSetting(row *settings.Setting, s *Settings, v []byte) error {
	field := row.Field(s)
	if text, ok := field.(*string); ok && row.Object && v[0] != '"' {
		*text = string(v)
	} else if err := strictjson.Unmarshal(v, field); err != nil {
		return err
	}

	switch field := field.(type) {
	case *time.Duration:
		if *field == 0 {
			*field = row.Off
		} else if err := settings.CheckBounds(*field, time.Duration(row.Least), time.Duration(row.Most)); err != nil {
			return err
		}
	case *time.Time:
		*field = field.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
	case *string:
		switch {
		case row.Choices == nil && row.CheckText == nil: // the name of a queue
			return checkToken(*field)
		case *field == "" && !row.Object:
			return errEmptyText
		}
	}
	return row.Check(s)
}

var errEmptyText = errors.New(`"": want a text, or null to reset it`)

// settingJSON returns the value of a setting that is set.
func settingJSON(row *settings.Setting, s *Settings) []byte {
	field := row.Field(s)
	switch field := field.(type) {
	case *string:
		if row.Object {
			return []byte(*field)
		}
	case *time.Duration:
		if *field == row.Off {
			return strictjson.Marshal(time.Duration(0))
		}
	}
	return strictjson.Marshal(field)
}

// Encode returns the object that ParseChange reads. It does not check names or bounds.
func (c *Change) Encode() []byte {
	var o object
	for row := range settings.All() {
		if row.IsSet(&c.Settings) {
			o.add(row.Name, settingJSON(row, &c.Settings))
		} else if slices.Contains(c.Reset, row.Name) {
			o.add(row.Name, null)
		}
	}

	for _, name := range c.Reset {
		if settings.Find(name) == nil { // a newer bridge may know it
			o.add(name, null)
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
	members, err := strictjson.Members(payload)
	if err != nil {
		return nil, notReply(payload)
	}

	s := &Settings{}
	for row := range settings.All() {
		if v, given := members[row.Name]; given {
			if err := readSetting(row, s, v); err != nil {
				return nil, fmt.Errorf("reply %s: %s: %w", quote(string(payload)), row.Name, err)
			}
		}
	}
	return s, nil
}
