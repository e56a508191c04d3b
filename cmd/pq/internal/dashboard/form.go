package dashboard

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// form is a form as it was filled in, and the answer to it.
type form struct {
	url.Values
	// Errors are the mistakes by the names of inputs, and with "" one that concerns no single
	// input.
	Errors map[string]string
	// Done says that it has worked, such as "pushed FQEU…".
	Done string
}

// text returns what was typed, without blanks around it.
func (f *form) text(name string) string { return strings.TrimSpace(f.Get(name)) }

// fail notes an error beside an input.
func (f *form) fail(name string, err error) {
	if f.Errors == nil {
		f.Errors = map[string]string{}
	}
	f.Errors[name] = err.Error()
}

// about returns the input that an error of a bridge is about, "" for none.
func (f *form) about(err error) string {
	switch {
	case errors.Is(err, client.ErrTooLarge) && f.Has("value"):
		return "value"
	case !errors.Is(err, client.ErrBadRequest):
		return ""
	}

	text := err.Error()
	for name := range f.Values {
		about := cmp.Or(pushHeaders[name], name)
		if strings.Contains(text, about+": ") || strings.Contains(text, "header "+about+" ") {
			return name
		}
	}

	if f.Has("headers") && strings.Contains(text, "header") {
		return "headers"
	}
	return ""
}

// duration returns what was typed, as the wire has it.
func (f *form) duration(name string) string {
	if slices.Contains(typedDurations, name) {
		return subjects.Days(f.text(name))
	}
	return f.text(name)
}

// headers returns the headers of a form, one a line.
func (f *form) headers() map[string][]string {
	isBlank := func(line string) bool { return strings.TrimSpace(line) == "" }
	lines := slices.DeleteFunc(strings.Split(unixLines(f.Get("headers")), "\n"), isBlank)
	headers, err := target.Headers(lines)
	if err != nil {
		f.fail("headers", err)
		return map[string][]string{}
	}
	return headers
}

// unixLines returns a text that was typed with the ends of lines that the rest of the world has.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// pushHeaders are the headers that fields of the form for a push stand for.
var pushHeaders = map[string]string{
	"priority": subjects.HeaderPriority, "delay": subjects.HeaderDelay, "ttl": subjects.HeaderTTL,
	"group": subjects.HeaderGroup, "msg_id": subjects.HeaderMsgID, "unique": subjects.HeaderUnique,
	"keep": subjects.HeaderKeep,
}

// typedDurations are the inputs of all forms, besides the settings, that may have days, which the
// wire has not.
var typedDurations = strings.Fields("delay ttl keep for every jitter")

// beforePrefix begins the names of the hidden inputs that say what each setting was when the form
// was rendered.
const beforePrefix = "before."
