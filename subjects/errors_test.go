package subjects_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
)

// In headers the text of an error is ASCII, whatever it repeats; the payload has it as it is.
func TestErrorTextsInHeadersAreASCII(t *testing.T) {
	for text, want := range map[string]string{
		`bad 'name' "a\b"`: `bad 'name' "a\b"`,
		"Müller":           `M\u00fcller`,
		"日本 😀 \x7f":        `\u65e5\u672c \U0001f600 ` + "\x7f",
		"\xff":             `\ufffd`,
		"\u0080\u2028":     `\u0080\u2028`,
	} {
		e := subjects.Error{Code: subjects.CodeBadRequest, Text: text}
		got := subjects.ErrorFromHeaders(e.Headers())
		if got.Text != want || got.Code != e.Code {
			t.Errorf("%q: got %+v, want %q", text, got, want)
		}
	}

	e := subjects.Error{Code: subjects.CodeBadRequest, Text: "Müller"}
	want := `{"error":{"code":400,"description":"Müller"}}`
	if got := string(e.Payload()); got != want {
		t.Errorf("the payload is %s, want %s", got, want)
	}
}
