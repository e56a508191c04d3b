package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// sourcePrefix begins the names of the inputs for the members of a source, which is one setting.
const sourcePrefix = "source."

// sourceRows are the inputs for a source, filled with the one that is set.
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
		row("on_bad", "what is no item", s.OnBad, "dead_letter", "dead_letter", "stop"),
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

// parseField reads what sourceField writes.
func parseField(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}

	kind, name, _ := strings.Cut(text, " ")
	name = strings.TrimSpace(name)
	token, err := strconv.Atoi(name)
	switch {
	case kind == "header" && name != "":
		return map[string]string{"header": name}, nil
	case kind == "token" && err == nil:
		return map[string]int{"token": token}, nil
	}

	return nil, errors.New("want a number, header and its name, or token and its number")
}

// source adds the source that the inputs describe to a change, unless it is the one that is set.
// rows are what is set, of the inputs that were sent. It is one setting, so members that were not
// edited are those that are set.
func (f *form) source(change *subjects.Change, rows []settingRow) {
	member := map[string]string{}
	changed, isSet := false, false
	for _, row := range rows {
		typed := f.Fields[row.Name]
		member[strings.TrimPrefix(row.Name, sourcePrefix)] = typed.Value
		changed = changed || typed.Value != row.Value
		isSet = isSet || typed.Value != ""
	}

	if !changed {
		return
	}

	if !isSet {
		_ = change.Set("source", "") // a reset cannot fail
		return
	}

	source := map[string]any{}
	for name, text := range member {
		switch n, err := strconv.ParseUint(text, 10, 64); {
		case text == "":
		case name == "priority", name == "group":
			if source[name], err = parseField(text); err != nil {
				f.fail(sourcePrefix+name, err)
			}
		case name == "start" && err == nil:
			source[name] = n
		default:
			source[name] = text
		}
	}

	text, _ := json.Marshal(source) // never returns an error
	if err := change.Set("source", string(text)); err != nil && !f.failed() {
		about := "stream"
		for name := range member {
			if strings.Contains(err.Error(), name+": ") {
				about = name
			}
		}
		f.fail(sourcePrefix+about, err)
	}
}
