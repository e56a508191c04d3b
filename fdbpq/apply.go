package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// txOps is the operations of one transaction. They run in four stages: lens and
// pushes, operations with tokens, pops and leases, peeks. Each step of a stage starts the reads of all queues before it
// waits for any, so many queues cost as many round trips as the slowest one alone.
type txOps struct {
	tx      kv.Transaction
	now     time.Time
	ops     []Op
	results []Result
	queues  []*queueOps // in order of first use
	popped  []takenItem // in order of removal
	wrote   bool
	listed  []*layout // queues that are in the list of queues, or are now added to it

	room  int // bytes that leases may still move, see fits
	moves int // of leases so far

	minCounts  countsByQueue // the lowest counts that pushed items may get
	nextCounts countsByQueue // the counts after those of the pushed items
}

// countsByQueue holds a count for each priority of each queue, by the queue's prefix.
type countsByQueue map[string]map[int64]int64

// queueOps is the operations on one queue, and what is read for them.
type queueOps struct {
	l      *layout
	ledger ledger

	lens, pushes []int // indexes into txOps.ops
	due          due
	settlements  *settlements // nil without operations with tokens
	pops         *pops        // nil without pops and leases
	peeks        *peeks       // nil without peeks

	length    kv.Future[[]byte]   // for lens
	listEntry kv.Future[[]byte]   // for pushes; nil if known to be there
	last      map[int64]lastItems // for pushes, by priority
	pushed    map[ID]struct{}
}

// apply runs ops in tx. Pushed items get counts of at least minCounts. The error is one
// of the store; errors of single operations are in their results.
func apply(tx kv.Transaction, ops []Op, now time.Time, minCounts countsByQueue) (*txOps, error) {
	t := &txOps{tx: tx, now: now, ops: ops, results: make([]Result, len(ops)), minCounts: minCounts, nextCounts: countsByQueue{}}
	t.queues = group(ops, t.results)
	for _, q := range t.queues {
		q.ledger = ledger{tx: tx, l: q.l, now: now}
		q.due.ledger = &q.ledger
	}
	for _, stage := range []func() error{t.lenAndPush, t.settle, t.pop, t.peek} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	for _, q := range t.queues {
		q.ledger.flush()
		t.wrote = t.wrote || q.ledger.wrote
	}
	return t, nil
}

// group sorts ops by queue. Operations that their queue does not support get their
// errors here.
func group(ops []Op, results []Result) []*queueOps {
	var queues []*queueOps
	byName := make(map[string]*queueOps, 1)
	for i := range ops {
		op := &ops[i]
		l := op.Queue.layout()
		q := byName[l.prefix]
		if q == nil {
			q = &queueOps{l: l}
			byName[l.prefix] = q
			queues = append(queues, q)
		}
		if err := op.check(l); err != nil {
			results[i].Err = err
			continue
		}
		switch op.Kind {
		case OpLen:
			q.lens = append(q.lens, i)
		case OpPush:
			q.pushes = append(q.pushes, i)
		case OpAck, OpNak, OpExtend:
			if q.settlements == nil {
				q.settlements = &settlements{}
			}
			q.settlements.indexes = append(q.settlements.indexes, i)
		case OpPop, OpLease:
			if q.pops == nil {
				q.pops = &pops{}
			}
			q.pops.indexes[op.End] = append(q.pops.indexes[op.End], i)
		case OpPeek:
			if q.peeks == nil {
				q.peeks = &peeks{}
			}
			q.peeks.indexes[op.End] = append(q.peeks.indexes[op.End], i)
		}
	}
	return queues
}

// behind returns the queues where more was due than this transaction brought back.
func (t *txOps) behind() (list []*layout) {
	for _, q := range t.queues {
		if q.due.behind() {
			list = append(list, q.l)
		}
	}
	return list
}

// lenAndPush runs the lens and the pushes. Both read without conflict, and before
// anything but what is due is written, so lens do not count what this transaction pushes or
// pops. What is due in queues that are looked at comes back first; the pops see to the
// others.
func (t *txOps) lenAndPush() error {
	snapshot := t.tx.Snapshot()
	var looked []*due
	for _, q := range t.queues {
		if len(q.lens) > 0 || q.peeks != nil {
			q.due.begin()
			looked = append(looked, &q.due)
		}
		q.beginLens(snapshot)
		t.beginPush(q, snapshot)
	}
	if err := bringBack(looked); err != nil {
		return err
	}
	for _, q := range t.queues {
		if q.due.returned {
			q.ledger.flush() // for the lens
			q.beginLens(snapshot)
		}
	}
	for _, q := range t.queues {
		if err := q.finishLens(t.results); err != nil {
			return err
		}
		if err := t.push(q); err != nil {
			return err
		}
	}
	return nil
}

// failOps makes an error about one queue's data the result of the operations at the
// given indexes. It returns any other error, which ends the whole transaction.
func failOps(results []Result, indexes []int, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	for _, i := range indexes {
		results[i].Err = err
	}
	return nil
}

// single is the result of a single operation.
type single struct {
	result Result
	err    error
}

// applyOne runs a single operation in the caller's transaction.
func applyOne(tx kv.Transaction, op Op) single {
	t, err := apply(tx, []Op{op}, time.Now(), nil)
	if err != nil {
		return single{err: err}
	}
	return single{t.results[0], t.results[0].Err}
}

// readOne runs a single peek or len.
func readOne(r kv.Reader, op Op) single {
	results, err := Read(r, []Op{op})
	if err != nil {
		return single{err: err}
	}
	return single{results[0], results[0].Err}
}

func (o single) id() (ID, error)     { return o.result.Item.ID, o.err }
func (o single) item() (Item, error) { return o.result.Item, o.err }
func (o single) lease() (Item, Lease, error) {
	return o.result.Item, o.result.Lease, o.err
}
func (o single) length() (int64, error) { return o.result.Len, o.err }
