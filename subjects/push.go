package subjects

import (
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// ErrTiming: the delay, schedule or TTL of a push is not valid.
var ErrTiming = errors.New("bad time")

// ParseDelay reads the value of [HeaderDelay], a duration with a unit from 0 to
// [settings.MaxDelay]. Errors wrap [ErrTiming].
func ParseDelay(text string) (time.Duration, error) {
	d, err := strictjson.ParseDuration(text)
	if err != nil || d < 0 || d > settings.MaxDelay {
		return 0, fmt.Errorf("%w: %s: want a duration with a unit, such as 10s or 24h, "+
			"from 0s to %v", ErrTiming, quote(text), settings.MaxDelay)
	}
	return d, nil
}

// maxTimeText is longer than any time in RFC 3339.
const maxTimeText = 64

var errLong = errors.New("too long")

// scheduleAt begins a schedule with a single time.
const scheduleAt = "@at "

const scheduleExample = `such as "@at 2030-01-02T15:04:05Z"`

// ParseSchedule reads the value of [HeaderSchedule], "@at " and a time in RFC 3339 at most
// [settings.MaxDelay] after now. It returns the time in UTC. Errors wrap [ErrTiming].
func ParseSchedule(text string, now time.Time) (time.Time, error) {
	at, isAt := strings.CutPrefix(text, scheduleAt)
	if !isAt {
		return time.Time{}, fmt.Errorf("%w: %s: a push takes only %q and a time in RFC 3339, "+
			scheduleExample+": for repeated pushes, use the verb %v",
			ErrTiming, quote(text), scheduleAt, Schedule)
	}

	var t time.Time
	err := errLong
	if len(at) <= maxTimeText {
		t, err = time.Parse(time.RFC3339, at)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %s: want a time in RFC 3339, "+scheduleExample,
			ErrTiming, quote(text))
	}
	if t.Sub(now) > settings.MaxDelay { // Sub saturates
		return time.Time{}, fmt.Errorf("%w: %s: want a time at most ten years from now (%v)",
			ErrTiming, quote(text), settings.MaxDelay)
	}
	return t.UTC(), nil
}

// TTLNever is the value of [HeaderTTL] for an item that does not expire.
const TTLNever = "never"

// ParseTTL reads the value of [HeaderTTL]: a duration with a unit or a whole number of seconds,
// from [settings.MinTTL] to [settings.MaxDelay], or [TTLNever] in any case, for which it returns 0.
// Errors wrap [ErrTiming].
func ParseTTL(text string) (time.Duration, error) {
	if strings.EqualFold(text, TTLNever) {
		return 0, nil
	}

	d, err := strictjson.ParseDuration(text)
	if seconds, notInt := strconv.ParseUint(text, 10, 32); notInt == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < settings.MinTTL || d > settings.MaxDelay {
		return 0, fmt.Errorf("%w: %s: want a duration such as 90s or 24h, a number of seconds, "+
			"or never; from %v to %v", ErrTiming, quote(text), settings.MinTTL, settings.MaxDelay)
	}
	return d, nil
}

// ParseKeep reads the value of [HeaderKeep], a duration with a unit from [settings.MinKeep] to
// [settings.MaxDelay]. Errors wrap [ErrTiming].
func ParseKeep(text string) (time.Duration, error) {
	return parseLong(text, settings.MinKeep, ErrTiming)
}

// parseLong reads a duration with a unit from least to [settings.MaxDelay]. Other errors wrap bad.
func parseLong(text string, least time.Duration, bad error) (time.Duration, error) {
	d, err := strictjson.ParseDuration(text)
	if err != nil || d < least || d > settings.MaxDelay {
		return 0, fmt.Errorf("%w: %s: want a duration with a unit, such as 90s or 24h, "+
			"from %v to %v", bad, quote(text), least, settings.MaxDelay)
	}
	return d, nil
}

// FormatSchedule returns the value of [HeaderSchedule] for a time.
func FormatSchedule(at time.Time) string { return scheduleAt + at.UTC().Format(time.RFC3339Nano) }

// MaxKey is the longest message id and unique key, in bytes.
const MaxKey = 512

// ErrKey: the message id or unique key of a push is not valid.
var ErrKey = errors.New("bad key")

// KeysOfPush returns [HeaderMsgID] and [HeaderUnique] of a push, each "" if it is absent. Each may
// be given once, with at most MaxKey bytes. Errors wrap [ErrKey].
func KeysOfPush(h map[string][]string) (msgID, unique string, err error) {
	keys := [...]string{HeaderMsgID, HeaderUnique}
	for i, name := range keys {
		values, given := h[name]
		switch keys[i] = ""; {
		case !given:
			continue
		case len(values) != 1:
			return "", "", fmt.Errorf("%w: header %s is given %d times: want one",
				ErrKey, name, len(values))
		case values[0] == "" || len(values[0]) > MaxKey:
			return "", "", fmt.Errorf("%w: header %s has %d bytes: want 1 to %d",
				ErrKey, name, len(values[0]), MaxKey)
		}
		keys[i] = values[0]
	}

	// Streams ignore a message id in another spelling, but its author relies on it.
	for name := range h {
		if strings.EqualFold(name, HeaderMsgID) && name != HeaderMsgID {
			return "", "", fmt.Errorf("%w: header %s: want it spelled %s",
				ErrKey, quote(name), HeaderMsgID)
		}
	}
	return keys[0], keys[1], nil
}

// AppendDuplicate adds "duplicate":true to the reply to a push, with which b ends.
func AppendDuplicate(b []byte) []byte { return append(b[:len(b)-1], `,"duplicate":true}`...) }

// AppendDuplicates adds the indexes of duplicates to the reply to a batch of pushes, with which b
// ends.
func AppendDuplicates(b []byte, indexes []int) []byte {
	if len(indexes) == 0 {
		return b
	}
	b = append(b[:len(b)-1], `,"duplicates":[`...)
	return append(appendList(b, indexes), "]}"...)
}

// appendList appends numbers with commas in between.
func appendList(b []byte, list []int) []byte {
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}

// MaxDuplicates is the most bytes that AppendDuplicates adds for a batch of n pushes.
func MaxDuplicates(n int) int { return len(`,"duplicates":[]`) + n*len("4095,") }

// MaxWeight is the largest weight of a push.
const MaxWeight = 100

// What can be wrong with the group of a push.
var (
	ErrGroup  = errors.New("bad " + HeaderGroup)
	ErrWeight = errors.New("bad " + HeaderWeight)
)

// GroupOfPush checks [HeaderGroup] in the headers of a push, trims it in place, and returns the
// weight in [HeaderWeight], 1 to MaxWeight, or 0 if there is none. Errors wrap [ErrGroup] or
// [ErrWeight].
func GroupOfPush(h map[string][]string) (weight int, err error) {
	groups, given := h[HeaderGroup]
	if len(groups) == 1 { // as NATS trims it in replies
		groups[0] = textproto.TrimString(groups[0])
	}

	if given && (len(groups) != 1 || !settings.IsGroup(groups[0])) {
		return 0, fmt.Errorf("%w: want 1 to %d bytes of UTF-8 in one line, once",
			ErrGroup, settings.MaxGroup)
	}

	weights, weighted := h[HeaderWeight]
	if !weighted {
		return 0, nil
	}

	text := strings.Join(weights, ", ")
	weight, err = strconv.Atoi(text)
	plain := err == nil && strconv.Itoa(weight) == text // without "+" or leading zeros
	if !plain || weight < 1 || weight > MaxWeight || !given {
		return 0, fmt.Errorf("%w %s: want an integer from 1 to %d, beside %s",
			ErrWeight, quote(text), MaxWeight, HeaderGroup)
	}
	return weight, nil
}
