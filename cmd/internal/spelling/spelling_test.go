package spelling_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/cmd/internal/spelling"
)

func TestDistance(t *testing.T) {
	for _, d := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"jobs", "jobs", 0}, {"jobs", "job", 1}, {"jobs", "jbos", 2}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		if got, back := spelling.Distance(d.a, d.b), spelling.Distance(d.b, d.a); got != d.want || back != d.want {
			t.Errorf("from %q to %q: %d and %d, want %d", d.a, d.b, got, back, d.want)
		}
	}
}
