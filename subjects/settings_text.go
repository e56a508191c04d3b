package subjects

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Set adds a setting to the change, as people write it: ack_wait is 1m30s, backoff 1s,10s. ""
// resets it. Errors wrap ErrOptions.
func (c *Change) Set(name, value string) error {
	row := settings.Find(name)
	if row == nil {
		return fmt.Errorf("%w: there is no setting %s: want one of %s", ErrOptions, quote(name), settingNames())
	}

	if err := c.set(row, valueOf(row, value)); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOptions, name, err)
	}
	return nil
}

// valueOf returns the JSON value of a text.
func valueOf(row *settings.Setting, text string) json.RawMessage {
	if text == "" {
		return null
	}

	switch row.Field(&Settings{}).(type) {
	case *[]time.Duration:
		return strictjson.Marshal(strings.Split(text, ","))
	case *int64:
		if json.Valid([]byte(text)) && strings.Trim(text, "0123456789.+-") == "" {
			return json.RawMessage(text)
		}
	}
	return strictjson.Marshal(text)
}

// SettingTexts returns the settings that are set as people write them, such as "ack_wait=1m30s".
func SettingTexts(s *Settings) []string {
	var texts []string
	for row := range settings.All() {
		if row.IsSet(s) {
			texts = append(texts, row.Name+"="+textOf(settingJSON(row, s)))
		}
	}
	return texts
}

// textOf returns the text of a JSON value.
func textOf(value json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &list) == nil:
		return strings.Join(list, ",")
	default:
		return string(value)
	}
}
