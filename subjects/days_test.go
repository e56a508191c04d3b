package subjects_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
)

// Days are 24 hours each, and nothing but durations has them.
func TestDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"7d":      "168h",
		"1d12h":   "24h12h",
		"1.5d":    "36h",
		"-2d":     "-48h",
		"90s":     "90s",
		"1h30m":   "1h30m",
		"d":       "d",
		"7days":   "7days",
		"id7d":    "id7d",
		"7d,8d":   "7d,8d",
		"":        "",
		"100/1d ": "100/1d ",
	} {
		if got := subjects.Days(text); got != want {
			t.Errorf("%q is %q: want %q", text, got, want)
		}
	}
}
