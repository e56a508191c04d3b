package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// batch is operations on their way through one transaction. Its stages are
// lens and pushes, pops, peeks. Each step of a stage first begins the reads of all
// queues and then waits for them, so a batch over many queues costs as many round
// trips to the store as the slowest of them alone.
type batch struct {
	tx      kv.Transaction
	now     time.Time
	ops     []Op
	results []Result
	queues  []*queueOps // in order of first use
	popped  []inQueue   // in the order of removal
	wrote   bool
	listed  []*layout // queues that the batch saw or put in the list of queues

	atLeast counts // of pushed items
	next    counts // that follow those of the pushed items
}

// counts is counts of items by the prefix of the queue and priority.
type counts map[string]map[int64]int64

// queueOps is the part of a batch that is for one queue, and what is read for it.
type queueOps struct {
	l      *layout
	ledger ledger

	lens, pushes []int  // places in batch.ops
	pops         *pops  // nil if there are none
	peeks        *peeks // likewise

	length kv.Future[[]byte]                  // for lens
	entry  kv.Future[[]byte]                  // for pushes: in the list of queues; nil if it need not be read
	last   map[int64]kv.Future[[]kv.KeyValue] // for pushes: last item, by priority
	pushed map[ID]struct{}
}

// apply runs ops in tx and returns the batch, with one result for each. Items
// get counts from atLeast on. The error is one of the store.
func apply(tx kv.Transaction, ops []Op, now time.Time, atLeast counts) (*batch, error) {
	b := &batch{tx: tx, now: now, ops: ops, results: make([]Result, len(ops)), atLeast: atLeast, next: counts{}}
	b.queues = group(ops, b.results)
	for _, q := range b.queues {
		q.ledger = ledger{tx: tx, l: q.l, now: now}
	}
	for _, stage := range []func() error{b.lenAndPush, b.pop, b.peek} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	for _, q := range b.queues {
		q.ledger.flush()
		b.wrote = b.wrote || q.ledger.wrote
	}
	return b, nil
}

// group sorts ops by queue. An operation that its queue does not have gets its
// error here.
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
		case OpPop:
			if q.pops == nil {
				q.pops = &pops{due: due{ledger: &q.ledger}}
			}
			q.pops.places[op.End] = append(q.pops.places[op.End], i)
		case OpPeek:
			if q.peeks == nil {
				q.peeks = &peeks{}
			}
			q.peeks.places[op.End] = append(q.peeks.places[op.End], i)
		}
	}
	return queues
}

// lenAndPush serves the lens and the pushes. Both read without conflict, and
// before anything is written: the lens are the numbers of items before the batch.
func (b *batch) lenAndPush() error {
	snapshot := b.tx.Snapshot()
	for _, q := range b.queues {
		q.beginLens(snapshot)
		b.beginPush(q, snapshot)
	}
	for _, q := range b.queues {
		if err := q.finishLens(b.results); err != nil {
			return err
		}
		if err := b.push(q); err != nil {
			return err
		}
	}
	return nil
}

// failed gives an error that is about one queue's data to the operations at
// the given places. Any other error is the whole batch's and returned.
func failed(results []Result, places []int, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	for _, i := range places {
		results[i].Err = err
	}
	return nil
}

// outcome is the result of a single operation.
type outcome struct {
	result Result
	err    error
}

// one runs a single operation in the caller's transaction.
func one(tx kv.Transaction, op Op) outcome {
	b, err := apply(tx, []Op{op}, time.Now(), nil)
	if err != nil {
		return outcome{err: err}
	}
	return outcome{b.results[0], b.results[0].Err}
}

// oneRead runs a single peek or len.
func oneRead(r kv.Reader, op Op) outcome {
	results, err := Read(r, []Op{op})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{results[0], results[0].Err}
}

func (o outcome) id() (ID, error)        { return o.result.Item.ID, o.err }
func (o outcome) item() (Item, error)    { return o.result.Item, o.err }
func (o outcome) length() (int64, error) { return o.result.Len, o.err }
