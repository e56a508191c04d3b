package requests

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// A time in the same second as the one before reuses its text.
func TestEncoderTime(t *testing.T) {
	var f timeText
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)

	for _, step := range []time.Duration{
		0, time.Microsecond, 999_998 * time.Microsecond, 0, 999, 1, time.Microsecond, time.Second,
		-time.Second, 100 * 365 * 24 * time.Hour,
	} {
		at = at.Add(step)
		if got, want := string(f.appendTo(nil, at)), at.Format(subjects.TimeLayout); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const began = "1970-01-01T00:00:00.000000Z"
	if got := string(new(timeText).appendTo(nil, time.Unix(0, 0))); got != began {
		t.Errorf("%s, want %s", got, began)
	}

	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		at = at.Add(time.Duration(random.Int64N(int64(3*time.Second))) - time.Second)
		if got, want := string(f.appendTo(nil, at)), at.Format(subjects.TimeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// Replies to leases of the same length share its text, so that it costs them no allocation.
func TestLeaseLengthIsFormattedOnce(t *testing.T) {
	var e encoder
	first := e.duration(90 * time.Second)

	allocated := testing.AllocsPerRun(100, func() { first = e.duration(90 * time.Second) })

	if allocated != 0 || first != "1m30s" {
		t.Errorf("%q with %v allocations: want 1m30s with none", first, allocated)
	}
	if other := e.duration(1500 * time.Microsecond); other != "1.5ms" {
		t.Errorf("the next length is %q: want 1.5ms", other)
	}
}
