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
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// queueRecords is the operations on the records of one kind of one queue.
type queueRecords struct {
	familyOps
	kind codec.RecordKind

	// Changes read the summaries of all records, with conflict, and the records that they change.
	summaries kv.Future[[]kv.KeyValue]
	all       []codec.Summary     // by name
	bytes     int                 // of all
	values    []kv.Future[[]byte] // of the next changes
	written   map[string]bool     // names of records that may have changed since values were read
	fired     bool                // what was due has fired, as much as fits into the transaction

	list kv.Future[[]kv.KeyValue] // nil before a list, and after a change
	page listPage                 // that list is for
	read kv.RangeOptions          // with which list is read
}

const (
	// changesAtOnce is how many records of a queue are read together.
	changesAtOnce = 16
	// firstOfList is about how many bytes of a list are read together with lists of other queues.
	// Longer lists are read again, one after the other.
	firstOfList = 4 << 10
	// summarySize is about the most memory that a summary takes.
	summarySize = codec.MaxRecordName + 200
)

// recordsAtOnce is how many queues are read together, so that their records fit into a page.
func (t *txn) recordsAtOnce(records []*queueRecords) int {
	longest := 1
	for _, q := range records {
		size := firstOfList
		if slices.ContainsFunc(q.indexes, q.changes) {
			values, bounds := min(len(q.indexes), changesAtOnce), q.kind.Bounds()
			size += bounds.Most*summarySize + values*bounds.MaxValue
		}
		longest = max(longest, size)
	}
	return max(t.returned.Page()/longest, 1)
}

// runRecords reads the records, of a few queues at a time, and changes them.
func (t *txn) runRecords(records []*queueRecords) error {
	for some := range slices.Chunk(records, t.recordsAtOnce(records)) {
		for _, q := range some {
			q.beginRead()
		}
		if err := state.Each(some, (*queueRecords).finish); err != nil {
			return err
		}
	}
	return nil
}

// changes reports whether an operation may change a record.
func (q *queueRecords) changes(i int) bool { return q.ops[i].Kind.Writes() }

// beginRead starts to read the summaries, and what the first operations need.
func (q *queueRecords) beginRead() {
	looks := q.tx != nil && q.kind == codec.ConsumerRecord // it removes those that have expired
	if looks || slices.ContainsFunc(q.indexes, q.changes) {
		q.summaries = q.tx.GetRange(q.l.Summaries(q.kind), kv.RangeOptions{})
	}
	q.beginValues(q.indexes[:min(len(q.indexes), changesAtOnce)])
}

// beginValues starts to read the records that operations change, and the list if one returns it.
func (q *queueRecords) beginValues(indexes []int) {
	q.values, q.written = make([]kv.Future[[]byte], len(indexes)), map[string]bool{}
	for n, i := range indexes {
		if q.changes(i) {
			q.values[n] = q.tx.Get(q.l.RecordKey(q.kind, q.ops[i].Record))
		} else if q.list == nil {
			q.beginList(&q.ops[i])
		}
	}
}

// finish runs the operations of a queue in their order.
func (q *queueRecords) finish() error {
	if q.summaries != nil {
		if err := q.loadSummaries(); err != nil {
			return q.failOps(err, q.indexes...)
		}
	}

	for first := 0; first < len(q.indexes); first += changesAtOnce {
		some := q.indexes[first:min(first+changesAtOnce, len(q.indexes))]
		if first > 0 {
			q.beginValues(some)
		}
		for n, i := range some {
			if err := q.failOps(q.runOp(n, i), i); err != nil {
				return err
			}
		}
	}

	q.values, q.list = nil, nil // they hold values
	return q.fireRuns()
}

// runOp runs an operation. The error is for the operation, or one of the store.
func (q *queueRecords) runOp(n, i int) (err error) {
	op, result := &q.ops[i], &q.results[i]
	switch {
	case q.changes(i) && q.changed.Refused:
		return ErrNoRoom
	case q.changes(i):
		var old []byte
		if q.written[op.Record] {
			q.values[n] = q.tx.Get(q.l.RecordKey(q.kind, op.Record))
		}
		if old, err = q.values[n].Get(); err == nil {
			q.values[n] = nil
			result.Err = q.set(op, old, result)
		}
	default:
		if result.Records, err = q.listed(op); !q.returned.Admit(sizeOfRecords(result.Records)) {
			result.Records, err = nil, cmp.Or(err, error(ErrNoRoom))
		}
	}
	return err
}

// expire removes the consumers that have expired and get no last term, so that they do not count
// for MaxConsumers.
func (q *queueRecords) expire() error {
	for _, s := range slices.Clone(q.all) {
		if !codec.Expired(s.Due, q.asOf) {
			continue
		}
		value, err := q.tx.Get(q.l.RecordKey(q.kind, s.Name)).Get()
		if err != nil {
			return err
		}
		last := codec.LastTerm(value, q.asOf)
		q.write(s.Name, last, codec.ConsumerExpires(last))
	}
	return nil
}

// loadSummaries waits for the summaries. If an operation changes a due schedule, all due schedules
// fire before, as with any look at the queue, so that no change loses a time.
func (q *queueRecords) loadSummaries() error {
	pairs, err := q.summaries.Get()
	if err != nil {
		return err
	}

	q.all, q.bytes, q.summaries = make([]codec.Summary, 0, len(pairs)), 0, nil
	for _, pair := range pairs {
		name, err := q.l.ParseRecordKey(q.l.SummarizedKey(pair.Key))
		if err != nil {
			return err
		}
		s := codec.ParseSummary(pair.Value)
		s.Name = name
		q.all = append(q.all, s)
		q.bytes += s.Bytes
	}
	if q.kind == codec.ConsumerRecord {
		return q.expire()
	}

	changesDue := func(i int) bool { return q.changes(i) && q.isDue(q.ops[i].Record) }
	if q.fired || !slices.ContainsFunc(q.indexes, changesDue) {
		return nil
	}

	if err := q.moving.bringBack([]*due.Due{&q.due}); err != nil {
		return err
	}
	q.fired = true
	q.due.Again() // fireRuns may have more to do
	q.list = nil
	q.beginRead()
	return q.loadSummaries()
}

// isDue reports whether a schedule is due.
func (q *queueRecords) isDue(name string) bool {
	at, found := q.find(name)
	return found && q.kind == codec.ScheduleRecord && codec.Expired(q.all[at].Due, q.now)
}

func (q *queueRecords) find(name string) (at int, found bool) {
	byName := func(s codec.Summary, name string) int { return strings.Compare(s.Name, name) }
	return slices.BinarySearchFunc(q.all, name, byName)
}

// fireRuns fires the schedules that the operations have made due. The results then have the records
// as they are after that.
func (q *queueRecords) fireRuns() error {
	var runs []int
	for _, i := range q.indexes {
		if q.changes(i) && q.results[i].Err == nil && q.isDue(q.ops[i].Record) {
			runs = append(runs, i)
		}
	}
	if len(runs) == 0 {
		return nil
	}

	q.due.Again()
	if err := q.moving.bringBack([]*due.Due{&q.due}); err != nil {
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

// mayRemoveDue reports whether a schedule can be removed although it is due. Its remaining times
// would be lost, so it can only if its item cannot be pushed, or if it has schedule.All and has
// fired as often as a transaction can: such a schedule may have missed any number of times.
func (q *queueRecords) mayRemoveDue(old []byte) bool {
	if q.due.Err != nil {
		return true
	}
	r := parseSchedule(old)
	return q.fired && r != nil && r.IfMissed == schedule.All
}

// parseSchedule returns nil for a record that cannot be read.
func parseSchedule(value []byte) *schedule.Record {
	if r, err := schedule.Parse(value); err == nil {
		return r
	}
	return nil
}

// set runs an OpSetConsumer or OpSetSchedule. It returns an error of the operation.
func (q *queueRecords) set(op *Op, old []byte, result *Result) error {
	value, err := op.Change(old, q.now)
	if err != nil {
		return err
	}

	bounds := q.kind.Bounds()
	at, found := q.find(op.Record)
	grows := q.sizeOf(op.Record, value)
	if found {
		grows -= q.all[at].Bytes
	}
	switch {
	// It is due again or still: more times than a transaction fires, or they could not be read.
	case q.isDue(op.Record) && !(len(value) == 0 && q.mayRemoveDue(old)):
		return cmp.Or(q.due.Err, ErrNoRoom)

	case !q.changed.Admit(len(value)):
		return ErrNoRoom
	case bytes.Equal(value, old):
		result.Records, result.Unchanged = []Record{{op.Record, value}}, true
		return nil
	case len(value) > bounds.MaxValue:
		const text = "a %v of %d bytes: want at most %d"
		return badOp(text, q.kind, len(value), bounds.MaxValue)
	case !found && len(q.all) >= bounds.Most:
		return fmt.Errorf("%w: %d %vs", ErrMaxRecords, bounds.Most, q.kind)
	case grows > 0 && q.bytes+grows > bounds.MaxBytes:
		const text = "%w: %vs of more than %d bytes in all"
		return fmt.Errorf(text, ErrMaxRecords, q.kind, bounds.MaxBytes)
	}

	due, err := q.dueOf(value)
	if err == nil {
		q.write(op.Record, value, due)
		result.Records, result.NextDue = []Record{{op.Record, value}}, due
	}
	return err
}

// write writes a record that falls due at a time, or removes it if the value is empty.
func (q *queueRecords) write(name string, value []byte, due time.Time) {
	at, found := q.find(name)
	var before codec.Summary
	if found {
		before = q.all[at]
		q.all = slices.Delete(q.all, at, at+1)
	}
	after := codec.Summary{Name: name, Bytes: q.sizeOf(name, value), Due: due}
	if len(value) > 0 {
		q.all = slices.Insert(q.all, at, after)
	}

	q.ledger.SetRecord(q.kind, name, value, before.Due, due)
	q.bytes += after.Bytes - before.Bytes
	q.written[name], q.list = true, nil
}

// sizeOf is how many bytes a record counts with; one without a value is none.
func (q *queueRecords) sizeOf(name string, value []byte) int {
	if len(value) == 0 {
		return 0
	}
	return len(name) + len(value)
}

// dueOf returns when a new value of a record falls due; zero is never.
func (q *queueRecords) dueOf(value []byte) (time.Time, error) {
	if len(value) == 0 || q.kind == codec.ConsumerRecord {
		return codec.ConsumerExpires(value), nil
	}
	r := parseSchedule(value)
	if r == nil {
		return time.Time{}, badOp("a schedule that cannot be read: want what Record.Encode returns")
	}
	return r.Next, nil
}

// CheckConsumer returns an error that wraps ErrOp unless a consumer can have the name: 1 to
// MaxRecordName bytes of UTF-8, without dots, spaces, *, > and control characters.
func CheckConsumer(name string) error { return codec.CheckRecord(codec.ConsumerRecord, name) }

// listPage says which records an OpConsumers or OpSchedules returns.
type listPage struct {
	after string
	bytes int
}
