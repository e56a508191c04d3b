package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// txOps is the operations of one transaction, by family. Each family owns what it reads, and how it
// begins and finishes; txOps only runs them, in the order of apply. Each step of a family starts
// the reads of all queues before it waits for any, so many queues cost as many round trips as the
// slowest one alone.
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

	wrote   bool
	removed Removed
}

// newTxOps returns the operations of a transaction, to be applied. There are as many results, all
// zero.
func newTxOps(tx kv.Transaction, ops []Op, results []Result, now time.Time) *txOps {
	t := &txOps{txn: txn{
		tx: tx, snapshot: tx.Snapshot(), now: now, asOf: now, ops: ops, results: results,
		passes:   maxPassed,
		moving:   moveRoom{most: MaxMessageSize},
		returned: state.ItemRoom{Most: MaxMessageSize},
	}}
	t.looks.txn = &t.txn
	t.pushes.nextCounts = state.CountsByQueue{}
	t.group()
	return t
}

// apply runs the operations. Errors of single operations are in their results; the error is one of
// the store.
func (t *txOps) apply() error {
	t.moving.beside = bytesOf(t.ops)
	t.dead = due.NewBurials(t.tx, t.now, t.known)
	for _, q := range t.queues {
		q.ledger = state.NewLedger(t.tx, q.l, t.now, t.known)
		q.due = due.New(&q.ledger, &t.dead, t.duePage)
	}

	// They may limit the pushes, pause the queues and limit the leases.
	for _, q := range t.pushes.queues {
		q.ledger.BeginSettings()
	}
	for _, q := range t.pops {
		q.ledger.BeginSettings()
	}

	t.records.begin()

	return inOrder(
		t.configs.run,
		t.records.run,
		t.lookAndPush,
		func() error { return each(t.configs, (*queueConfigs).writeSource) },
		t.restores.run,
		t.settlements.run,
		t.edits.run,
		t.pops.run,
		t.peeks.run,
		t.flush,
	)
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// lookAndPush runs the sweeps, looks and pushes. They read before anything but what is due is
// written, so looks do not count what this transaction pushes or pops. What is due in queues where
// somebody looks comes back first; the pops see to the others.
func (t *txOps) lookAndPush() error {
	t.pushes.beginReads()
	t.sweeps.beginReads()
	var looked []*due.Due
	for _, q := range t.queues {
		if q.looked {
			q.due.ReadIndex()
			looked = append(looked, &q.due)
		}
	}
	t.looks.beginLens()

	return inOrder(
		func() error { return t.bringBack(looked) },
		t.sweeps.finish,
		t.reread,
		t.looks.readItems,
		t.pushes.beginLimits, // what they need takes the same round trip as the lens
		t.looks.finishLens,
		t.pushes.run,
	)
}

// reread writes the counters of what has come back, and starts to read again what that has changed.
func (t *txOps) reread() error {
	if err := t.dead.Flush(); err != nil {
		return err
	}

	// Lens and infos read the counters in this transaction.
	for _, q := range t.queues {
		if q.ledger.Wrote() {
			if err := q.ledger.Flush(); err != nil {
				return err
			}
		}
	}

	t.looks.rereadLens()
	t.pushes.rereadUniques()
	return nil
}

// flush writes the counters of all queues.
func (t *txOps) flush() error {
	// Dead letters first, because the pops may have taken some: see addToCounter in package state.
	if err := t.dead.Flush(); err != nil {
		return err
	}

	for _, q := range t.queues {
		if err := q.ledger.Flush(); err != nil {
			return err
		}
		t.wrote = t.wrote || q.ledger.Wrote()
		t.removed.Add(q.ledger.Removed())
	}
	t.removed.Dead += t.dead.Count()
	return nil
}

// onlyPushesAdd reports whether every count that came into use, or into use again, is below those
// in pushes.nextCounts, or below those that were known before.
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

// behind returns the queues of the Keyspace where more is due than this transaction has handled.
func (t *txOps) behind() (names []QueueName) {
	for _, q := range t.queues {
		if q.due.Behind() {
			names = q.l.AppendName(names)
		}
	}
	return names
}

// filled returns the queues of the Keyspace to which items came that no operation on them brings:
// those that came back, and dead letters.
func (t *txOps) filled() []QueueName {
	names := t.dead.Reached()
	for _, q := range t.queues {
		if q.due.Done {
			names = q.l.AppendName(names)
		}
	}
	return names
}

// Apply runs operations in the caller's transaction, and returns one Result for each, in the order
// of ops. now is the time by which leases and delays end and items expire. Errors of single
// operations are in their results; the error is one of the store.
//
// A Batcher does the same in transactions of its own, and finds out what became of them.
func Apply(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	return t.results, t.apply()
}

// queueOps is the operations on one queue, by family. Those that a queue has none of are nil or zero.
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
	peeks       *queuePeeks
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

		if err := op.check(l); err != nil {
			t.results[i].Err = err
			if op.Kind != OpPush && op.Kind != OpAck { // others may be tied to these
				continue
			}
		}
		switch op.Kind {
		case OpPush:
			t.addPush(q, i)
		case OpPop, OpLease:
			t.addPop(q, i)
		case OpAck, OpNak, OpExtend, OpTerm:
			t.addSettlement(q, i)
		case OpPeek:
			t.addPeek(q, i)
		case OpLen, OpInfo, OpGet, OpRank:
			t.addLook(q, i)
		default:
			t.addRare(q, i)
		}
	}
}

// expect appends to indexes, with room for as many as there will probably be.
func (q *queueOps) expect(indexes []int, i int) []int {
	if indexes == nil {
		indexes = make([]int, 0, q.expected)
	}
	return append(indexes, i)
}

// join returns the part of a family that is about one queue, and adds it to the family the first
// time.
func join[Q any, F ~[]*Q](part **Q, family *F, make func() *Q) *Q {
	if *part == nil {
		*part = make()
		*family = append(*family, *part)
	}
	return *part
}

func (t *txOps) addPush(q *queueOps, i int) {
	p := &q.pushes
	if p.indexes == nil {
		p.queueTxn, p.limits.queueTxn, p.all = &q.queueTxn, &q.queueTxn, &t.pushes
		t.pushes.queues = append(t.pushes.queues, p)
	}
	p.indexes = q.expect(p.indexes, i)
}

func (t *txOps) addPop(q *queueOps, i int) {
	p := join(&q.pops, &t.pops, func() *queuePops { return newQueuePops(&q.queueTxn) })
	p.indexes = q.expect(p.indexes, i)
	p.sides[t.ops[i].End].want++
	q.takes = true
}

func (t *txOps) addSettlement(q *queueOps, i int) {
	s := join(&q.settlements, &t.settlements, func() *queueSettlements { return &queueSettlements{queueTxn: &q.queueTxn} })
	s.indexes = q.expect(s.indexes, i)
	q.takes = true
}

func (t *txOps) addPeek(q *queueOps, i int) {
	p := join(&q.peeks, &t.peeks, func() *queuePeeks { return &queuePeeks{queueTxn: &q.queueTxn} })
	end := t.ops[i].End
	p.indexes[end] = append(p.indexes[end], i)
	q.looked, q.peeked = true, true
}

func (t *txOps) addLook(q *queueOps, i int) {
	if q.looks.queueTxn == nil {
		q.looks.queueTxn = &q.queueTxn
		t.looks.queues = append(t.looks.queues, &q.looks)
	}
	t.looks.add(&q.looks, i)
	q.looked = true
}

// addRare is for the families that few transactions have.
func (t *txOps) addRare(q *queueOps, i int) {
	switch t.ops[i].Kind {
	case OpSettings, OpConfigure, OpSetSource:
		c := join(&q.configs, &t.configs, func() *queueConfigs { return &queueConfigs{queueTxn: &q.queueTxn} })
		c.indexes = append(c.indexes, i)
	case OpConsumers, OpSetConsumer, OpSchedules, OpSetSchedule:
		kind, _ := t.ops[i].Kind.recordKind()
		part := &q.consumers
		if kind == codec.ScheduleRecord {
			part = &q.schedules
		}
		r := join(part, &t.records, func() *queueRecords { return &queueRecords{queueTxn: &q.queueTxn, kind: kind} })
		r.indexes = append(r.indexes, i)
	case OpSweep:
		s := join(&q.sweeps, &t.sweeps, func() *queueSweeps { return &queueSweeps{queueTxn: &q.queueTxn} })
		s.indexes = append(s.indexes, i)
		q.looked = true
	case OpRestore:
		r := join(&q.restores, &t.restores, func() *queueRestores { return &queueRestores{queueTxn: &q.queueTxn} })
		r.indexes = append(r.indexes, i)
	case OpRemove, OpMove, OpRelease, OpRedriveItem, OpPurge:
		e := join(&q.edits, &t.edits, func() *queueEdits {
			return &queueEdits{queueTxn: &q.queueTxn, reads: map[int]*editRead{}, stale: map[ID]bool{}}
		})
		e.indexes = append(e.indexes, i)
		q.looked, q.takes = true, true
	}
}
