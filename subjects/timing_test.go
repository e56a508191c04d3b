package subjects

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// A delay is a duration with a unit, from 0 to ten years of 365 days.
func TestParseDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s":    10 * time.Second,
		"1h30m":  90 * time.Minute,
		"250ms":  250 * time.Millisecond,
		"0":      0,
		"0s":     0,
		"1.5h":   90 * time.Minute,
		"87600h": settings.MaxDelay,
		"1ns":    1,
		"+5s":    5 * time.Second,
	} {
		if got, err := ParseDelay(text); err != nil || got != want {
			t.Errorf("%q: %v, %v: want %v", text, got, err, want)
		}
	}

	for _, text := range []string{
		"", " ", "10", "1000000000", "-1s", "-0.5s", "87600h1ns", "9999999999h", "10 s", "10s ",
		"1d", "1y", "@at 2030-01-02T15:04:05Z", "00", "0.0", "NaN", "1e3s", "\x00", "never",
	} {
		got, err := ParseDelay(text)
		if !errors.Is(err, ErrTiming) || got != 0 ||
			!strings.Contains(err.Error(), "want a duration with a unit") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// A job is kept for a duration with a unit, from a second to ten years of 365 days.
func TestParseKeep(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s":     time.Second,
		"1000ms": time.Second,
		"1h30m":  90 * time.Minute,
		"87600h": settings.MaxDelay,
	} {
		if got, err := ParseKeep(text); err != nil || got != want {
			t.Errorf("%q: %v, %v: want %v", text, got, err, want)
		}
	}

	for _, text := range []string{
		"", " ", "0", "0s", "999ms", "-1s", "60", "87600h1ns", "9999999999h", "1 h", "1h ", "1d",
		"never", "true", "\x00",
	} {
		got, err := ParseKeep(text)
		if !errors.Is(err, ErrTiming) || got != 0 ||
			!strings.Contains(err.Error(), "from 1s to 87600h0m0s") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// A push can be scheduled for one time in RFC 3339, past or at most ten years of 365 days ahead.
// Everything else is refused with what would be right.
func TestParseSchedule(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"@at 2026-11-21T12:00:10Z":           now.Add(10 * time.Second),
		"@at 2026-11-21T13:00:10.5+01:00":    now.Add(10*time.Second + 500*time.Millisecond),
		"@at 0001-01-01T00:00:00Z":           {},
		"@at 1970-01-01T00:00:00Z":           time.Unix(0, 0).UTC(),
		"@at 2036-11-18T12:00:00Z":           now.Add(settings.MaxDelay), // 3,650 days
		FormatSchedule(now.Add(time.Hour)):   now.Add(time.Hour),
		FormatSchedule(now.Add(1234567)):     now.Add(1234567), // ns are kept
		FormatSchedule(now.In(time.Local)):   now,
		"@at 2026-11-21T12:00:00.123456789Z": now.Add(123456789),
	} {
		if got, err := ParseSchedule(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v: want %v", text, got, err, want)
		}
	}

	for text, want := range map[string]string{
		"":                          "only",
		"@every 1s":                 "only",
		"@daily":                    "only",
		"0 0 * * * *":               "only",
		"2026-11-21T12:00:10Z":      "only",
		"@AT 2026-11-21T12:00:10Z":  "only",
		"@at":                       "only",
		"@at ":                      "RFC 3339",
		"@at 10s":                   "RFC 3339",
		"@at 2026-11-21":            "RFC 3339",
		"@at 2026-11-21 12:00:10Z":  "RFC 3339",
		"@at 2026-11-21T12:00:10":   "RFC 3339",
		"@at  2026-11-21T12:00:10Z": "RFC 3339",
		"@at 1795229597":            "RFC 3339",
		"@at 2026-02-30T12:00:10Z":  "RFC 3339",
		"@at 2036-11-18T12:00:01Z":  "ten years", // a second beyond settings.MaxDelay
		"@at 9999-12-31T23:59:59Z":  "ten years",
	} {
		got, err := ParseSchedule(text, now)
		if !errors.Is(err, ErrTiming) || !got.IsZero() || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v: want it to say %q", text, got, err, want)
		}
	}
}

// A TTL is a duration or a number of seconds, from a second to ten years of 365 days, or "never",
// which is 0.
func TestParseTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s":        time.Second,
		"90":        90 * time.Second,
		"1h30m":     90 * time.Minute,
		"1.5s":      1500 * time.Millisecond,
		"1":         time.Second,
		"never":     0,
		"NEVER":     0,
		"87600h":    settings.MaxDelay,
		"315360000": settings.MaxDelay, // as many seconds
		"010":       10 * time.Second,  // decimal, as in NATS
	} {
		if got, err := ParseTTL(text); err != nil || got != want {
			t.Errorf("%q: %v, %v: want %v", text, got, err, want)
		}
	}

	for _, text := range []string{
		"", "0", "0s", "-1", "-1s", "999ms", "87600h1ns", "315360001", "99999999999999999999",
		"18446744073709551615", "1.5", "+5", "1d", "10 s", " 10", "nev er", "\x00",
	} {
		got, err := ParseTTL(text)
		if !errors.Is(err, ErrTiming) || got != 0 ||
			!strings.Contains(err.Error(), "from 1s to 87600h0m0s") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// FuzzTiming: any header of a push gives a time within the bounds, or an error that can be sent.
func FuzzTiming(f *testing.F) {
	for _, text := range []string{
		"10s", "10", "-1h", "0", "@at 2026-11-21T12:00:10Z", "@at 9999-12-31T23:59:59+14:00",
		"@every 1s", "never", "\xff\n",
	} {
		f.Add(text, int64(1795229597))
	}

	f.Fuzz(func(t *testing.T, text string, unix int64) {
		now := time.Unix(unix%(1<<33), 0)
		check := func(in bool, err error) {
			t.Helper()
			if err != nil {
				WantSendable(t, err, ErrTiming)
			} else if !in {
				t.Fatalf("%q is accepted, out of bounds", text)
			}
		}

		d, err := ParseDelay(text)
		check(d >= 0 && d <= settings.MaxDelay, err)
		if err == nil && d > 0 {
			if again, err := ParseDelay(d.String()); err != nil || again != d {
				t.Fatalf("%q is %v, which is read as %v, %v", text, d, again, err)
			}
		}

		ttl, err := ParseTTL(text)
		never := ttl == 0 && strings.EqualFold(text, TTLNever)
		check(never || ttl >= settings.MinTTL && ttl <= settings.MaxDelay, err)

		at, err := ParseSchedule(text, now)
		check(!at.After(now.Add(settings.MaxDelay)), err)

		if err == nil && at.Year() > 0 {
			again, err := ParseSchedule(FormatSchedule(at), now)
			if err != nil || !again.Equal(at) {
				t.Fatalf("%q is %v, which is read as %v, %v", text, at, again, err)
			}
		}
	})
}
