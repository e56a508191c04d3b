package codec

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Beside its settings a queue keeps named records:
//
//	("p", name) = JSON     of a consumer, through which programs read the queue with another protocol
//	("s", id)   = JSON     of a schedule, a schedule.Record
//
// Of a consumer, only one member means something here: see ConsumerExpires. A consumer that expires
// and a schedule that fires have an entry in the time index. A queue with a record is in the list of
// queues, as one with settings is.

// RecordKind is a kind of records, the first element of their keys.
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

// String returns what such a record is of.
func (k RecordKind) String() string {
	if k == ScheduleRecord {
		return "schedule"
	}
	return "consumer"
}

// Most is how many a queue can have.
func (k RecordKind) Most() int {
	if k == ScheduleRecord {
		return MaxSchedules
	}
	return MaxConsumers
}

// MaxValue is the most bytes of a record.
func (k RecordKind) MaxValue() int {
	if k == ScheduleRecord {
		return MaxScheduleValue
	}
	return MaxConsumerValue
}

// MaxBytes is the most bytes that all records of a queue have together.
func (k RecordKind) MaxBytes() int {
	if k == ScheduleRecord {
		return MaxScheduleBytes
	}
	return MaxConsumers * (MaxRecordName + MaxConsumerValue)
}

func (l *Layout) RecordKey(k RecordKind, name string) []byte {
	return tuple.AppendString(l.Key(string(k), len(name)+2), name)
}

// RecordRange is the range of all records of a kind, which are in the order of their names.
func (l *Layout) RecordRange(k RecordKind) kv.Range { return l.KindRange(string(k)) }

// ParseRecordKey returns the name in the key of a record.
func (l *Layout) ParseRecordKey(key []byte) (name string, err error) {
	d := decoder{rest: l.Place(key)}
	name = d.text()
	if err := d.end(); err != nil {
		return "", fmt.Errorf("%w: record: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

// CheckRecord returns an error unless the name can be a token of a subject.
func CheckRecord(k RecordKind, name string) error {
	bad := func(r rune) bool { return strings.ContainsRune(".*>", r) || unicode.IsSpace(r) || unicode.IsControl(r) }
	if len(name) == 0 || len(name) > MaxRecordName || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%w: a %v named %.*q: want 1 to %d bytes of UTF-8 without dots, spaces, *, > and control characters",
			ErrOp, k, MaxRecordName, name, MaxRecordName)
	}
	return nil
}

// ConsumerExpires returns when a consumer goes unless its record is changed before: the member
// "expires" of the record. It is zero if there is none, or if the record is not JSON.
func ConsumerExpires(value []byte) time.Time {
	var record struct {
		Expires time.Time `json:"expires"`
	}
	_ = json.Unmarshal(value, &record)
	return record.Expires
}
