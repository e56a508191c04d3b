package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// marked writes runs as text, with [] around escapes.
func marked(list []run) string {
	var b strings.Builder
	for _, r := range list {
		if strings.HasSuffix(r.Sort, "esc") {
			fmt.Fprintf(&b, "[%s]", r.Text)
		} else {
			b.WriteString(r.Text)
		}
	}

	return b.String()
}

// What could not be seen, or would change how its surroundings look, is shown as an escape.
func TestRuns(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain <b>&amp; Grüße 中文 🙂": "plain <b>&amp; Grüße 中文 🙂",
		"two\nlines\tand a tab":     "two\nlines\tand a tab",
		"a\x00b\x1b[31m\r\x7f":      `a[\x00]b[\x1b][31m[\r\x7f]`,
		"a\u202eb\u2066c\u200f":     `a[\u202e]b[\u2066]c[\u200f]`,
		"a\u200b\u200d\ufeff\u00a0": `a[\u200b\u200d\ufeff\u00a0]`,
		"a\u3164\u115f\u034f\ufe0f": `a[\u3164\u115f\u034f\ufe0f]`,
		"a\u2028b\U000e0041\ue000":  `a[\u2028]b[\U000e0041\ue000]`,
		"a\xff\xc3(":                `a[\xff\xc3](`,
		"\ufffd":                    "\ufffd",
	} {
		if got := marked(runs(text, len(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := marked(runs("äöü\u202eß", 3)); got != "äöü…" {
		t.Errorf("cut: %q", got)
	}
}

// A value is shown as is best, or as asked for if that is possible.
func TestShowValue(t *testing.T) {
	for _, c := range []struct {
		value, as string
		cut       bool
		want      string
	}{
		{"hello", "", false, "text: hello"},
		{
			`{"a":[1,{"b":"\u003c"}]}`, "", false,
			"json: {\n  \"a\": [\n    1,\n    {\n      \"b\": \"\\u003c\"\n    }\n  ]\n}",
		},
		{`{"a":1}`, "text", false, `text: {"a":1}`},
		{
			`{"a":1}`, "hex", false,
			"hex: 00000000  7b 22 61 22 3a 31 7d                              |{\"a\":1}|\n",
		},
		{`{"a":1`, "json", true, `text: {"a":1`},
		{`12`, "", false, "text: 12"},
		{`12`, "json", false, "json: 12"},
		{`{"a` + "\u202e" + `":"` + "\u200b" + `"}`, "", false, "json: {\n  \"a[\\u202e]\": " +
			"\"[\\u200b]\"\n}"},
		{
			"\xff\x00", "", false,
			"hex: 00000000  ff 00                                             |..|\n",
		},
		{"a\xff", "text", false, `text: a[\xff]`},
		{"gr\xc3", "", true, "text: gr"},
		{"gr\xc3", "", false, "hex: 00000000  67 72 c3                                          " +
			"|gr.|\n"},
		{"nul\x00", "", false, "hex: 00000000  6e 75 6c 00                                       " +
			"|nul.|\n"},
	} {
		v := showValue([]byte(c.value), c.cut, c.as)
		got := v.As + ": " + marked(v.Runs)
		if got != c.want {
			t.Errorf("%q as %q: %q, want %q", c.value, c.as, got, c.want)
		}
	}
}

// However a value is made, its page is not much larger.
func TestShowValueBounds(t *testing.T) {
	const size = 16 << 10
	for name, value := range map[string]string{
		"deep":    strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
		"quoted":  `["` + strings.Repeat(`[\"`, size/3) + `"]`,
		"wide":    "[" + strings.Repeat("1,", size/2-2) + "1]",
		"escapes": strings.Repeat("a\u200b", size/4),
		"members": "{" + strings.Repeat("\"\u200b\":1,", size/8) + `"":1}`,
		"bytes":   strings.Repeat("\xff", size),
		"newline": strings.Repeat("\n", size),
	} {
		for _, as := range []string{"", "text", "json", "hex"} {
			v := showValue([]byte(value), false, as)
			total := 0

			for _, r := range v.Runs {
				total += len(r.Text) + 40
			}
			if total > 48*size {
				t.Errorf("%s as %q: %d bytes", name, as, total)
			}
		}
		if n := len(marked(preview([]byte(value), false))); n > 3*maxPeek*utf8.UTFMax {
			t.Errorf("%s: a preview of %d bytes", name, n)
		}
	}
	if showValue([]byte(strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth)), false,
		"json").As != "json" {
		t.Errorf("JSON of depth %d is not laid out", maxDepth)
	}
}

// Pages show numbers, times and ids in a few characters.
func TestFormats(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range [][2]string{
		{rate(0), "0"}, {rate(0.0001), "0.01"}, {rate(0.994), "0.99"}, {rate(0.996), "1.0"},
		{rate(9.96), "10"}, {rate(1234.6), "1,235"},
		{soon("in ", "")(noon, noon.Add(time.Hour)), "in 60m"},
		{soon("in ", "")(noon, noon), "due"},
		{soon("", " left")(noon, noon.Add(time.Second)), "1s left"},
		{size(0), "0 B"}, {size(999), "999 B"}, {size(1000), "1.0 kB"}, {size(64 << 10), "66 kB"},
		{size(1 << 20), "1.0 MB"}, {size(1 << 62), "4611686 TB"},
		{short("FQEU"), "FQEU"}, {short("FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"), "FQEU…VNcIYVo"},
		{spark(nil, 96, 16), ""}, {spark([]float64{0}, 96, 16), "0.0,16.0"},
		{spark([]float64{0, 4, 2}, 96, 16), "0.0,16.0 48.0,0.0 96.0,8.0"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}
