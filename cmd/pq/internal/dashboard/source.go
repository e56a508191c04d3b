package dashboard

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// sourcePrefix begins the names of the inputs for the members of a source, which is one setting.
const sourcePrefix = "source."

// sourceRows are the inputs for a source, filled with the present one.
func sourceRows(text string) []settingRow {
	s, _ := settings.ParseSource(text) // it was checked when it was set; "" is none
	row := func(name, about, value, without string, choices ...string) settingRow {
		setting := &settings.Setting{Name: sourcePrefix + name, About: about, Choices: choices}
		return settingRow{Setting: setting, Value: value, Without: without}
	}

	return []settingRow{
		row("stream", "stream to draw from", s.Stream, ""),
		row("filter", "subjects to draw", s.Filter, "all"),
		row("domain", "its JetStream domain", s.Domain, ""),
		row("priority", "5, header X or token 3", sourceField(s.Priority), "0"),
		row("group", "header X or token 3", sourceField(s.Group), ""),
		row("start", "all, new or a sequence", string(s.Start), "all"),
		row("on_bad", "messages that cannot be items", s.OnBad,
			"dead_letter", "dead_letter", "stop"),
		row("when_full", "while the queue is full", s.WhenFull, "", "wait"),
	}
}

// sourceField is where an item has its priority or group from, as it is typed.
func sourceField(f *settings.SourceField) string {
	switch {
	case f == nil:
		return ""
	case f.Value != nil:
		return strconv.FormatInt(*f.Value, 10)
	case f.Header != "":
		return "header " + f.Header
	}
	return fmt.Sprintf("token %d", f.Token)
}

// sourceMember reads what sourceField writes, and texts. What it should be, the setting checks.
func sourceMember(text string) any {
	kind, name, isField := strings.Cut(text, " ")
	switch {
	case json.Valid([]byte(text)): // a number
		return json.RawMessage(text)
	case isField:
		return map[string]any{kind: sourceMember(strings.TrimSpace(name))}
	}
	return text
}

// source adds the source that the inputs describe to a change. A source is one setting, so members
// that were not edited are set again.
func (f *form) source(change *subjects.Change) {
	source := map[string]any{}
	for name := range f.Values {
		member, isMember := strings.CutPrefix(name, sourcePrefix)
		switch text := f.text(name); {
		case !isMember || text == "":
		case member == "priority", member == "group", member == "start":
			source[member] = sourceMember(text)
		default:
			source[member] = text
		}
	}

	text := "" // resets it
	if len(source) > 0 {
		data, _ := json.Marshal(source) // never returns an error
		text = string(data)
	}

	if err := change.Set("source", text); err != nil {
		about := "stream"
		for member := range source {
			if strings.Contains(err.Error(), member+": ") {
				about = member
			}
		}
		f.fail(sourcePrefix+about, err)
	}
}
