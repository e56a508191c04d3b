package fdbpq

import (
	"fmt"
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

// newTxOps returns the operations of a transaction, to be applied. results has an element for each
// operation, all zero.
func newTxOps(tx kv.Transaction, ops []Op, results []Result, now time.Time) *txOps {
	t := &txOps{txn: txn{
		tx: tx, snapshot: tx.Snapshot(), now: now, asOf: now, ops: ops, results: results,
		begun:    time.Now(),
		bounds:   usualBounds,
		moving:   moveBudget{maxBytes: MaxMessageSize},
		returned: state.ReadBudget{Most: MaxMessageSize},

		nextCounts: state.CountsByQueue{},
	}}
	t.assign()
	return t
}

// apply runs the operations. Errors of single operations are in their results; the error is one of
// the store.
func (t *txOps) apply() error {
	t.moving.opBytes, t.moving.most = bytesOf(t.ops), t.moving.maxBytes
	t.changed.Most = t.returned.Most / 2
	t.outgoing = due.Outgoing{
		Tx: t.tx, Now: t.now, Cache: t.cache, Secrets: &t.secrets, Joins: &t.joins,
	}
	for _, q := range t.queues {
		q.ledger = state.NewLedger(t.tx, q.l, t.now, t.cache)
		q.ledger.Secrets, q.ledger.Joins = &t.secrets, &t.joins
		if len(t.configs) == 0 {
			q.ledger.Cached = t.cached
		}
		q.due = due.Due{Ledger: &q.ledger, Outgoing: &t.outgoing, Page: t.duePage}
	}

	// Settings may limit the pushes, pause the queues and limit the leases.
	for _, q := range t.configs {
		q.ledger.BeginSettings()
	}
	for _, q := range t.pushes {
		q.ledger.BeginSettings()
	}
	for _, q := range t.pops {
		q.ledger.BeginSettings()
	}

	families := [...]struct {
		used bool
		run  func() error
	}{
		{len(t.configs) > 0, func() error {
			return state.Each(t.configs, (*queueConfigs).configure)
		}},
		{len(t.records) > 0, func() error { return t.runRecords(t.records) }},
		{t.looked || len(t.pushes) > 0, t.lookAndPush},
		{len(t.configs) > 0, func() error { return writeSources(t.configs) }},
		{len(t.restores) > 0, func() error { return runRestores(t.restores) }},
		{len(t.settlements) > 0, func() error { return t.runSettlements(t.settlements) }},
		{len(t.edits) > 0, func() error { return t.runEdits(t.edits) }},
		{len(t.pops) > 0, func() error { return t.runPops(t.pops) }},
		{len(t.peeks) > 0, func() error { return t.runPeeks(t.peeks) }},
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

// lookAndPush runs the sweeps, looks and pushes.
func (t *txOps) lookAndPush() error {
	for _, q := range t.pushes {
		q.beginReads()
		if q.unique() { // these depend on which items are in the queue
			q.looked, t.looked = true, true
		}
	}
	if t.looked {
		if err := t.look(); err != nil {
			return err
		}
	}

	return state.InOrder(
		func() error { return t.beginLimits(t.pushes) }, // in the same round trip as the lens
		func() error { return state.Each(t.looks, (*queueLooks).finish) },
		func() error { return state.Each(t.pushes, (*queuePushes).run) },
	)
}

// look brings back the due items of the queues that are looked at, and runs the sweeps and looks,
// but for the lens, which it only begins to read. Looks come before this transaction pushes or
// pops, so they do not count what it pushes or pops.
func (t *txOps) look() error {
	beginSweeps(t.sweeps)

	// In the queues that are looked at, due items come back first; the pops bring back the others.
	var looked []*due.Due
	for _, q := range t.queues {
		if q.looked {
			q.due.ReadIndex()
			looked = append(looked, &q.due)
		}
	}
	beginLens(t.looks)

	return state.InOrder(
		func() error { return t.moving.bringBack(looked) },
		func() error { return state.Each(t.sweeps, (*queueSweeps).finish) },
		t.reread,
		func() error { return t.readInfos(t.infos) },
		func() error { return t.inspect(t.inspections) },
	)
}

// reread writes the counters of the items that have come back, and starts to read again what that
// has changed.
func (t *txOps) reread() error {
	if err := t.outgoing.Flush(); err != nil {
		return err
	}

	// Lens and infos read the counters in this transaction.
	for _, q := range t.queues {
		if !q.looked {
			continue
		}
		if err := q.ledger.Flush(); err != nil {
			return err
		}
	}

	beginLens(t.looks)
	rereadUniques(t.pushes)
	return nil
}

// flush writes the counters of all queues.
func (t *txOps) flush() error {
	// Dead letters come first: the pops may have taken some that this transaction added, and
	// counters must be added to before they are subtracted from.
	if err := t.outgoing.Flush(); err != nil {
		return err
	}

	for _, q := range t.queues {
		if err := q.ledger.Flush(); err != nil {
			return err
		}
		t.wrote = t.wrote || q.ledger.Wrote()
		t.noteEffects(&q.ledger)
	}
	for _, to := range t.outgoing.Queues {
		t.noteEffects(&to.Ledger)
		to.AddNextCounts(t.nextCounts)
	}

	return t.flushJoins()
}

// flushJoins writes what has changed of joins. It comes last: by now all that ends members is
// known. Pops of this transaction have not seen it.
func (t *txOps) flushJoins() error {
	marks, err := t.joins.Flush(t.tx, t.now, t.cache.Any())
	for _, m := range marks {
		t.outgoing.Look(m.L, m.At)
		for i := range t.ops {
			if r := &t.results[i]; t.ops[i].Waits && t.ops[i].Queue.Layout().Prefix == m.L.Prefix {
				r.NextDue = codec.Earliest(r.NextDue, m.At)
			}
		}
	}
	return err
}

// noteEffects counts what has left a queue, or come into it.
func (t *txOps) noteEffects(g *state.Ledger) {
	if g.SideEffects == (SideEffects{}) && g.Ran == nil {
		return
	}

	t.effects.Add(g.SideEffects)
	for _, name := range g.L.AppendName(nil) {
		effects := QueueSideEffects{Queue: name, SideEffects: g.SideEffects, Ran: g.Ran}
		t.effectsBy = append(t.effectsBy, effects)
	}
}

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
