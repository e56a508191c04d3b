package fdbpq

import (
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// txOps is the operations of one transaction. They run in seven stages: settings; lens,
// pushes and other reads but peeks; restores; operations with tokens; removes, moves, purges and
// redrives; pops and leases; peeks. Each step of a stage starts the
// reads of all queues before it waits for any, so many queues cost as many round trips as
// the slowest one alone.
type txOps struct {
	tx      kv.Transaction
	now     time.Time
	ops     []Op
	results []Result
	queues  []*queueOps       // in order of first use
	popped  []state.TakenItem // in order of removal
	wrote   bool
	listed  []*codec.Layout // queues that are in the list of queues, or are now added to it

	duePage int  // for due.page
	allRoom int  // bytes that leases may move if nothing else is in the transaction
	room    int  // those that they may still move, see fits
	moves   int  // of leases so far
	full    bool // a burial has found no room

	returned state.ItemRoom

	stepped      state.Stepped // expired items that pops have met
	expiredBytes int           // that removing expired items takes, about
	opsBytes     int           // of allRoom, that the operations take which bring what they write
	removed      Removed
	dead         due.Burials
	sweeps       int // queues that it sweeps

	blind   bool // see kv.BeginOptions
	limited bool // it pushes to a queue with a limit

	known      *state.Known        // what need not be read; nil is nothing
	minCounts  state.CountsByQueue // the lowest counts that pushed items may get; nil is none
	nextCounts state.CountsByQueue // the counts after those of the pushed items
}

// queueOps is the operations on one queue, and what is read for them.
type queueOps struct {
	l      *codec.Layout
	ledger state.Ledger

	room                  int    // operations of one kind to expect
	lens, pushes, configs []int  // indexes into txOps.ops
	infos                 *infos // nil without infos
	due                   due.Due
	sweeps                *dueSweep    // nil without OpSweeps
	restores              *restores    // nil without restores
	settlements           *settlements // nil without operations with tokens
	gets                  []*get
	ranks                 []*rank
	edits                 *edits // nil without removes, moves, purges and redrives
	pops                  *pops  // nil without pops and leases
	peeks                 *peeks // nil without peeks

	length    kv.Future[[]byte]         // for lens
	listEntry kv.Future[[]byte]         // for pushes; nil if known to be there
	last      map[int64]state.LastItems // for pushes, by priority; what is not in next
	next      map[int64]int64           // for pushes, by priority
	dedup     *state.Dedup              // for pushes; nil unless they have message ids or unique keys
	refused   map[int]bool              // groups of pushes, by their first, that are too large whatever the settings are
	pushed    map[ID]struct{}           // for peeks
	limits    pushLimits
}

// newTxOps returns the operations of a transaction, to be applied.
func newTxOps(tx kv.Transaction, ops []Op, now time.Time) *txOps {
	return &txOps{
		tx: tx, now: now, ops: ops, results: make([]Result, len(ops)), nextCounts: state.CountsByQueue{}, dead: due.Burials{Tx: tx, Now: now},
		allRoom: MaxMessageSize, returned: state.ItemRoom{Most: MaxMessageSize},
	}
}

// useKnown has the operations leave out reads of what is known.
func (t *txOps) useKnown(k *state.Known) { t.known, t.dead.Known = k, k }

// apply runs the operations. Errors of single operations are in their results; the error is one of the
// store.
func (t *txOps) apply() error {
	t.queues = group(t.ops, t.results)
	t.opsBytes = bytesOf(t.ops)
	for _, q := range t.queues {
		q.ledger = state.Ledger{Tx: t.tx, L: q.l, Now: t.now, Facts: t.known.Queue(q.l)}
		q.due.Ledger, q.due.Dead, q.due.Page = &q.ledger, &t.dead, t.duePage
		if q.sweeps != nil {
			t.sweeps++
		}
	}
	t.beginLimits()
	for _, stage := range []func() error{t.configure, t.lenAndPush, t.restore, t.settle, t.edit, t.pop, t.peek} {
		if err := stage(); err != nil {
			return err
		}
	}
	if err := t.dead.Flush(); err != nil { // first, because the pops may have taken dead letters: see AddToCounter
		return err
	}
	for _, q := range t.queues {
		if err := q.ledger.Flush(); err != nil {
			return err
		}
		t.wrote = t.wrote || q.ledger.Wrote
		t.removed.Add(q.ledger.Removed)
	}
	t.removed.Dead += t.dead.Count
	return nil
}

// BringBack handles what is due in queues, as far as there is room beside the operations.
func (t *txOps) bringBack(queues []*due.Due) error {
	room := due.DueRoom{Bytes: min(due.HeldBytes+max(t.roomLeft(), 0), due.MostHeldBytes), Expired: t.expiredRoom()}
	if t.moves == 0 && !slices.ContainsFunc(t.queues, func(q *queueOps) bool { return q.due.Done }) {
		room.Fits = t.fits // a large item has room while it is the only one that moves
	}

	most, mostExpired := room.Bytes, room.Expired
	err := due.BringBack(queues, &room)
	t.takeExpired(mostExpired - room.Expired)
	if over := most - room.Bytes - due.HeldBytes; over > 0 { // leases have less
		t.allRoom, t.room = t.allRoom-over, t.room-over
	}
	return err
}

// group sorts ops by queue. Operations that their queue does not support get their errors
// here.
func group(ops []Op, results []Result) []*queueOps {
	var queues []*queueOps
	byName := make(map[string]*queueOps, 1)
	for i := range ops {
		op := &ops[i]
		l := op.Queue.Layout()
		q := byName[l.Prefix]
		if q == nil {
			q = &queueOps{l: l}
			byName[l.Prefix] = q
			queues = append(queues, q)
			q.room = 1 + (len(ops)-i)/len(queues)
		}
		if err := op.check(l); err != nil {
			results[i].Err = err
		}
		if results[i].Err != nil && op.Kind != OpPush && op.Kind != OpAck { // others may be tied to these
			continue
		}
		switch op.Kind {
		case OpLen:
			q.lens = append(q.lens, i)
		case OpInfo:
			if q.infos == nil {
				q.infos = newInfos(l)
			}
			q.infos.add(i, op.MaxPriorities)
		case OpPush:
			q.pushes = q.expect(q.pushes, i)
		case OpRestore:
			if q.restores == nil {
				q.restores = &restores{}
			}
			q.restores.indexes = append(q.restores.indexes, i)
		case OpSweep:
			if q.sweeps == nil {
				q.sweeps = &dueSweep{}
			}
			q.sweeps.indexes = append(q.sweeps.indexes, i)
		case OpSettings, OpConfigure:
			q.configs = append(q.configs, i)
		case OpAck, OpNak, OpExtend, OpTerm:
			if q.settlements == nil {
				q.settlements = &settlements{}
			}
			q.settlements.indexes = q.expect(q.settlements.indexes, i)
		case OpGet:
			q.gets = append(q.gets, &get{index: i, id: op.ID})
		case OpRank:
			q.ranks = append(q.ranks, &rank{index: i, id: op.ID, end: op.End})
		case OpRemove, OpMove, OpPurge, OpRedrive:
			if q.edits == nil {
				q.edits = &edits{}
			}
			q.edits.indexes = append(q.edits.indexes, i)
		case OpPop, OpLease:
			if q.pops == nil {
				q.pops = &pops{}
			}
			q.pops.indexes = q.expect(q.pops.indexes, i)
			q.pops.wants[op.End]++
			if !op.Follows || i == 0 || ops[i-1].Kind != op.Kind { // the first of its request
				if op.MaxBytes == 0 {
					q.pops.bytes = state.NoBound
				}
				q.pops.bytes = min(q.pops.bytes+op.MaxBytes, state.NoBound)
			}
			q.pops.waits = q.pops.waits || op.Waits
			q.pops.leases = q.pops.leases || op.Kind == OpLease
		case OpPeek:
			if q.peeks == nil {
				q.peeks = &peeks{}
			}
			q.peeks.indexes[op.End] = append(q.peeks.indexes[op.End], i)
		}
	}
	return queues
}

// looks reports whether one of the operations, other than pops, depends on which items are ready.
func (q *queueOps) looks() bool {
	return q.sweeps != nil || len(q.lens) > 0 || q.infos != nil || q.peeks != nil || len(q.gets) > 0 || len(q.ranks) > 0 || q.edits != nil
}

// pushesUnique reports whether a push depends on which items are in the queue.
func (q *queueOps) pushesUnique() bool { return q.dedup != nil && len(q.dedup.Uniques) > 0 }

// expect appends to indexes, with room for as many as there will probably be.
func (q *queueOps) expect(indexes []int, i int) []int {
	if indexes == nil {
		indexes = make([]int, 0, q.room)
	}
	return append(indexes, i)
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

// filled returns the queues of the Keyspace to which items came that no operation on them brings: those
// that came back, and dead letters.
func (t *txOps) filled() []QueueName {
	names := t.dead.Reached()
	for _, q := range t.queues {
		if q.due.Done {
			names = q.l.AppendName(names)
		}
	}
	return names
}

// lenAndPush runs the lens and the pushes. Both read without conflict, and before
// anything but what is due is written, so lens do not count what this transaction pushes or
// pops. What is due in queues that are looked at comes back first; the pops see to the
// others.
func (t *txOps) lenAndPush() error {
	snapshot := t.tx.Snapshot()
	var looked []*due.Due
	for _, q := range t.queues {
		t.beginPush(q, snapshot)
		if q.looks() || q.pushesUnique() {
			t.beginSweep(q)
			q.due.Begin()
			looked = append(looked, &q.due)
		}
		q.beginLens(snapshot)
	}
	if err := t.bringBack(looked); err != nil {
		return err
	}
	if err := t.finishSweeps(); err != nil {
		return err
	}
	if err := t.dead.Flush(); err != nil { // for the infos
		return err
	}
	for _, q := range t.queues {
		if q.ledger.Wrote {
			if err := q.ledger.Flush(); err != nil { // for the lens and infos
				return err
			}
			q.beginLens(snapshot)
			if q.pushesUnique() {
				q.dedup.RereadUniques(t.tx, q.l)
			}
		}
		if q.infos != nil {
			q.infos.begin(snapshot)
		}
	}
	inspected := beginInspections(snapshot, t.queues, &t.returned)
	inspected.now = t.now
	if err := runInfos(snapshot, t.queues, &t.returned, t.results); err != nil {
		return err
	}
	if err := inspected.run(t.results); err != nil {
		return err
	}
	if err := t.beginPushLimits(); err != nil {
		return err
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

// failOps makes an error about one queue the result of the operations at the
// given indexes. It returns any other error, which ends the whole transaction.
func failOps(results []Result, indexes []int, err error) error {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNoRoom) {
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

// Apply runs operations in the caller's transaction, and returns one Result for each, in the order of ops. now is
// the time by which leases and delays end and items expire. Errors of single operations are in their results; the
// error is one of the store.
//
// A Batcher does the same in transactions of its own, and finds out what became of them.
func Apply(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	t := newTxOps(tx, ops, now)
	return t.results, t.apply()
}

// applyOne runs a single operation in the caller's transaction.
func applyOne(tx kv.Transaction, op Op) single {
	results, err := Apply(tx, []Op{op}, time.Now())
	if err != nil {
		return single{err: err}
	}
	return single{results[0], results[0].Err}
}

// readOne runs a single peek or len.
func readOne(r kv.Reader, op Op) single {
	results, err := Read(r, []Op{op})
	if err != nil {
		return single{err: err}
	}
	return single{results[0], results[0].Err}
}

func (o single) id() (ID, error) { return o.result.Item.ID, o.err }
func (o single) pushed() (ID, bool, error) {
	return o.result.Item.ID, o.result.Duplicate, o.err
}
func (o single) item() (Item, error) { return o.result.Item, o.err }
func (o single) lease() (Item, Lease, error) {
	return o.result.Item, o.result.Lease, o.err
}
func (o single) settings() (Settings, error) {
	if o.err != nil {
		return Settings{}, o.err
	}
	return *o.result.Settings, nil
}
func (o single) length() (int64, error) { return o.result.Len, o.err }
func (o single) info() (Info, error) {
	if o.err != nil {
		return Info{}, o.err
	}
	return *o.result.Info, nil
}
func (o single) itemState() (Item, ItemState, error) { return o.result.Item, o.result.State, o.err }
func (o single) rank() (int64, bool, error)          { return o.result.Rank, o.result.RankAtLeast, o.err }
func (o single) progress() (Progress, error)         { return o.result.Progress, o.err }
