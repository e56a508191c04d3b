package subjects

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Setting is one of the Settings as people write it: ack_wait is 1m30s, backoff 1s,10s.
type Setting struct{ Name, Value string }

// SettingNames returns the names of all settings.
func SettingNames() []string {
	names := make([]string, len(settingRows))
	for i := range settingRows {
		names[i] = settingRows[i].name
	}
	return names
}

// Set sets a setting to a value as List returns it. "" resets it. Errors wrap ErrOptions.
func (s *Settings) Set(name, value string) error {
	for i := range settingRows {
		row := &settingRows[i]
		switch {
		case row.name != name:
			continue
		case value == "":
			row.reset(s)
			return nil
		}
		text := json.RawMessage(textJSON(value))
		if row.fromText != nil {
			text = row.fromText(value)
		}
		if err := row.parse(s, text); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrOptions, name, err)
		}
		return nil
	}
	return fmt.Errorf("%w: there is no setting %s: want one of %s", ErrOptions, quote(name), strings.Join(SettingNames(), ", "))
}

// List returns the settings that are there. Those with a zero value, which resets them, have "".
func (s *Settings) List() []Setting {
	var list []Setting
	for i := range settingRows {
		if value := settingRows[i].json(s); value != nil {
			list = append(list, Setting{settingRows[i].name, textOf(value)})
		}
	}
	return list
}

// textOf returns the text of a JSON value.
func textOf(value json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(value, &text) == nil: // "" for null
		return text
	case json.Unmarshal(value, &list) == nil:
		return strings.Join(list, ",")
	default:
		return string(value)
	}
}

func countFromText(text string) json.RawMessage {
	if isNumber(text) && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return textJSON(text)
}

func listFromText(text string) json.RawMessage {
	list, _ := json.Marshal(strings.Split(text, ",")) // texts always marshal
	return list
}
