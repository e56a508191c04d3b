package fdbpq

import (
	"time"

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
	removed  Removed
	looked   bool // an operation looks: see queueTxn.looked
	limited  bool // a queue with pushes has a limit

	removedBy []QueueRemoved // of the queues of the Keyspace that something has left
}

// newTxOps returns the operations of a transaction, to be applied. results has an element for each
// operation, all zero.
func newTxOps(tx kv.Transaction, ops []Op, results []Result, now time.Time) *txOps {
	t := &txOps{txn: txn{
		tx: tx, snapshot: tx.Snapshot(), now: now, asOf: now, ops: ops, results: results,
		begun:    time.Now(),
		bounds:   usualBounds,
		moving:   moveRoom{maxBytes: MaxMessageSize},
		returned: state.ItemRoom{Most: MaxMessageSize},

		nextCounts: state.CountsByQueue{},
	}}
	t.group()
	return t
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

// apply runs the operations. Errors of single operations are in their results; the error is one of
// the store.
func (t *txOps) apply() error {
	t.moving.opBytes = bytesOf(t.ops)
	t.changed.Most = t.returned.Most / 2
	t.outgoing = due.NewOutgoing(t.tx, t.now, t.known)
	t.outgoing.Secrets = &t.secrets
	for _, q := range t.queues {
		q.ledger = state.NewLedger(t.tx, q.l, t.now, t.known)
		q.ledger.Secrets = &t.secrets
		if len(t.configs) == 0 {
			q.ledger.Cached = t.cached
		}
		q.due = due.Due{Ledger: &q.ledger, Outgoing: &t.outgoing, Page: t.duePage}
	}

	// Settings may limit the pushes, pause the queues and limit the leases.
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
		{len(t.configs) > 0, t.runConfigs},
		{len(t.records) > 0, t.runRecords},
		{t.looked || len(t.pushes) > 0, t.lookAndPush},
		{len(t.configs) > 0, t.writeSources},
		{len(t.restores) > 0, t.runRestores},
		{len(t.settlements) > 0, t.runSettlements},
		{len(t.edits) > 0, t.runEdits},
		{len(t.pops) > 0, t.runPops},
		{len(t.peeks) > 0, t.runPeeks},
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
	for _, q := range t.pushes {
		q.beginReads()
		q.looked = q.looked || q.unique() // these depend on which items are in the queue
	}
	t.beginSweeps()

	// In the queues that are looked at, due items come back first; the pops bring back the others.
	var looked []*due.Due
	for _, q := range t.queues {
		if q.looked {
			q.due.ReadIndex()
			looked = append(looked, &q.due)
		}
	}
	t.beginLens()

	return state.InOrder(
		func() error { return t.moving.bringBack(looked) },
		func() error { return state.Each(t.sweeps, (*queueSweeps).finish) },
		t.reread,
		t.readItems,
		t.beginLimits, // reads in the same round trip as the lens
		t.finishLens,
		func() error { return state.Each(t.pushes, (*queuePushes).run) },
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

	t.beginLens()
	t.rereadUniques()
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
		t.noteRemoved(&q.ledger)
	}
	t.outgoing.Each(t.noteRemoved)
	t.outgoing.AddNextCounts(t.nextCounts)
	return nil
}

// noteRemoved counts what has left a queue, or come into it.
func (t *txOps) noteRemoved(g *state.Ledger) {
	if g.Removed == (Removed{}) && g.Ran == nil {
		return
	}

	t.removed.Add(g.Removed)
	for _, name := range g.L.AppendName(nil) {
		removed := QueueRemoved{Queue: name, Removed: g.Removed, Ran: g.Ran}
		t.removedBy = append(t.removedBy, removed)
	}
}
