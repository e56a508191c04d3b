package subjects

import (
	"encoding/json"
	"fmt"
	"slices"

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
	var list members
	for row := range settings.All() {
		set := func(v json.RawMessage) error { return c.set(row, v) }
		list = append(list, member{name: row.Name, to: set})
	}

	if err := list.parse(payload); err != nil {
		return nil, err
	}
	return c, nil
}

// set adds a setting to the change, in place of what the change says about it.
func (c *Change) set(row *settings.Setting, v json.RawMessage) error {
	var s Settings
	if string(v) != string(null) {
		if err := memberOf(row, &s).parse(v); err != nil {
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
		if row.IsSet(&c.Settings) {
			o.add(row.Name, memberOf(row, &c.Settings).json())
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
			if err := memberOf(row, s).parse(v); err != nil {
				return nil, fmt.Errorf("reply %s: %s: %w", shown(payload), row.Name, err)
			}
		}
	}
	return s, nil
}

// memberOf returns a setting as a member of an object. Its value is not null.
func memberOf(row *settings.Setting, s *Settings) *member {
	m := &member{name: row.Name, to: row.Field(s), least: row.Least, most: row.Most, length: row.Length, off: row.Off}
	m.check = checkToken // a text is the name of a queue
	if row.CheckText != nil {
		m.check, m.object = row.CheckText, row.Object
	}
	if row.Choices != nil {
		m.check = func(text string) error {
			if !slices.Contains(row.Choices, text) {
				return fmt.Errorf("%s: want %s", quote(text), row.Choice())
			}
			return nil
		}
	}
	return m
}
