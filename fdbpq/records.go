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
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
)

// checkChange returns an error if the operation does not say what to change, or of which record.
func (op *Op) checkChange() error {
	kind := op.Kind.recordKind()
	switch {
	case op.Kind == OpConfigure && op.Configure == nil:
		return badOp("nothing says what to configure")
	case kind != "" && op.Change == nil:
		return badOp("nothing says what becomes of the %v", kind)
	case kind != "":
		return codec.CheckRecord(kind, op.Record)
	}
	return nil
}

// queueRecords is the operations on the records of one kind of one queue.
type queueRecords struct {
	*queueTxn
	kind    codec.RecordKind
	indexes []int // into txn.ops
	stored  kv.Future[[]kv.KeyValue]
	fired   bool // what was due has fired, as much as fits into the transaction
}

// records holds the operations on the records of all queues.
type records []*queueRecords

// atOnce is how many queues are read together. The records of one can be as long as several values.
func (r records) atOnce() int {
	values, longest := 1, 1
	for _, q := range r {
		values, longest = q.returned.AtOnce(), max(longest, q.kind.MaxBytes()/codec.ChunkSize+1)
	}
	return (values + longest - 1) / longest
}

// run reads the records, of a few queues at a time, and changes them.
func (r records) run() error {
	for some := range slices.Chunk(r, r.atOnce()) {
		for _, q := range some {
			q.beginRead()
		}
		if err := state.Each(some, (*queueRecords).finish); err != nil {
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

// finish runs the operations of a queue in their order. In a transaction that only reads, those
// that change something have failed already.
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
		sets := q.ops[i].Kind.Writes()
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

// fireRuns fires the schedules that the operations have made due. The results then have the records
// as they are after that.
func (q *queueRecords) fireRuns() error {
	var runs []int
	for _, i := range q.indexes {
		sets := q.ops[i].Kind.Writes()
		result := &q.results[i]
		if sets && result.Err == nil && q.isDue(result.Records[0].Value) {
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
		sets := q.ops[i].Kind.Writes()
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

// mayRemoveDue reports whether a schedule can be removed although it is due. Its remaining times
// would be lost, so it can only if its item cannot be pushed, or if it has schedule.All and has
// fired as often as a transaction can: such a schedule may have missed any number of times.
func (q *queueRecords) mayRemoveDue(old []byte) bool {
	return q.due.Err != nil || q.fired && parseSchedule(old).IfMissed == schedule.All
}

// fireDue handles what is due, as any look at the queue does, so that no change loses a time. It
// returns the records that there are then.
func (q *queueRecords) fireDue() ([]Record, error) {
	if err := q.moving.bringBack([]*due.Due{&q.due}); err != nil {
		return nil, err
	}
	q.fired = true
	q.due.Again() // fireRuns may have more to do
	q.beginRead()
	return q.parse()
}

func findRecord(all []Record, name string) (at int, found bool) {
	byName := func(r Record, name string) int { return strings.Compare(r.Name, name) }
	return slices.BinarySearchFunc(all, name, byName)
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

// set runs an OpSetConsumer or OpSetSchedule. It returns the records that there are then, in a new
// slice: other operations may have returned the old one.
func (q *queueRecords) set(op *Op, all []Record, result *Result) ([]Record, error) {
	at, found := findRecord(all, op.Record)
	var old []byte
	after := all[at:]
	if found {
		old, after = all[at].Value, all[at+1:]
	}

	value, err := op.Change(old, q.now)
	result.Records = []Record{{op.Record, value}}
	grows, most := len(value)-len(old), q.kind.MaxValue()
	switch {
	case err != nil:
		return all, err

	// It is due again or still: more times than a transaction fires, or they could not be read.
	case q.isDue(old) && !(len(value) == 0 && q.mayRemoveDue(old)):
		return all, cmp.Or(q.due.Err, ErrNoRoom)

	case bytes.Equal(value, old):
		return all, nil
	case len(value) > most:
		return all, badOp("a %v of %d bytes: want at most %d", q.kind, len(value), most)
	case !found && len(all) >= q.kind.Most():
		return all, fmt.Errorf("%w: %d %vs", ErrMaxRecords, q.kind.Most(), q.kind)
	case grows > 0 && sizeOfRecords(all)+len(op.Record)+grows > q.kind.MaxBytes():
		const text = "%w: %vs of more than %d bytes in all"
		return all, fmt.Errorf(text, ErrMaxRecords, q.kind, q.kind.MaxBytes())
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
		return next, badOp("a schedule that cannot be read: want what Record.Encode returns")
	}
	q.ledger.SetSchedule(name, parseSchedule(old), set)
	if set != nil {
		next = set.Next
	}
	return next, nil
}

// CheckConsumer returns an error that wraps ErrOp unless a consumer can have the name: 1 to
// MaxRecordName bytes of UTF-8, without dots, spaces, *, > and control characters.
func CheckConsumer(name string) error { return codec.CheckRecord(codec.ConsumerRecord, name) }
