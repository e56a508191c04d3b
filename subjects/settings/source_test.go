package settings_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// A source continues if the new setting draws the same messages, and begins again with another
// start. It remembers the consumers it no longer uses.
func TestNextSource(t *testing.T) {
	const (
		at7    = `,"sequence":7,"drawn":5,"dead":2,"lag":0,"consumer":"c"}`
		anew   = `,"sequence":0,"drawn":0,"dead":0,"lag":0`
		former = `,"former":[{"stream":"S","domain":"d","name":"c","sequence":7}]}`
		same   = `,"consumer":"c","former":[{"stream":"S","name":"c","sequence":7}]}`
	)

	for _, c := range []struct{ was, source, want string }{
		{
			`{"source":{"stream":"S"}` + at7, `{"stream":"S","start":"all"}`,
			`{"source":{"stream":"S","start":"all"}` + at7,
		},
		{
			`{"source":{"stream":"S","start":3}` + at7, `{"stream":"S"}`,
			`{"source":{"stream":"S"}` + at7,
		},
		{
			`{"source":{"stream":"S","start":3}` + at7, `{"stream":"S","start":3,"on_bad":"stop"}`,
			`{"source":{"stream":"S","start":3,"on_bad":"stop"}` + at7,
		},
		{
			`{"source":{"stream":"S","start":3}` + at7, `{"stream":"S","start":"all"}`,
			`{"source":{"stream":"S","start":"all"}` + anew + same,
		},
		{
			`{"source":{"stream":"S"}` + at7, `{"stream":"S","filter":"a"}`,
			`{"source":{"stream":"S","filter":"a"}` + anew + same,
		},
		{
			`{"source":{"stream":"S","domain":"d"}` + at7, `{"stream":"S"}`,
			`{"source":{"stream":"S"}` + anew + former,
		},
		{
			`{"source":{"stream":"S","domain":"d"}` + at7, "",
			`{"sequence":0,"drawn":0,"dead":0,"lag":0` + former,
		},
		{
			`{"sequence":0,"drawn":0,"dead":0,"lag":0` + former, `{"stream":"S"}`,
			`{"source":{"stream":"S"}` + anew + former,
		},
		{`{"source":{"stream":"S"}` + anew + `}`, "", ""},
		{"", `{"stream":"S"}`, `{"source":{"stream":"S"}` + anew + `}`},
		{"no JSON", `{"stream":"S"}`, `{"source":{"stream":"S"}` + anew + `}`},
		{
			`{"source":{"stream":"S"},"stopped":"why","waiting":"why"` + anew + `}`,
			`{"stream":"S","on_bad":"stop"}`,
			`{"source":{"stream":"S","on_bad":"stop"}` + anew + `}`,
		},
	} {
		if got := string(settings.NextSource([]byte(c.was), c.source)); got != c.want {
			t.Errorf("%s and %s:\n%s, want\n%s", c.was, c.source, got, c.want)
		}
	}
}

// A source that continues keeps its start.
func TestWithStartOf(t *testing.T) {
	for _, c := range []struct{ source, before, want string }{
		{`{"stream":"S","start":3}`, "", `{"stream":"S","start":3}`},
		{`{"stream":"S","start":3}`, `{"stream":"T"}`, `{"stream":"S","start":3}`},
		{
			`{"stream":"S","start":3}`, `{"stream":"S","start":5,"on_bad":"stop"}`,
			`{"start":5,"stream":"S"}`,
		},
		{`{"stream": "S"}`, `{"stream":"S","start":"new"}`, `{"start":"new","stream":"S"}`},
		{`{"stream":"S","start":3}`, `{"stream":"S"}`, `{"stream":"S"}`},
		{`{"stream": "S"}`, `{"stream":"S"}`, `{"stream": "S"}`},
	} {
		if got := settings.WithStartOf(c.source, c.before); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.source, c.before, got, c.want)
		}
	}
}
