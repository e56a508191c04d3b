package fdbpq

import (
	"iter"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// txn is a transaction as all families of operations see it.
type txn struct {
	tx       kv.Transaction // nil if it only reads
	snapshot kv.Reader      // reads without conflict
	now      time.Time      // zero if it only reads: nothing expires then
	asOf     time.Time      // the same, but never zero
	ops      []Op
	results  []Result          // by place in ops
	queues   []*queueTxn       // in order of first use
	popped   []state.TakenItem // in order of removal
	cache    *state.QueueCache
	secrets  state.GroupSecrets
	joins    state.Joins
	cached   *state.CachedSettings
	listed   []*codec.Layout // queues that pushes found in the list of queues, or added to it

	minCounts  state.CountsByQueue // the lowest that pushed items may get; nil is no bound
	nextCounts state.CountsByQueue // after the counts of the pushed items
	limited    bool                // a queue with pushes has a limit

	begun  time.Time    // when this process began it
	bounds searchBounds // of walks that pass over items, and searches

	moving   moveBudget
	returned state.ReadBudget
	changed  state.ReadBudget // for the records that changes return
	outgoing due.Outgoing

	kept       []keptJob // to be written
	valued     []keptJob // those of them that have values
	valueBytes int       // of these

	joiner   *Joiner // what joinerAt has returned last
	joinerOf int     // its index
}

// searchBounds bounds walks that pass over items of groups that are at a limit, and searches. A
// walk ends after some items, or maxPassedBytes. Then a search takes the first item of each group
// that may be served. Where some items are in no index of a group, or the counters of the groups do
// not fit into a page, the walk first goes on for more items.
type searchBounds struct {
	passed    int           // items that a walk passes over
	passedOn  int           // if it goes on
	groupRows int           // counters of groups that are read at once
	heads     int           // groups that a search remembers: those whose items come first
	time      time.Duration // since a transaction began, for its searches
}

// usualBounds are the bounds outside tests.
var usualBounds = searchBounds{
	passed: 64, passedOn: 20_000, groupRows: state.MostGroupRows, heads: 4096,
	time: 2 * time.Second,
}

// messageOf is the message of a push as it is stored.
func (t *txn) messageOf(i int, settings *Settings) Message {
	op := &t.ops[i]
	m := op.Message
	m.Expires = op.expires(t.now, settings)
	if joiner := i - op.MemberOf; joiner < i && joiner >= 0 { // its id is not known at first
		m.Joiner = t.joinerAt(joiner)
	}
	return m
}

// joinerAt is the joiner that the push at an index adds. All members that follow each other share
// it.
func (t *txn) joinerAt(i int) *Joiner {
	id := &t.results[i].Item.ID
	if t.joiner == nil || t.joinerOf != i || t.joiner.ID != *id {
		t.joiner, t.joinerOf = &Joiner{Queue: t.ops[i].Queue.Layout().Name(), ID: *id}, i
	}
	return t.joiner
}

// queueTxn is one queue of a transaction as all families of operations see it.
type queueTxn struct {
	*txn
	l      *codec.Layout
	ledger state.Ledger
	due    due.Due

	looked bool // an operation other than a pop depends on which items are ready
	takes  bool // there are pops, operations with tokens or edits
	pushed bool // this transaction has added a ready item
}

// moreExpired is the error of pops and peeks that meet an item that has expired, because not all
// that is due was handled.
func (q *queueTxn) moreExpired() error {
	if q.due.Err != nil && !q.due.Done { // the next transaction would do no more
		return q.due.Err
	}
	return state.ErrMoreExpired
}

// familyOps is the operations of one family on one queue.
type familyOps struct {
	*queueTxn
	indexes []int // into txn.ops
}

// note adds an operation.
func (o *familyOps) note(i int) { o.indexes = append(o.indexes, i) }

// failOps makes an error of operations the result of those at the given indexes. It returns an
// error of the store, which ends the whole transaction.
func (t *txn) failOps(err error, indexes ...int) error {
	if err == nil || kv.OfStore(err) {
		return err
	}
	t.failAll(indexes, err)
	return nil
}

// failAll makes an error the result of the operations at the given indexes.
func (t *txn) failAll(indexes []int, err error) {
	for _, i := range indexes {
		t.results[i].Err = err
	}
}

// tied reports whether an operation and the one before it are done together or not at all.
func tied(ops []Op, i int) bool {
	kind := ops[i].Kind
	return i > 0 && ops[i].Follows && ops[i-1].Kind == kind && kind.Has(ties)
}

// chains returns the operations at the given indexes, chain by chain: operations tied to each other
// are one chain, any other is a chain of its own.
func chains(ops []Op, indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := indexes; len(rest) > 0; {
			size := 1
			for size < len(rest) && rest[size] == rest[size-1]+1 && tied(ops, rest[size]) {
				size++
			}

			if !yield(rest[:size]) {
				return
			}
			rest = rest[size:]
		}
	}
}

// leadsPops reports whether an operation is the first of pops, or leases, that share MaxBytes.
func (t *txn) leadsPops(i int) bool {
	return !t.ops[i].Follows || i == 0 || t.ops[i-1].Kind != t.ops[i].Kind
}
