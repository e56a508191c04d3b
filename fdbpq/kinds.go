package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Trait is what operations of some kinds do, always or depending on the queue. See OpKind.Has.
type Trait uint16

// The traits.
const (
	// Writes can change the queue.
	Writes Trait = 1 << iota
	// TakesItem takes an item out of reach of others.
	TakesItem
	// ReturnsItem returns an item with its value.
	ReturnsItem
	// MovesItem reads or writes an item that the operation does not contain.
	MovesItem
	// FillsQueue makes an item ready, unless Op.Delay or Op.At holds it back.
	FillsQueue
	// FallsDue writes something that falls due at Result.NextDue, if that is not zero.
	FallsDue
	// EndsLease ends leases without waiting for their end.
	EndsLease
	// Grows makes the store larger: a full one refuses it. Dead letters do not count.
	Grows

	ties // an operation that follows one of its kind is done together with it or not at all
)

// Has reports whether operations of the kind have the trait.
func (k OpKind) Has(t Trait) bool { return kinds[k].traits&t != 0 }

// Writes reports whether the operation can change the queue.
func (k OpKind) Writes() bool { return k.Has(Writes) }

// recordKind returns the kind of records that an operation is about, "" if it is about none.
func (k OpKind) recordKind() codec.RecordKind { return kinds[k].record }

// kinds is the table of all kinds of operations. Numbers without a row are of noFamily.
var kinds = [1 << 8]struct {
	family family
	traits Trait
	record codec.RecordKind // see OpKind.recordKind
}{
	OpPush:  {family: pushFamily, traits: Writes | FillsQueue | FallsDue | Grows | ties},
	OpPop:   {family: popFamily, traits: Writes | TakesItem | ReturnsItem | MovesItem},
	OpPeek:  {family: peekFamily, traits: ReturnsItem | MovesItem},
	OpLen:   {family: lookFamily},
	OpLease: {family: popFamily, traits: Writes | TakesItem | ReturnsItem | MovesItem},
	OpAck:   {family: tokenFamily, traits: Writes | EndsLease | ties},
	OpNak: {
		family: tokenFamily, traits: Writes | MovesItem | FillsQueue | FallsDue | EndsLease,
	},
	OpExtend:      {family: tokenFamily, traits: Writes | MovesItem},
	OpInfo:        {family: lookFamily},
	OpRestore:     {family: restoreFamily, traits: Writes | FillsQueue},
	OpTerm:        {family: tokenFamily, traits: Writes | MovesItem | EndsLease},
	OpSettings:    {family: configFamily},
	OpConfigure:   {family: configFamily, traits: Writes | Grows},
	OpGet:         {family: lookFamily, traits: ReturnsItem | MovesItem},
	OpRank:        {family: lookFamily},
	OpRemove:      {family: editFamily, traits: Writes | EndsLease},
	OpMove:        {family: editFamily, traits: Writes | MovesItem | FillsQueue | Grows},
	OpPurge:       {family: editFamily, traits: Writes | EndsLease},
	OpRelease:     {family: editFamily, traits: Writes | MovesItem | FillsQueue | EndsLease},
	OpRedriveItem: {family: editFamily, traits: Writes | MovesItem | Grows},
	OpSweep:       {family: sweepFamily, traits: Writes},
	OpConsumers:   {family: recordFamily, record: codec.ConsumerRecord},
	OpSetConsumer: {family: recordFamily, traits: Writes | Grows, record: codec.ConsumerRecord},
	OpSchedules:   {family: recordFamily, record: codec.ScheduleRecord},
	OpSetSchedule: {
		family: recordFamily, traits: Writes | FallsDue | Grows, record: codec.ScheduleRecord,
	},
	OpSetSource: {family: configFamily, traits: Writes | Grows},
}

// family is the operations that run together in a transaction, in the order of txOps.apply.
type family uint8

const (
	noFamily family = iota
	pushFamily
	popFamily
	tokenFamily
	peekFamily
	lookFamily
	configFamily
	recordFamily
	sweepFamily
	restoreFamily
	editFamily
)

// families is the table of all families.
var families = [...]struct {
	// check returns an error if the queue does not support an operation.
	check func(*Op, *codec.Layout) error
	// add adds an operation to the family.
	add func(*txOps, *queueOps, int)
	// bytes is about how many bytes of a transaction an operation takes, apart from items that it
	// moves; nil is only what each operation takes.
	bytes func(*Op, *codec.Layout) int

	looks bool // see queueTxn.looked
	takes bool // see queueTxn.takes
}{
	noFamily:   {check: (*Op).checkNothing},
	pushFamily: {check: (*Op).checkPush, add: (*txOps).addPush, bytes: (*Op).pushBytes},
	popFamily: {
		check: (*Op).checkPop, add: (*txOps).addPop, bytes: (*Op).popBytes, takes: true,
	},
	tokenFamily: {
		check: (*Op).checkToken,
		add:   (*txOps).addSettlement,
		bytes: (*Op).tokenBytes,
		takes: true,
	},
	peekFamily:    {check: (*Op).checkPop, add: (*txOps).addPeek, looks: true},
	lookFamily:    {check: (*Op).checkManaging, add: (*txOps).addLook, looks: true},
	configFamily:  {check: (*Op).checkChange, add: (*txOps).addConfig, bytes: (*Op).configBytes},
	recordFamily:  {check: (*Op).checkChange, add: (*txOps).addRecord, bytes: (*Op).recordBytes},
	sweepFamily:   {check: (*Op).checkManaging, add: (*txOps).addSweep, looks: true},
	restoreFamily: {check: (*Op).checkRestore, add: (*txOps).addRestore, bytes: (*Op).restoreBytes},
	editFamily:    {check: (*Op).checkManaging, add: (*txOps).addEdit, looks: true, takes: true},
}

// checkNothing returns the error for an operation of no family.
func (op *Op) checkNothing(*codec.Layout) error { return badOp("no operation %d", op.Kind) }

// errReadOnly is the error of an operation that writes in a transaction that only reads.
var errReadOnly = fmt.Errorf("%w: it can change the queue, and Read only reads", ErrOp)

// group gives each family its operations. Operations that their queue does not support get their
// errors here.
func (t *txOps) group() {
	byName := make(map[string]*queueOps, 1)
	for i := range t.ops {
		op := &t.ops[i]
		if t.tx == nil && op.Kind.Writes() {
			t.results[i].Err = errReadOnly
			continue
		}

		l := op.Queue.Layout()
		q := byName[l.Prefix]
		if q == nil {
			q = &queueOps{queueTxn: queueTxn{txn: &t.txn, l: l}}
			byName[l.Prefix] = q
			t.queues = append(t.queues, &q.queueTxn)
		}

		// One that fails may be tied to others, which fail with it.
		family := &families[kinds[op.Kind].family]
		err := family.check(op, l)
		if t.results[i].Err = err; err == nil || op.Kind.Has(ties) {
			family.add(t, q, i)
			q.looked, q.takes = q.looked || family.looks, q.takes || family.takes
			t.looked = t.looked || family.looks
		}
	}
}

func (t *txOps) addPush(q *queueOps, i int) {
	limits := pushLimits{queueTxn: &q.queueTxn}
	join(&q.pushes, &t.pushes, queuePushes{part: q.part(), limits: limits}).note(i)
}

func (t *txOps) addPop(q *queueOps, i int) {
	limits := popLimits{queueTxn: &q.queueTxn}
	p := join(&q.pops, &t.pops, queuePops{part: q.part(), limits: limits})
	p.note(i)
	p.sides[t.ops[i].End].want++
}

func (t *txOps) addSettlement(q *queueOps, i int) {
	join(&q.settlements, &t.settlements, queueSettlements{part: q.part()}).note(i)
}

func (t *txOps) addPeek(q *queueOps, i int) {
	end := t.ops[i].End
	join(&q.peeks[end], &t.peeks, queuePeeks{part: q.part(), end: end}).note(i)
}

func (t *txOps) addLook(q *queueOps, i int) {
	switch op := &t.ops[i]; op.Kind {
	case OpLen:
		join(&q.looks, &t.looks, queueLooks{part: q.part()}).note(i)
	case OpInfo:
		join(&q.infos, &t.infos, infos{part: q.part()}).add(i, op.MaxPriorities)
	case OpGet:
		t.inspections = append(t.inspections, &get{queueTxn: &q.queueTxn, index: i, id: op.ID})
	case OpRank:
		t.inspections = append(t.inspections,
			&rank{queueTxn: &q.queueTxn, index: i, id: op.ID, end: op.End})
	}
}

func (t *txOps) addConfig(q *queueOps, i int) {
	join(&q.configs, &t.configs, queueConfigs{part: q.part()}).note(i)
}

func (t *txOps) addRecord(q *queueOps, i int) {
	kind, records := t.ops[i].Kind.recordKind(), &q.consumers
	if kind == codec.ScheduleRecord {
		records = &q.schedules
	}
	join(records, &t.records, queueRecords{part: q.part(), kind: kind}).note(i)
}

func (t *txOps) addSweep(q *queueOps, i int) {
	join(&q.sweeps, &t.sweeps, queueSweeps{part: q.part()}).note(i)
}

func (t *txOps) addRestore(q *queueOps, i int) {
	join(&q.restores, &t.restores, queueRestores{part: q.part()}).note(i)
}

func (t *txOps) addEdit(q *queueOps, i int) {
	join(&q.edits, &t.edits, queueEdits{part: q.part()}).note(i)
}

// part is the operations of one family on one queue.
type part struct {
	*queueTxn
	indexes []int // into txn.ops
}

func (q *queueOps) part() part { return part{queueTxn: &q.queueTxn} }

// note adds an operation.
func (p *part) note(i int) { p.indexes = append(p.indexes, i) }

// join returns the part of a family that is about one queue; the first time it adds a copy of
// fresh.
func join[Q any](part **Q, family *[]*Q, fresh Q) *Q {
	if *part == nil {
		*part = new(Q)
		**part = fresh
		*family = append(*family, *part)
	}
	return *part
}
