package codec

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The settings of a queue are in one key, which is absent while none is set:
//
//	("c") = (1, name, value, name, value, ...)
//
// in the order of the table in package settings; durations are in nanoseconds, times in
// microseconds. Names that this version does not know come last. They stay as they are, because a
// newer version wrote them.
//
// A transaction that changes the state of a queue's items reads the settings, with conflict,
// together with its other reads. So a change counts for all transactions that commit after it, on
// every bridge.

// Settings are the settings of a queue. MaxBytes counts an item as Message.Size does. It cannot be set
// where there are more items than a transaction can count.
type Settings = settings.Settings

// StoredSettings are the settings of a queue as its key has them.
type StoredSettings struct {
	Settings
	Unknown []any // names and values of a newer version
}

// settingsVersion is the first element of the stored settings.
const settingsVersion = 1

// CheckChange returns an error if the queue cannot have the settings, as far as they differ from
// those before. Other versions may have other bounds.
func (l *Layout) CheckChange(s, before *Settings) error {
	for row := range settings.All() {
		if reflect.DeepEqual(toElement(row, s), toElement(row, before)) {
			continue
		}

		err := row.Check(s)
		if row.Name == "dead_letter" && err == nil {
			err = l.checkDeadLetter(s.DeadLetter)
		}
		if row.Name == "source" && err == nil {
			err = l.checkSource(s.Source)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSettings, row.Name, err)
		}
	}
	return nil
}

// Encode returns the value of the settings' key, nil if nothing is set.
func (s *StoredSettings) Encode() []byte {
	stored := tuple.Tuple{int64(settingsVersion)}
	for row := range settings.All() {
		if v := toElement(row, &s.Settings); v != nil {
			stored = append(stored, row.Name, v)
		}
	}

	if stored = append(stored, s.Unknown...); len(stored) == 1 {
		return nil
	}
	return stored.Pack()
}

// ParseSettings reads what Encode wrote.
func ParseSettings(value []byte) (*StoredSettings, error) {
	s := &StoredSettings{}
	if value == nil {
		return s, nil
	}
	stored, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}
	if len(stored)%2 == 0 || stored[0] != int64(settingsVersion) {
		return nil, fmt.Errorf("%w: settings %x are not of version %d", ErrCorrupt, value, settingsVersion)
	}

	for i := 1; i < len(stored); i += 2 {
		name, _ := stored[i].(string)
		row := settings.Find(name)
		switch {
		case row == nil:
			s.Unknown = append(s.Unknown, stored[i], stored[i+1])
		case !fromElement(row, &s.Settings, stored[i+1]):
			return nil, fmt.Errorf("%w: settings: %v is %v", ErrCorrupt, stored[i], stored[i+1])
		}
	}
	return s, nil
}

// toElement returns a setting as the store has it, nil if it is not set.
func toElement(row *settings.Setting, s *Settings) any {
	if !row.IsSet(s) {
		return nil
	}

	switch field := row.Field(s).(type) {
	case *time.Duration:
		return int64(*field)
	case *[]time.Duration:
		list := make(tuple.Tuple, len(*field))
		for i, d := range *field {
			list[i] = int64(d)
		}
		return list
	case *time.Time:
		return field.UnixMicro()
	case *int64:
		return *field
	default:
		return *field.(*string)
	}
}

// fromElement sets a setting to what the store has, and reports whether it can be that.
func fromElement(row *settings.Setting, s *Settings, v any) (ok bool) {
	switch field := row.Field(s).(type) {
	case *time.Duration:
		return element(v, (*int64)(field))
	case *[]time.Duration:
		var list tuple.Tuple
		ok = element(v, &list)
		*field = make([]time.Duration, len(list))
		for i := range list {
			ok = ok && element(list[i], (*int64)(&(*field)[i]))
		}
		return ok
	case *time.Time:
		var micros int64
		ok = element(v, &micros)
		*field = time.UnixMicro(micros).UTC()
		return ok
	case *int64:
		return element(v, field)
	default:
		return element(v, field.(*string))
	}
}

// Backoff as Op.Delay is what the queue's settings say, no delay if they say nothing.
const Backoff = time.Duration(math.MinInt64)

// SettingsLease is the Lease of an OpLease that is as long as Settings.AckWait says, even if it
// follows an OpAck or OpLease.
const SettingsLease = time.Duration(math.MinInt64)
