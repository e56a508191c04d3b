package fdbpq

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
)

// Record is what a queue keeps under a name: for a consumer, through which programs read it with
// another protocol, JSON whose member "expires" says when the queue removes it, if it is there, and
// whose others mean nothing here; for a schedule, what schedule.Parse reads.
type Record struct {
	Name  string
	Value []byte // 1 to MaxConsumerValue or MaxScheduleValue bytes; not to be changed
}

// Bounds of records.
const (
	// MaxConsumers is the most consumers of a queue.
	MaxConsumers = codec.MaxConsumers
	// MaxConsumerValue is the longest Record.Value of a consumer, in bytes.
	MaxConsumerValue = codec.MaxConsumerValue
	// MaxSchedules is the most schedules of a queue.
	MaxSchedules = codec.MaxSchedules
	// MaxScheduleBytes is the most bytes that the names and values of a queue's schedules have together.
	MaxScheduleBytes = codec.MaxScheduleBytes
	// MaxScheduleValue is the longest Record.Value of a schedule, in bytes.
	MaxScheduleValue = codec.MaxScheduleValue
	// MaxRecordName is the longest Record.Name, in bytes.
	MaxRecordName = codec.MaxRecordName
)

// recordKind returns the kind of records that an operation is about, and whether it sets one; "" if
// it is about none.
func (k OpKind) recordKind() (kind codec.RecordKind, sets bool) {
	switch k {
	case OpConsumers, OpSetConsumer:
		return codec.ConsumerRecord, k == OpSetConsumer
	case OpSchedules, OpSetSchedule:
		return codec.ScheduleRecord, k == OpSetSchedule
	}
	return "", false
}

// queueRecords is the operations on the records of one kind of one queue.
type queueRecords struct {
	*queueTxn
	kind    codec.RecordKind
	indexes []int // into txn.ops
	stored  kv.Future[[]kv.KeyValue]
	fired   bool // what was due
}

// records is those of all queues.
type records []*queueRecords

// atOnce is of how many queues records are read together: those of one can be as long as several
// values.
func (r records) atOnce() int {
	longest := 1
	for _, q := range r {
		longest = max(longest, q.kind.MaxBytes()/codec.ChunkSize+1)
	}
	return (r[0].returned.AtOnce() + longest - 1) / longest
}

// begin starts to read the records of the first queues, so that they take no round trip of their own.
func (r records) begin() {
	if len(r) == 0 {
		return
	}
	for _, q := range r[:min(len(r), r.atOnce())] {
		q.beginRead()
	}
}

// run reads the records, of a few queues at a time, and changes them.
func (r records) run() error {
	if len(r) == 0 {
		return nil
	}
	for some := range slices.Chunk(r, r.atOnce()) {
		for _, q := range some {
			if q.stored == nil {
				q.beginRead()
			}
		}
		if err := each(some, (*queueRecords).finish); err != nil {
			return err
		}
	}
	return nil
}

// beginRead starts to read the records: with conflict, because a change depends on what there is.
func (q *queueRecords) beginRead() {
	r := q.snapshot
	if q.tx != nil {
		r = q.tx
	}
	q.stored = r.GetRange(q.l.RecordRange(q.kind), kv.RangeOptions{})
}

// finish runs the operations of a queue in their order. A transaction that only reads has failed
// those that change something.
func (q *queueRecords) finish() error {
	all, err := q.parse()
	all = q.dropExpired(all)
	if err == nil && q.tx != nil && q.changesDue(all) {
		all, err = q.fireDue()
	}
	if err != nil {
		return q.failOps(err, q.indexes...)
	}

	for _, i := range q.indexes {
		result := &q.results[i]
		_, sets := q.ops[i].Kind.recordKind()
		switch {
		case sets && q.tx != nil:
			all, result.Err = q.set(&q.ops[i], all, result)
		case !sets && !q.returned.Admit(sizeOfRecords(all)):
			result.Err = ErrNoRoom
		case !sets:
			result.Records = all
		}
	}
	return q.fireRuns()
}

// fireRuns fires the schedules that the operations have made due, so that their results have what became
// of them.
func (q *queueRecords) fireRuns() error {
	var runs []int
	for _, i := range q.indexes {
		_, sets := q.ops[i].Kind.recordKind()
		if result := &q.results[i]; sets && result.Err == nil && q.isDue(result.Records[0].Value) {
			runs = append(runs, i)
		}
	}
	if len(runs) == 0 {
		return nil
	}

	q.due.Again()
	if err := q.bringBack([]*due.Due{&q.due}); err != nil {
		return err
	}
	for _, i := range runs {
		value, err := q.tx.Get(q.l.RecordKey(q.kind, q.ops[i].Record)).Get()
		if err != nil {
			return err
		}
		result := &q.results[i]
		result.Records[0].Value = value
		if r := parseSchedule(value); r != nil {
			result.NextDue = r.Next
		}
	}
	return nil
}

// parse waits for the records. The error is ErrCorrupt or one of the store.
func (q *queueRecords) parse() ([]Record, error) {
	pairs, err := q.stored.Get()
	if err != nil {
		return nil, err
	}

	q.stored = nil // it holds values
	all := make([]Record, len(pairs))
	for i, pair := range pairs {
		if all[i].Name, err = q.l.ParseRecordKey(pair.Key); err != nil {
			return nil, err
		}
		all[i].Value = pair.Value
	}
	return all, nil
}

// dropExpired leaves out the consumers that have expired, so that they do not count for
// MaxConsumers. A transaction that may write removes them.
func (q *queueRecords) dropExpired(all []Record) []Record {
	if q.kind != codec.ConsumerRecord {
		return all
	}
	return slices.DeleteFunc(all, func(r Record) bool {
		at := codec.ConsumerExpires(r.Value)
		gone := !at.IsZero() && !at.After(q.asOf)
		if gone && q.tx != nil {
			q.ledger.SetConsumer(r.Name, r.Value, nil)
		}
		return gone
	})
}

// changesDue reports whether an operation changes a schedule that is due.
func (q *queueRecords) changesDue(all []Record) bool {
	return slices.ContainsFunc(q.indexes, func(i int) bool {
		_, sets := q.ops[i].Kind.recordKind()
		at, found := findRecord(all, q.ops[i].Record)
		return sets && found && q.isDue(all[at].Value)
	})
}

func (q *queueRecords) isDue(value []byte) bool {
	if q.kind != codec.ScheduleRecord {
		return false
	}
	r := parseSchedule(value)
	return r != nil && r.Due(q.now)
}

// drops reports whether a schedule can be removed although it is due: only if its item cannot be pushed,
// or it has fired as often as a transaction can, and may have missed any number of times.
func (q *queueRecords) drops(old []byte) bool {
	return q.due.Err != nil || q.fired && parseSchedule(old).IfMissed == schedule.All
}

// fireDue handles what is due, as a look at the queue does, so that no change loses a time. It returns
// the records that there are then.
func (q *queueRecords) fireDue() ([]Record, error) {
	if err := q.bringBack([]*due.Due{&q.due}); err != nil {
		return nil, err
	}
	q.fired = true
	q.due.Again() // one that runs fires, too
	q.beginRead()
	return q.parse()
}

func findRecord(all []Record, name string) (at int, found bool) {
	return slices.BinarySearchFunc(all, name, func(r Record, name string) int { return strings.Compare(r.Name, name) })
}

// parseSchedule returns nil for a record that cannot be read.
func parseSchedule(value []byte) *schedule.Record {
	if r, err := schedule.Parse(value); err == nil {
		return r
	}
	return nil
}

// sizeOfRecords is how many bytes an OpConsumers or OpSchedules returns.
func sizeOfRecords(all []Record) (n int) {
	for i := range all {
		n += len(all[i].Name) + len(all[i].Value)
	}
	return n
}

// set runs an OpSetConsumer or OpSetSchedule. It returns the records that there are then, and leaves
// those that there were, which other operations may have returned.
func (q *queueRecords) set(op *Op, all []Record, result *Result) ([]Record, error) {
	at, found := findRecord(all, op.Record)
	var old []byte
	after := all[at:]
	if found {
		old, after = all[at].Value, all[at+1:]
	}

	value, err := op.Change(old, q.now)
	result.Records = []Record{{op.Record, value}}
	switch {
	case err != nil:
		return all, err
	case q.isDue(old) && !(len(value) == 0 && q.drops(old)): // more times than a transaction fires, or they could not be read
		return all, cmp.Or(q.due.Err, ErrNoRoom)
	case bytes.Equal(value, old):
		return all, nil
	case len(value) > q.kind.MaxValue():
		return all, fmt.Errorf("%w: a %v of %d bytes: want at most %d", ErrOp, q.kind, len(value), q.kind.MaxValue())
	case !found && len(all) >= q.kind.Most():
		return all, fmt.Errorf("%w: %d %vs", ErrMaxRecords, q.kind.Most(), q.kind)
	case len(value) > len(old) && sizeOfRecords(all)+len(op.Record)+len(value)-len(old) > q.kind.MaxBytes():
		return all, fmt.Errorf("%w: %vs of more than %d bytes in all", ErrMaxRecords, q.kind, q.kind.MaxBytes())
	}

	if result.NextDue, err = q.write(op.Record, old, value); err != nil {
		return all, err
	}
	if len(value) == 0 {
		return slices.Concat(all[:at], after), nil
	}
	return slices.Concat(all[:at], []Record{{op.Record, value}}, after), nil
}

// write writes a record, or removes it, and returns when it falls due.
func (q *queueRecords) write(name string, old, value []byte) (next time.Time, err error) {
	if q.kind != codec.ScheduleRecord {
		q.ledger.SetConsumer(name, old, value)
		return next, nil
	}

	set := parseSchedule(value)
	if len(value) > 0 && set == nil {
		return next, fmt.Errorf("%w: a schedule that cannot be read: want what Record.Encode returns", ErrOp)
	}
	q.ledger.SetSchedule(name, parseSchedule(old), set)
	if set != nil {
		next = set.Next
	}
	return next, nil
}

// CheckConsumer returns an error unless a consumer can have the name: it has to fit into a subject.
func CheckConsumer(name string) error { return codec.CheckRecord(codec.ConsumerRecord, name) }
