package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The settings of a queue are in one key, which is absent while none is set:
//
//	("c") = (1, name, value, name, value, ...)
//
// in the order of the table in package settings. Durations are in nanoseconds, times in
// microseconds. Names that this version does not know come last, and stay as they are: a newer
// version wrote them.
//
// A transaction that changes the state of a queue's items reads the settings, with conflict,
// together with its other reads. So a change counts for all transactions that commit after it, on
// every bridge.

// Settings are the settings of a queue. MaxBytes counts an item as Message.Size does. It cannot be
// set while the queue has more items than a transaction can count.
type Settings = settings.Settings

// StoredSettings are the settings of a queue as they are stored.
type StoredSettings struct {
	Settings
	Unknown []any // names and values from a newer version
}

// settingsVersion is the first element of the stored settings.
const settingsVersion = 1

// CheckChange returns an error that wraps ErrSettings if the queue cannot have the settings. It
// does not check settings that stay as they were: another version, with other bounds, may have set
// them.
func (l *Layout) CheckChange(s, before *Settings) error {
	for row := range settings.All() {
		if reflect.DeepEqual(toElement(row, s), toElement(row, before)) {
			continue
		}

		err := row.Check(s)
		if err == nil {
			switch row.Name {
			case "dead_letter":
				err = l.checkDeadLetter(s.DeadLetter)
			case "next":
				err = l.checkNext(s.Next)
			case "source":
				err = l.checkSource(s.Source)
			}
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

// noSettings are the settings of a queue without any. Most queues share them.
var noSettings = &StoredSettings{}

// ParseSettings reads what Encode wrote. The result must not be changed.
func ParseSettings(value []byte) (*StoredSettings, error) {
	if value == nil {
		return noSettings, nil
	}
	s := &StoredSettings{}

	stored, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}

	if len(stored)%2 == 0 || stored[0] != int64(settingsVersion) {
		return nil, fmt.Errorf("%w: settings %x are not of version %d",
			ErrCorrupt, value, settingsVersion)
	}

	for i := 1; i < len(stored); i += 2 {
		// Names that this version does not know are kept for the version that wrote them.
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

// checkNext returns an error if acknowledgements of the queue cannot push to queues of these names.
func (l *Layout) checkNext(names []string) error {
	if len(names) > 0 && l.List == nil {
		return errors.New("a queue outside a Keyspace cannot name others: want none")
	}
	for _, name := range names {
		if n := len(name); n == 0 || n > MaxQueueName {
			return fmt.Errorf("a name of %d bytes: want 1 to %d", n, MaxQueueName)
		}
	}
	return nil
}

// toElement returns a setting as it is stored, nil if it is not set.
func toElement(row *settings.Setting, s *Settings) any {
	if !row.IsSet(s) {
		return nil
	}

	switch field := row.Field(s).(type) {
	case *time.Duration:
		return int64(*field)
	case *[]time.Duration:
		return toList(*field, func(d time.Duration) any { return int64(d) })
	case *[]string:
		return toList(*field, func(text string) any { return text })
	case *time.Time:
		return field.UnixMicro()
	case *int64:
		return *field
	default:
		return *field.(*string)
	}
}

// toList returns a list as it is stored.
func toList[E any](list []E, stored func(E) any) (elements tuple.Tuple) {
	for _, e := range list {
		elements = append(elements, stored(e))
	}
	return elements
}

// fromElement sets a setting to its stored element, and reports whether that has the right type.
func fromElement(row *settings.Setting, s *Settings, v any) (ok bool) {
	switch field := row.Field(s).(type) {
	case *time.Duration:
		return element(v, (*int64)(field))
	case *[]time.Duration:
		return listElement(v, field, func(v any, d *time.Duration) bool {
			return element(v, (*int64)(d))
		})
	case *[]string:
		return listElement(v, field, element[string])
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

// listElement sets a list to its stored element, and reports whether all of it has the right type.
func listElement[E any](v any, to *[]E, set func(v any, to *E) bool) bool {
	var list tuple.Tuple
	ok := element(v, &list)
	*to = make([]E, len(list))
	for i := range list {
		ok = ok && set(list[i], &(*to)[i])
	}
	return ok
}

// A queue also keeps named records:
//
//	("p", name) = JSON     a consumer, through which programs read the queue with another protocol
//	("s", id)   = JSON     a schedule, a schedule.Record
//
// and of each a summary, so that a change need not read the others, nor a purge any:
//
//	("l", "p", name), ("l", "s", id) = (bytes, due)    due is in microseconds, 0 is never
//
// Of a consumer, this package understands two members: see ConsumerExpires and LastTerm. A consumer
// that expires and a schedule that fires have an entry in the time index. A queue with records is
// in the list of queues, as one with settings is.

// RecordKind is a kind of records: the first element of their keys.
type RecordKind string

// The kinds of records.
const (
	ConsumerRecord RecordKind = "p"
	ScheduleRecord RecordKind = "s"
)

// Bounds of records.
const (
	MaxConsumers     = 100  // of a queue
	MaxConsumerValue = 4096 // bytes
	MaxSchedules     = 1000 // of a queue
	MaxScheduleValue = 64 << 10
	MaxScheduleBytes = 4 << 20 // of a queue
	MaxRecordName    = 128     // bytes
)

// RecordBounds are the bounds of a kind of records.
type RecordBounds struct {
	What     string // what one is called
	Most     int    // records of a queue
	MaxValue int    // bytes of a record
	MaxBytes int    // bytes of all records of a queue, with their names
}

var recordBounds = map[RecordKind]RecordBounds{
	ConsumerRecord: {
		What:     "consumer",
		Most:     MaxConsumers,
		MaxValue: MaxConsumerValue,
		MaxBytes: MaxConsumers * (MaxRecordName + MaxConsumerValue),
	},
	ScheduleRecord: {
		What:     "schedule",
		Most:     MaxSchedules,
		MaxValue: MaxScheduleValue,
		MaxBytes: MaxScheduleBytes,
	},
}

// Bounds returns the bounds of records of the kind.
func (k RecordKind) Bounds() RecordBounds { return recordBounds[k] }

// String returns "consumer" or "schedule".
func (k RecordKind) String() string { return k.Bounds().What }

// RecordKey is the key of a record.
func (l *Layout) RecordKey(k RecordKind, name string) []byte {
	return tuple.AppendString(l.Key(string(k), len(name)+2), name)
}

// Summary is what others need to know of a record.
type Summary struct {
	Name  string    // not stored in it: its key has the name
	Bytes int       // of its name and value
	Due   time.Time // when it falls due; zero is never
}

// SummaryKey is the key of the summary of the record with a key.
func (l *Layout) SummaryKey(record []byte) []byte {
	rest := record[len(l.Prefix):]
	return append(l.Key(KindSummary, len(rest)), rest...)
}

// SummarizedKey returns the key of the record whose summary has the key.
func (l *Layout) SummarizedKey(key []byte) []byte {
	return append([]byte(l.Prefix), l.Place(key)...)
}

// Summaries is the range of the summaries of all records of a kind, in the order of their names.
func (l *Layout) Summaries(k RecordKind) kv.Range {
	return Within(tuple.AppendString(l.Key(KindSummary, len(l.Prefix)+2*KindSize+2), string(k)))
}

// Encode returns the value of a summary.
func (s Summary) Encode() []byte {
	return appendTime(tuple.AppendInt(nil, int64(s.Bytes)), s.Due)
}

// ParseSummary reads the value of a summary. Any other value is the zero Summary.
func ParseSummary(value []byte) Summary {
	d := decoder{rest: value}
	s := Summary{Bytes: int(d.int()), Due: d.timeOrNone()}
	if d.end() != nil {
		return Summary{}
	}
	return s
}

// ParseRecordKey returns the name in the key of a record.
func (l *Layout) ParseRecordKey(key []byte) (name string, err error) {
	d := decoder{rest: l.Place(key)}
	return finish(&d, d.text(), "record: key", key)
}

// CheckRecord returns an error that wraps ErrOp unless the name can be a token of a subject.
func CheckRecord(k RecordKind, name string) error {
	bad := func(r rune) bool {
		return strings.ContainsRune(".*>", r) || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	if len(name) == 0 || len(name) > MaxRecordName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%w: a %v named %.*q: "+
			"want 1 to %d bytes of UTF-8 without dots, spaces, *, > and control characters",
			ErrOp, k, MaxRecordName, name, MaxRecordName)
	}
	return nil
}

// ConsumerExpires returns when a consumer goes unless its record changes before: the member
// "expires" of the record. It is zero if there is none, or if the record is not JSON.
func ConsumerExpires(value []byte) time.Time {
	var record struct {
		Expires time.Time `json:"expires"`
	}
	_ = json.Unmarshal(value, &record)
	return record.Expires
}

// LastTerm returns the record of a consumer that has expired, with a second and last term: as long
// as its member "kept" says, in nanoseconds, which it has no longer. nil says that it gets none.
// Programs write down the use of a consumer ahead of time. If the clock was set forward, only the
// second term shows whether it is used.
func LastTerm(value []byte, now time.Time) []byte {
	var kept struct {
		Kept time.Duration `json:"kept"`
	}
	var record map[string]json.RawMessage
	if err := json.Unmarshal(value, &kept); err != nil || kept.Kept <= 0 {
		return nil
	}

	_ = json.Unmarshal(value, &record) // it is an object
	record["expires"], _ = json.Marshal(Micros(now.Add(kept.Kept)))
	delete(record, "kept")
	value, _ = json.Marshal(record)
	return value
}

// A queue with Settings.Source keeps the JSON of a settings.SourceState in ("k"). It stays after
// the setting is gone until the source's consumer is removed. A bridge that draws from the source
// changes the state in the transaction that adds the items, and checks that the state is the one
// that it knows. So each message becomes one item, whichever bridges draw it, and however often.

// SourceKey is the key of the state of the queue's source.
func (l *Layout) SourceKey() []byte { return l.Key("k", 0) }

// checkSource returns an error if the source has a priority and the queue is a FIFO queue.
func (l *Layout) checkSource(text string) error {
	if s, err := settings.ParseSource(text); l.Fifo && err == nil && s.Priority != nil {
		return errors.New("priority: a FIFO queue has none: leave it out")
	}
	return nil
}

// PausedError is the error of pops and leases of a paused queue. It is ErrPaused and ErrEmpty.
type PausedError struct{ Until time.Time }

// PausedAt returns the error of pops and leases at the given time, nil if the queue is not paused.
func PausedAt(s *Settings, now time.Time) *PausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &PausedError{s.PauseUntil}
}

// Error implements error.
func (e *PausedError) Error() string {
	return fmt.Sprintf("%v until %s", ErrPaused, e.Until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns ErrPaused and ErrEmpty.
func (e *PausedError) Unwrap() []error { return []error{ErrPaused, ErrEmpty} }
