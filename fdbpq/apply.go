package fdbpq

import (
	"time"

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

// learnCounts takes the counts after the operations of a transaction.
func (t *txOps) learnCounts() {
	if t.known.Any() {
		t.known.LearnCounts(t.pushes.nextCounts, t.onlyPushesAdd())
	}
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
