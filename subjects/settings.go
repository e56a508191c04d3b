package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Change is a change of settings, a JSON object as [EncodeSettings] returns, in which null resets a
// setting. 0 and [] reset it too, except that a duplicate_window of 0 is
// settings.NoDuplicateWindow.
type Change struct {
	// Settings are those to set; the others stay.
	Settings settings.Settings
	// Reset has the names of settings to reset to their defaults. It has no effect on those in
	// Settings.
	Reset []string
	// Groups pauses the groups with the value true and resumes the others; groups that it does not
	// name stay as they are: {"paused_groups":{"acme":true}}. It excludes Settings.PausedGroups.
	Groups map[string]bool
}

// pausedGroups is the setting that a Change can change in part.
const pausedGroups = "paused_groups"

var null = []byte("null")

// ParseChange reads a change of settings. Errors wrap [ErrOptions] and name the setting.
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

	// In the order of the table, so that the first error is always the same one.
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

// set adds a setting to the change, in place of what it said about that setting.
func (c *Change) set(row *settings.Setting, v []byte) error {
	var s settings.Settings
	if row.Name == pausedGroups {
		if c.Groups = nil; v[0] == '{' {
			return c.setGroups(v)
		}
	}
	if !bytes.Equal(v, null) {
		if err := readSetting(row, &s, v); err != nil {
			return err
		}
	}

	// 0 and [] leave the setting unset, which resets it.
	if !row.IsSet(&s) {
		s = settings.Settings{}
		c.Reset = append(c.Reset, row.Name)
	}
	row.Copy(&c.Settings, &s)
	return nil
}

// setGroups reads which groups to pause and to resume.
func (c *Change) setGroups(v []byte) error {
	if err := strictjson.Unmarshal(v, &c.Groups); err != nil {
		return err
	}

	// No more can be paused. Apply, which holds up the queue, takes long for very many.
	if n := len(c.Groups); n > settings.MaxPausedGroups {
		return fmt.Errorf("%d names: want at most %d", n, settings.MaxPausedGroups)
	}

	for _, group := range slices.Sorted(maps.Keys(c.Groups)) {
		if err := settings.CheckGroup(group); err != nil {
			return err
		}
	}
	return nil
}

// readSetting reads the value of a setting, which must not be null.
func readSetting(row *settings.Setting, s *settings.Settings, v []byte) error {
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
			break
		}

		if err := row.CheckDuration(*field); err != nil {
			return err
		}
	case *time.Time: // rounds up, so that a pause does not end early
		*field = field.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
	case *string:
		switch {
		case row.Choices == nil && row.CheckText == nil: // it names a queue
			if problem := tokenProblem(*field); problem != "" {
				return fmt.Errorf("%s %s", quote(*field), problem)
			}
			return nil
		case *field == "" && !row.Object:
			return errEmptyText
		}
	case *[]string:
		for _, name := range *field {
			if problem := tokenProblem(name); problem != "" && row.CheckText == nil {
				return fmt.Errorf("%s %s", quote(name), problem)
			}
		}
	}
	return row.Check(s)
}

var errEmptyText = errors.New(`"": want a string that is not empty, or null to reset it`)

// settingJSON returns the value of a setting that is set.
func settingJSON(row *settings.Setting, s *settings.Settings) []byte {
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

// Encode returns the object that [ParseChange] reads. It checks neither names nor bounds.
func (c *Change) Encode() []byte {
	var o object
	for row := range settings.All() {
		if row.IsSet(&c.Settings) {
			o.add(row.Name, settingJSON(row, &c.Settings))
		} else if slices.Contains(c.Reset, row.Name) {
			o.add(row.Name, null)
		} else if row.Name == pausedGroups && len(c.Groups) > 0 {
			o.add(row.Name, strictjson.Marshal(c.Groups))
		}
	}

	for _, name := range c.Reset {
		if settings.Find(name) == nil { // which a newer bridge may have
			o.add(name, null)
		}
	}
	return o.end()
}

// Apply changes s.
func (c *Change) Apply(s *settings.Settings) {
	for row := range settings.All() {
		if row.IsSet(&c.Settings) || slices.Contains(c.Reset, row.Name) {
			row.Copy(s, &c.Settings)
		}
	}

	for _, group := range slices.Sorted(maps.Keys(c.Groups)) {
		s.PauseGroup(group, c.Groups[group])
	}
}

// EncodeSettings returns the JSON object of the settings that are set, as replies have it. It
// checks nothing:
//
//	{"ack_wait":"1m0s","backoff":["1s","10s"],"max_deliver":5,"dead_letter":"failed"}
func EncodeSettings(s *settings.Settings) []byte { return (&Change{Settings: *s}).Encode() }

// ParseSettings reads the settings in a reply. It ignores unknown members, so that a newer bridge
// may add some.
func ParseSettings(payload []byte) (*settings.Settings, error) {
	members, err := strictjson.Members(payload)
	if err != nil {
		return nil, notReply(payload)
	}

	s := &settings.Settings{}
	for row := range settings.All() {
		if v, given := members[row.Name]; given {
			if err := readSetting(row, s, v); err != nil {
				return nil, fmt.Errorf("reply %s: %s: %w", quote(string(payload)), row.Name, err)
			}
		}
	}
	return s, nil
}

// Set adds a setting to the change as people write it, such as 1m30s for ack_wait and 1s,10s for
// backoff. The value "" resets the setting. Errors wrap [ErrOptions].
func (c *Change) Set(name, value string) error {
	row := settings.Find(name)
	if row == nil {
		return fmt.Errorf("%w: unknown setting %s: want one of %s",
			ErrOptions, quote(name), settingNames())
	}

	if err := c.set(row, valueOf(row, value)); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOptions, name, err)
	}
	return nil
}

// valueOf returns the JSON of a value as people write it.
func valueOf(row *settings.Setting, text string) json.RawMessage {
	if text == "" {
		return null
	}

	switch row.Field(&settings.Settings{}).(type) {
	case *time.Duration:
		text = Days(text)
	case *[]time.Duration, *[]string:
		if strings.ContainsAny(text[:1], "[{") { // as the protocol has it
			return json.RawMessage(text)
		}
		list := strings.Split(text, ",")
		if _, isDurations := row.Field(&settings.Settings{}).(*[]time.Duration); isDurations {
			for i := range list {
				list[i] = Days(list[i])
			}
		}
		return strictjson.Marshal(list)
	case *int64:
		if json.Valid([]byte(text)) && strings.Trim(text, "0123456789.+-") == "" {
			return json.RawMessage(text)
		}
	}
	return strictjson.Marshal(text)
}

// SettingTexts returns the settings that are set as people write them, such as "ack_wait=1m30s".
func SettingTexts(s *settings.Settings) []string {
	var texts []string
	for row := range settings.All() {
		if row.IsSet(s) {
			texts = append(texts, row.Name+"="+textOf(settingJSON(row, s)))
		}
	}
	return texts
}

// textOf returns a JSON value as people write it.
func textOf(value json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &list) == nil &&
		!strings.ContainsAny(strings.Join(list, ""), ",[{"): // in names
		return strings.Join(list, ",")
	default:
		return string(value)
	}
}
