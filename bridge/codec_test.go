package bridge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// A time in the same second as the one before reuses its text.
func TestEncoderTime(t *testing.T) {
	var e encoder
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, step := range []time.Duration{
		0, time.Microsecond, 999_998 * time.Microsecond, 0, 999, 1, time.Microsecond, time.Second, -time.Second, 100 * 365 * 24 * time.Hour,
	} {
		at = at.Add(step)
		if got, want := e.time(at), at.Format(subjects.TimeLayout); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, want := new(encoder).time(time.Unix(0, 0)), "1970-01-01T00:00:00.000000Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		at = at.Add(time.Duration(random.Int64N(int64(3*time.Second))) - time.Second)
		if got, want := e.time(at), at.Format(subjects.TimeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}
