package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// setting is a row of settingTable.
type setting struct {
	name string
	// get returns the value to store, nil if it is not set.
	get func(*Settings) any
	// set sets the stored value, and reports whether it can be one.
	set func(*Settings, any) bool
	// check returns what is wrong with the value in this queue, if it is set.
	check func(*Settings, *layout) error
}

// settingTable is all settings that this version knows.
var settingTable = []setting{
	{
		name:  "ack_wait",
		get:   func(s *Settings) any { return unlessZero(int64(s.AckWait)) },
		set:   func(s *Settings, v any) bool { return element(v, (*int64)(&s.AckWait)) },
		check: func(s *Settings, _ *layout) error { return checkBounds(s.AckWait, MinLease, MaxLease) },
	},
	{
		name: "backoff",
		get: func(s *Settings) any {
			if len(s.Backoff) == 0 {
				return nil
			}
			list := tuple.Tuple{}
			for _, d := range s.Backoff {
				list = append(list, int64(d))
			}
			return list
		},
		set: func(s *Settings, v any) bool {
			list, ok := v.(tuple.Tuple)
			s.Backoff = make([]time.Duration, len(list))
			for i := range list {
				ok = ok && element(list[i], (*int64)(&s.Backoff[i]))
			}
			return ok
		},
		check: func(s *Settings, _ *layout) error {
			if len(s.Backoff) > MaxBackoffs {
				return fmt.Errorf("%d durations: want at most %d", len(s.Backoff), MaxBackoffs)
			}
			for _, d := range s.Backoff {
				if err := checkBounds(d, 0, MaxDelay); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		name: "max_deliver",
		get:  func(s *Settings) any { return unlessZero(s.MaxDeliver) },
		set:  func(s *Settings, v any) bool { return element(v, &s.MaxDeliver) },
		check: func(s *Settings, _ *layout) error {
			if s.MaxDeliver < 0 || s.MaxDeliver > MaxMaxDeliver {
				return fmt.Errorf("%d: want 0 to %d", s.MaxDeliver, MaxMaxDeliver)
			}
			return nil
		},
	},
	{
		name: "dead_letter",
		get: func(s *Settings) any {
			if s.DeadLetter == "" {
				return nil
			}
			return s.DeadLetter
		},
		set:   func(s *Settings, v any) bool { return element(v, &s.DeadLetter) },
		check: func(s *Settings, l *layout) error { return l.checkDeadLetter(s.DeadLetter) },
	},
	{
		name:  "ttl",
		get:   func(s *Settings) any { return unlessZero(int64(s.TTL)) },
		set:   func(s *Settings, v any) bool { return element(v, (*int64)(&s.TTL)) },
		check: func(s *Settings, _ *layout) error { return checkBounds(s.TTL, MinTTL, MaxTTL) },
	},
	{
		name: "pause_until",
		get: func(s *Settings) any {
			if s.PauseUntil.IsZero() {
				return nil
			}
			return s.PauseUntil.UnixMicro()
		},
		set: func(s *Settings, v any) bool {
			var micros int64
			ok := element(v, &micros)
			s.PauseUntil = time.UnixMicro(micros).UTC()
			return ok
		},
		check: func(s *Settings, _ *layout) error {
			if t := s.PauseUntil; !t.IsZero() && (t.UTC().Year() < 1970 || t.UTC().Year() > 9999) {
				return fmt.Errorf("%v: want a year from 1970 to 9999", t)
			}
			return nil
		},
	},
	countSetting("max_leased", MaxCount, func(s *Settings) *int64 { return &s.MaxLeased }),
	countSetting("max_items", MaxCount, func(s *Settings) *int64 { return &s.MaxItems }),
	countSetting("max_bytes", MaxTotalBytes, func(s *Settings) *int64 { return &s.MaxBytes }),
	{
		name: "discard",
		get: func(s *Settings) any {
			if s.Discard == "" {
				return nil
			}
			return s.Discard
		},
		set: func(s *Settings, v any) bool { return element(v, &s.Discard) },
		check: func(s *Settings, _ *layout) error {
			if d := s.Discard; d != "" && d != DiscardNew && d != DiscardOld {
				return fmt.Errorf("%.130q: want %q or %q", d, DiscardNew, DiscardOld)
			}
			return nil
		},
	},
	{
		name: "duplicate_window",
		get:  func(s *Settings) any { return unlessZero(int64(s.DuplicateWindow)) },
		set:  func(s *Settings, v any) bool { return element(v, (*int64)(&s.DuplicateWindow)) },
		check: func(s *Settings, _ *layout) error {
			if s.DuplicateWindow == NoDuplicateWindow {
				return nil
			}
			return checkBounds(s.DuplicateWindow, MinLease, MaxDelay)
		},
	},
}

// countSetting is a setting that is a number of items or bytes.
func countSetting(name string, most int64, field func(*Settings) *int64) setting {
	return setting{
		name: name,
		get:  func(s *Settings) any { return unlessZero(*field(s)) },
		set:  func(s *Settings, v any) bool { return element(v, field(s)) },
		check: func(s *Settings, _ *layout) error {
			if n := *field(s); n < 0 || n > most {
				return fmt.Errorf("%d: want 0 to %d", n, most)
			}
			return nil
		},
	}
}

func unlessZero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}
