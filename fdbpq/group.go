package fdbpq

// queueOps is the operations on one queue, by family. Those that a queue has none of are nil or zero.
type queueOps struct {
	queueTxn
	expected int // how many operations of one family there will probably be

	pushes      queuePushes
	looks       queueLooks
	configs     *queueConfigs
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

func (t *txOps) addPush(q *queueOps, i int) {
	p := &q.pushes
	if p.indexes == nil {
		p.queueTxn, p.limits.queueTxn, p.all = &q.queueTxn, &q.queueTxn, &t.pushes
		t.pushes.queues = append(t.pushes.queues, p)
	}
	p.indexes = q.expect(p.indexes, i)
}

func (t *txOps) addPop(q *queueOps, i int) {
	if q.pops == nil {
		q.pops = &queuePops{queueTxn: &q.queueTxn, all: &t.pops, limits: popLimits{queueTxn: &q.queueTxn}}
		t.pops.queues = append(t.pops.queues, q.pops)
	}
	q.pops.indexes = q.expect(q.pops.indexes, i)
	q.pops.include(i)
	q.takes = true
}

func (t *txOps) addSettlement(q *queueOps, i int) {
	if q.settlements == nil {
		q.settlements = &queueSettlements{queueTxn: &q.queueTxn}
		t.settlements.queues = append(t.settlements.queues, q.settlements)
	}
	q.settlements.indexes = q.expect(q.settlements.indexes, i)
	q.takes = true
}

func (t *txOps) addPeek(q *queueOps, i int) {
	if q.peeks == nil {
		q.peeks = &queuePeeks{queueTxn: &q.queueTxn}
		t.peeks.queues = append(t.peeks.queues, q.peeks)
	}
	end := t.ops[i].End
	q.peeks.indexes[end] = append(q.peeks.indexes[end], i)
	q.looked, q.peeked = true, true
}

func (t *txOps) addLook(q *queueOps, i int) {
	if q.looks.queueTxn == nil {
		q.looks.queueTxn = &q.queueTxn
		t.looks.queues = append(t.looks.queues, &q.looks)
	}
	q.looks.add(i)
	q.looked = true
}

// addRare is for the families that few transactions have.
func (t *txOps) addRare(q *queueOps, i int) {
	switch t.ops[i].Kind {
	case OpSettings, OpConfigure:
		if q.configs == nil {
			q.configs = &queueConfigs{queueTxn: &q.queueTxn}
			t.configs.queues = append(t.configs.queues, q.configs)
		}
		q.configs.indexes = append(q.configs.indexes, i)
	case OpSweep:
		if q.sweeps == nil {
			q.sweeps = &queueSweeps{queueTxn: &q.queueTxn}
			t.sweeps.queues = append(t.sweeps.queues, q.sweeps)
		}
		q.sweeps.indexes = append(q.sweeps.indexes, i)
		q.looked = true
	case OpRestore:
		if q.restores == nil {
			q.restores = &queueRestores{queueTxn: &q.queueTxn}
			t.restores.queues = append(t.restores.queues, q.restores)
		}
		q.restores.indexes = append(q.restores.indexes, i)
	case OpRemove, OpMove, OpPurge, OpRedrive:
		if q.edits == nil {
			q.edits = newQueueEdits(&q.queueTxn)
			t.edits.queues = append(t.edits.queues, q.edits)
		}
		q.edits.indexes = append(q.edits.indexes, i)
		q.looked = true
		q.takes = true
	}
}
