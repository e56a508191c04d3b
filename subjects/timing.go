package subjects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// ErrTiming: a header of a push does not say when its item is due.
var ErrTiming = errors.New("bad time")

// ParseDelay reads the value of [HeaderDelay], 0 to MaxDelay. Errors wrap ErrTiming.
func ParseDelay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxDelay {
		return 0, fmt.Errorf("%w: %s: want a duration with a unit, such as 10s or 1h30m, from 0s to %v", ErrTiming, quote(text), MaxDelay)
	}
	return d, nil
}

// scheduleAt begins a schedule of one time.
const scheduleAt = "@at "

// ParseSchedule reads the value of [HeaderSchedule], a time at most MaxDelay after now. Errors wrap
// ErrTiming.
func ParseSchedule(text string, now time.Time) (time.Time, error) {
	at, isAt := strings.CutPrefix(text, scheduleAt)
	if !isAt {
		return time.Time{}, fmt.Errorf("%w: %s: a push has only %q and a time in RFC 3339, such as \"@at 2030-01-02T15:04:05Z\": the verb %v sets what is pushed again and again",
			ErrTiming, quote(text), scheduleAt, Schedule)
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %s: want a time in RFC 3339, such as \"@at 2030-01-02T15:04:05Z\"", ErrTiming, quote(text))
	}
	if t.Sub(now) > MaxDelay { // which saturates
		return time.Time{}, fmt.Errorf("%w: %s: want a time in at most ten years (%v)", ErrTiming, quote(text), MaxDelay)
	}
	return t.UTC(), nil
}

// MinTTL is the shortest time after which an item can expire; the longest is MaxDelay.
const MinTTL = settings.MinTTL

// TTLNever is the value of [HeaderTTL] for an item that does not expire.
const TTLNever = "never"

// ParseTTL reads the value of [HeaderTTL]: a duration with a unit or an integer of seconds, MinTTL
// to MaxDelay. 0 is [TTLNever]. Errors wrap ErrTiming.
func ParseTTL(text string) (time.Duration, error) {
	if strings.EqualFold(text, TTLNever) {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, notInt := strconv.ParseUint(text, 10, 32); notInt == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < MinTTL || d > MaxDelay {
		return 0, fmt.Errorf("%w: %s: want a duration such as 90s or 1h30m, a number of seconds, or never; from %v to %v",
			ErrTiming, quote(text), MinTTL, MaxDelay)
	}
	return d, nil
}

// FormatSchedule returns the value of HeaderSchedule for a time.
func FormatSchedule(at time.Time) string { return scheduleAt + at.UTC().Format(time.RFC3339Nano) }
