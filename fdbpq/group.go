package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/internal/codec"

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
		e := join(&q.edits, &t.edits, func() *queueEdits { return newQueueEdits(&q.queueTxn) })
		e.indexes = append(e.indexes, i)
		q.looked, q.takes = true, true
	}
}
