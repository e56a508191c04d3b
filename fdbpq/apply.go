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
	t.moving.opBytes = bytesOf(t.ops)
	t.changed.Most = t.returned.Most / 2
	t.outgoing = due.NewOutgoing(t.tx, t.now, t.cache)
	t.outgoing.Secrets = &t.secrets
	for _, q := range t.queues {
		q.ledger = state.NewLedger(t.tx, q.l, t.now, t.cache)
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
		{len(t.configs) > 0, func() error { return runConfigs(t.configs) }},
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
	t.outgoing.Each(t.noteEffects)
	t.outgoing.AddNextCounts(t.nextCounts)
	return nil
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
