package fdbpq

import (
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Apply runs operations in the caller's transaction, and returns one Result for each, in the order
// of ops. now is the time by which leases and delays end and items expire. Errors of single
// operations are in their results; the error that Apply returns is one of the store.
//
// A Batcher does the same in transactions of its own, and finds out what became of them.
func Apply(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	return t.results, t.apply()
}

// txOps is the operations of one transaction, by family. Each family checks its operations, and
// owns what it reads, and how it begins and finishes; txOps only runs the families, in the order of
// apply. Each step of a family starts the reads of all queues before it waits for any, so many
// queues cost as many round trips as the slowest one alone.
type txOps struct {
	txn
	duePage int // entries of the time index to handle in each queue; 0 means due.Page

	configs     configs
	records     records
	sweeps      sweeps
	looks       looks
	pushes      pushes
	restores    restores
	settlements settlements
	edits       edits
	pops        pops
	peeks       peeks

	readFrom time.Time // a time before the first read; zero outside a Batcher
	wrote    bool
	removed  Removed
}

// newTxOps returns the operations of a transaction, to be applied. results has an element for each
// operation, all zero.
func newTxOps(tx kv.Transaction, ops []Op, results []Result, now time.Time) *txOps {
	t := &txOps{txn: txn{
		tx: tx, snapshot: tx.Snapshot(), now: now, asOf: now, ops: ops, results: results,
		passes:   maxPassed,
		moving:   moveRoom{maxBytes: MaxMessageSize},
		returned: state.ItemRoom{Most: MaxMessageSize},
	}}
	t.looks.txn = &t.txn
	t.pushes.nextCounts = state.CountsByQueue{}
	t.group()
	return t
}

// queueOps is the operations on one queue, by family. Families without any are nil or zero.
type queueOps struct {
	queueTxn
	expected int // how many operations of one family there will probably be

	pushes      queuePushes
	looks       queueLooks
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

// group gives each family its operations. Operations that their queue does not support get their
// errors here.
func (t *txOps) group() {
	byName := make(map[string]*queueOps, 1)
	for i := range t.ops {
		op := &t.ops[i]
		l := op.Queue.Layout()
		q := byName[l.Prefix]
		if q == nil {
			q = &queueOps{queueTxn: queueTxn{txn: &t.txn, l: l}}
			byName[l.Prefix] = q
			t.queues = append(t.queues, &q.queueTxn)
			q.expected = 1 + (len(t.ops)-i)/len(t.queues)
		}

		err := op.check(l)
		t.results[i].Err = err
		if err == nil || op.Kind == OpPush || op.Kind == OpAck { // others may be tied to these two
			t.add(q, i)
		}
	}
}

// check returns an error if the queue does not support the operation.
func (op *Op) check(l *codec.Layout) error {
	switch op.Kind {
	case OpPush:
		return op.checkPush()
	case OpPop, OpLease, OpPeek:
		return op.checkPop(l)
	case OpAck, OpNak, OpExtend, OpTerm:
		return op.checkToken()
	case OpGet, OpRank, OpRemove, OpMove, OpRelease, OpRedriveItem, OpPurge:
		return op.checkManaging(l)
	case OpRestore:
		return op.checkRestore(l)
	case OpConfigure, OpSetSource, OpSetConsumer, OpSetSchedule:
		return op.checkChange()
	case OpLen, OpInfo, OpSettings, OpConsumers, OpSchedules, OpSweep:
		return nil
	default:
		return badOp("no operation %d", op.Kind)
	}
}

// add gives an operation to its family.
func (t *txOps) add(q *queueOps, i int) {
	switch op := &t.ops[i]; op.Kind {
	case OpPush:
		p := &q.pushes
		if p.indexes == nil {
			p.queueTxn, p.limits.queueTxn, p.all = &q.queueTxn, &q.queueTxn, &t.pushes
			t.pushes.queues = append(t.pushes.queues, p)
		}
		p.indexes = q.expect(p.indexes, i)

	case OpPop, OpLease:
		if q.pops == nil {
			q.pops = newQueuePops(&q.queueTxn)
			t.pops = append(t.pops, q.pops)
		}
		q.pops.indexes = q.expect(q.pops.indexes, i)
		q.pops.sides[op.End].want++
		q.takes = true

	case OpAck, OpNak, OpExtend, OpTerm:
		s := join(&q.settlements, &t.settlements, queueSettlements{queueTxn: &q.queueTxn})
		s.indexes = q.expect(s.indexes, i)
		q.takes = true

	case OpPeek:
		fresh := queuePeeks{queueTxn: &q.queueTxn, end: op.End}
		p := join(&q.peeks[op.End], &t.peeks, fresh)
		p.indexes = append(p.indexes, i)
		q.looked = true

	case OpLen, OpInfo, OpGet, OpRank:
		if q.looks.queueTxn == nil {
			q.looks.queueTxn = &q.queueTxn
			t.looks.queues = append(t.looks.queues, &q.looks)
		}
		t.looks.add(&q.looks, i)
		q.looked = true

	default:
		t.addRare(q, i)
	}
}

// addRare is add for the families that few transactions have.
func (t *txOps) addRare(q *queueOps, i int) {
	switch op := &t.ops[i]; op.Kind {
	case OpSettings, OpConfigure, OpSetSource:
		c := join(&q.configs, &t.configs, queueConfigs{queueTxn: &q.queueTxn})
		c.indexes = append(c.indexes, i)

	case OpConsumers, OpSetConsumer, OpSchedules, OpSetSchedule:
		kind := op.Kind.recordKind()
		part := &q.consumers
		if kind == codec.ScheduleRecord {
			part = &q.schedules
		}
		r := join(part, &t.records, queueRecords{queueTxn: &q.queueTxn, kind: kind})
		r.indexes = append(r.indexes, i)

	case OpSweep:
		s := join(&q.sweeps, &t.sweeps, queueSweeps{queueTxn: &q.queueTxn})
		s.indexes = append(s.indexes, i)
		q.looked = true

	case OpRestore:
		r := join(&q.restores, &t.restores, queueRestores{queueTxn: &q.queueTxn})
		r.indexes = append(r.indexes, i)

	case OpRemove, OpMove, OpRelease, OpRedriveItem, OpPurge:
		e := join(&q.edits, &t.edits, queueEdits{queueTxn: &q.queueTxn})
		e.indexes = append(e.indexes, i)
		q.looked, q.takes = true, true
	}
}

// join returns the part of a family that is about one queue; the first time it adds a copy of
// fresh.
func join[Q any, F ~[]*Q](part **Q, family *F, fresh Q) *Q {
	if *part == nil {
		*part = new(Q)
		**part = fresh
		*family = append(*family, *part)
	}
	return *part
}

// expect appends to indexes, with room for as many as there will probably be.
func (q *queueOps) expect(indexes []int, i int) []int {
	if indexes == nil {
		indexes = make([]int, 0, q.expected)
	}
	return append(indexes, i)
}

// apply runs the operations. Errors of single operations are in their results; the error is one of
// the store.
func (t *txOps) apply() error {
	t.moving.opBytes = bytesOf(t.ops)
	t.dead = due.NewBurials(t.tx, t.now, t.known)
	for _, q := range t.queues {
		q.ledger = state.NewLedger(t.tx, q.l, t.now, t.known)
		q.due = due.Due{Ledger: &q.ledger, Dead: &t.dead, Page: t.duePage}
	}

	// Settings may limit the pushes, pause the queues and limit the leases.
	for _, q := range t.pushes.queues {
		q.ledger.BeginSettings()
	}
	for _, q := range t.pops {
		q.ledger.BeginSettings()
	}

	looked := slices.ContainsFunc(t.queues, func(q *queueTxn) bool { return q.looked })
	families := [...]struct {
		used bool
		run  func() error
	}{
		{len(t.configs) > 0, t.configs.run},
		{len(t.records) > 0, t.records.run},
		{looked || len(t.pushes.queues) > 0, t.lookAndPush},
		{len(t.configs) > 0, t.configs.writeSources},
		{len(t.restores) > 0, t.restores.run},
		{len(t.settlements) > 0, t.settlements.run},
		{len(t.edits) > 0, t.edits.run},
		{len(t.pops) > 0, t.pops.run},
		{len(t.peeks) > 0, t.peeks.run},
	}
	for _, family := range families {
		if !family.used {
			continue
		}
		if err := family.run(); err != nil {
			return err
		}
	}
	return t.flush()
}

// lookAndPush runs the sweeps, looks and pushes. Looks read after due items have come back, and
// before this transaction pushes or pops, so they do not count what it pushes or pops.
func (t *txOps) lookAndPush() error {
	t.pushes.beginReads()
	t.sweeps.beginReads()

	// In the queues that are looked at, due items come back first; the pops bring back the others.
	var looked []*due.Due
	for _, q := range t.queues {
		if q.looked {
			q.due.ReadIndex()
			looked = append(looked, &q.due)
		}
	}
	t.looks.beginLens()

	return state.InOrder(
		func() error { return t.moving.bringBack(looked) },
		t.sweeps.finish,
		t.reread,
		t.looks.readItems,
		t.pushes.beginLimits, // reads in the same round trip as the lens
		t.looks.finishLens,
		t.pushes.run,
	)
}

// reread writes the counters of the items that have come back, and starts to read again what that
// has changed.
func (t *txOps) reread() error {
	if err := t.dead.Flush(); err != nil {
		return err
	}

	// Lens and infos read the counters in this transaction.
	flush := func(q *queueTxn) error { return q.ledger.Flush() }
	if err := state.Each(t.queues, flush); err != nil {
		return err
	}

	t.looks.beginLens()
	t.pushes.rereadUniques()
	return nil
}

// flush writes the counters of all queues.
func (t *txOps) flush() error {
	// Dead letters come first: the pops may have taken some that this transaction added, and
	// counters must be added to before they are subtracted from.
	if err := t.dead.Flush(); err != nil {
		return err
	}

	for _, q := range t.queues {
		if err := q.ledger.Flush(); err != nil {
			return err
		}
		t.wrote = t.wrote || q.ledger.Wrote()
		t.removed.Add(q.ledger.Removed)
	}
	t.removed.Dead += t.dead.Count()
	return nil
}

// onlyPushesAdd reports whether nothing but pushes can have raised the next count of a priority.
func (t *txOps) onlyPushesAdd() bool {
	for i := range t.ops {
		switch t.ops[i].Kind {
		case OpRestore, OpMove, OpRedriveItem:
			return false
		}
	}
	for _, q := range t.queues {
		if q.ledger.Strays() {
			return false
		}
	}
	return !t.dead.Any()
}

// filledAndBehind returns two lists of queues of the Keyspace. Those in filled got items that no
// operation on them adds: items that came back, or dead letters. In those in behind, more is due
// than this transaction has handled.
func (t *txOps) filledAndBehind() (filled, behind []QueueName) {
	filled = t.dead.Reached()
	for _, q := range t.queues {
		if q.due.Done {
			filled = q.l.AppendName(filled)
		}
		if q.due.Behind() {
			behind = q.l.AppendName(behind)
		}
	}
	return filled, behind
}
