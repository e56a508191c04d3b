package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// txOps is the operations of one transaction, by family. Each family checks its operations, and
// owns what it reads, and how it begins and finishes; txOps only runs the families, in the order of
// apply. Each step of a family starts the reads of all queues before it waits for any, so the
// slowest queue alone decides how many round trips they take.
type txOps struct {
	txn
	duePage int // entries of the time index to handle in each queue; 0 means due.Page

	configs     []*queueConfigs
	records     []*queueRecords
	sweeps      []*queueSweeps
	looks       []*queueLooks
	infos       []*infos
	inspections []inspection
	pushes      []*queuePushes
	restores    []*queueRestores
	settlements []*queueSettlements
	edits       []*queueEdits
	pops        []*queuePops
	peeks       []*queuePeeks

	readFrom time.Time // a time before the first read; zero outside a Batcher
	attempt  int64     // counts the attempts of its batch
	wrote    bool
	effects  SideEffects
	looked   bool // an operation looks: see queueTxn.looked

	effectsBy []QueueSideEffects // of the queues of the Keyspace that something has left
}

// queueOps is the operations on one queue, by family. Families without any are nil.
type queueOps struct {
	queueTxn

	pushes      *queuePushes
	looks       *queueLooks
	infos       *infos
	configs     *queueConfigs
	consumers   *queueRecords
	schedules   *queueRecords
	sweeps      *queueSweeps
	restores    *queueRestores
	settlements *queueSettlements
	edits       *queueEdits
	pops        *queuePops
	peeks       [2]*queuePeeks // by End
}

// families is the table of all families.
var families = [...]struct {
	// check returns an error if the queue does not support an operation.
	check func(*Op, *codec.Layout) error
	// bytes is about how many bytes of a transaction an operation takes, apart from items that it
	// moves; nil is only what each operation takes.
	bytes func(*Op, *codec.Layout) int

	looks bool // see queueTxn.looked
	takes bool // see queueTxn.takes
}{
	noFamily:      {check: (*Op).checkNothing},
	pushFamily:    {check: (*Op).checkPush, bytes: (*Op).pushBytes},
	popFamily:     {check: (*Op).checkPop, bytes: (*Op).popBytes, takes: true},
	tokenFamily:   {check: (*Op).checkToken, bytes: (*Op).tokenBytes, takes: true},
	peekFamily:    {check: (*Op).checkPop, looks: true},
	lookFamily:    {check: (*Op).checkManaging, looks: true},
	configFamily:  {check: (*Op).checkChange, bytes: (*Op).configBytes},
	recordFamily:  {check: (*Op).checkChange, bytes: (*Op).recordBytes},
	sweepFamily:   {check: (*Op).checkManaging, looks: true},
	restoreFamily: {check: (*Op).checkRestore, bytes: (*Op).restoreBytes},
	editFamily:    {check: (*Op).checkManaging, looks: true, takes: true},
}

// errReadOnly is the error of an operation that writes in a transaction that only reads.
var errReadOnly = fmt.Errorf("%w: it can change the queue, and Read only reads", ErrOp)

// assign gives each family its operations. Operations that their queue does not support get their
// errors here.
func (t *txOps) assign() {
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
			t.add(q, i)
			q.looked, q.takes = q.looked || family.looks, q.takes || family.takes
			t.looked = t.looked || family.looks
		}
	}
}

// join returns the operations of a family on one queue; the first time it adds a copy of
// fresh.
func join[Q any](ops **Q, family *[]*Q, fresh Q) *Q {
	if *ops == nil {
		*ops = new(Q)
		**ops = fresh
		*family = append(*family, *ops)
	}
	return *ops
}

// add adds an operation to the others of its family on the same queue.
func (t *txOps) add(q *queueOps, i int) {
	op, of := &t.ops[i], familyOps{queueTxn: &q.queueTxn}
	switch kinds[op.Kind].family {
	case pushFamily:
		limits := pushLimits{queueTxn: &q.queueTxn}
		join(&q.pushes, &t.pushes, queuePushes{familyOps: of, limits: limits}).note(i)
	case popFamily:
		limits := popLimits{queueTxn: &q.queueTxn}
		p := join(&q.pops, &t.pops, queuePops{familyOps: of, limits: limits})
		p.note(i)
		p.sides[op.End].want++
	case tokenFamily:
		join(&q.settlements, &t.settlements, queueSettlements{familyOps: of}).note(i)
	case peekFamily:
		join(&q.peeks[op.End], &t.peeks, queuePeeks{familyOps: of, end: op.End}).note(i)
	case lookFamily:
		t.addLook(q, i)
	case configFamily:
		join(&q.configs, &t.configs, queueConfigs{familyOps: of}).note(i)
	case recordFamily:
		kind, records := op.Kind.recordKind(), &q.consumers
		if kind == codec.ScheduleRecord {
			records = &q.schedules
		}
		join(records, &t.records, queueRecords{familyOps: of, kind: kind}).note(i)
	case sweepFamily:
		join(&q.sweeps, &t.sweeps, queueSweeps{familyOps: of}).note(i)
	case restoreFamily:
		join(&q.restores, &t.restores, queueRestores{familyOps: of}).note(i)
	case editFamily:
		join(&q.edits, &t.edits, queueEdits{familyOps: of}).note(i)
	}
}

// addLook adds a look, each kind to its own.
func (t *txOps) addLook(q *queueOps, i int) {
	of := familyOps{queueTxn: &q.queueTxn}
	switch op := &t.ops[i]; op.Kind {
	case OpLen:
		join(&q.looks, &t.looks, queueLooks{familyOps: of}).note(i)
	case OpInfo:
		join(&q.infos, &t.infos, infos{familyOps: of}).add(i, op.MaxPriorities)
	case OpGet:
		t.inspections = append(t.inspections, &get{queueTxn: &q.queueTxn, index: i, id: op.ID})
	case OpRank:
		t.inspections = append(t.inspections,
			&rank{queueTxn: &q.queueTxn, index: i, id: op.ID, end: op.End})
	}
}

// bytesOf returns about how many bytes of a transaction the operations take, apart from items that
// they move.
func bytesOf(ops []Op) (n int) {
	for i := range ops {
		n += state.RestoreOverhead
		if bytes := families[kinds[ops[i].Kind].family].bytes; bytes != nil {
			n += bytes(&ops[i], ops[i].Queue.Layout())
		}
	}
	return n
}
