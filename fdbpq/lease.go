package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Bounds of the length of a lease and of a delay.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = 12 * time.Hour
	MaxDelay = 10 * 365 * 24 * time.Hour
	// DefaultLease is for a lease whose length nothing says.
	DefaultLease = 30 * time.Second
)

// Lease is the right to an item for a time.
type Lease struct {
	// Token is for OpAck, OpNak, OpExtend.
	Token Token
	// Until is when the item goes back to the queue unless the lease ends before, by
	// the clock of the process that gave the lease.
	Until time.Time
	// Deliveries is how many times the item was delivered, this time included.
	Deliveries int64
}

// settlements is the operations with tokens on one queue. They run before the pops, so that
// what they end is settled, and what they give back can be popped.
type settlements struct {
	indexes []int // into txOps.ops
	reads   []heldRead
}

// heldRead is the keys that an item may have, being read.
type heldRead struct {
	held, item, history kv.Future[[]byte]
}

// readHeld starts to read an item wherever it is.
func (l *layout) readHeld(r kv.Reader, id *ID) heldRead {
	return heldRead{r.Get(l.heldKey(id)), r.Get(l.itemKey(id)), r.Get(l.historyKey(id))}
}

// begin starts to read the items that the tokens name.
func (s *settlements) begin(t *txOps, l *layout) {
	for _, i := range s.indexes {
		s.reads = append(s.reads, l.readHeld(t.tx, &t.ops[i].Token.ID))
	}
}

// settle runs the operations with tokens.
func (t *txOps) settle() error {
	for _, q := range t.queues {
		if q.settlements != nil {
			q.settlements.begin(t, q.l)
		}
	}
	for _, q := range t.queues {
		if q.settlements == nil {
			continue
		}
		done := map[ID]bool{} // items that this transaction has moved: their reads are stale
		for n, i := range q.settlements.indexes {
			op, read := &t.ops[i], &q.settlements.reads[n]
			id := &op.Token.ID
			if done[*id] {
				*read = q.l.readHeld(t.tx, id)
			}
			h, err := read.find(q.l, &op.Token)
			if err != nil {
				if err = failOps(t.results, []int{i}, err); err != nil {
					return err
				}
				continue
			}
			if h == nil {
				t.results[i].Err = ErrLeaseLost
				continue
			}
			done[*id] = true
			t.settleOne(q, op, h, &t.results[i])
		}
	}
	return nil
}

// heldItem is a held item, or one that came back to the queue and that nobody else got.
type heldItem struct {
	*held
	ready bool // it is in ("i")
}

// find returns the item if the token still holds, nil otherwise.
func (r *heldRead) find(l *layout, token *Token) (*heldItem, error) {
	if !token.possible(l) {
		return nil, nil
	}
	record, err := r.held.Get()
	if err != nil {
		return nil, err
	}
	value, err := r.item.Get()
	if err != nil {
		return nil, err
	}
	past, err := r.history.Get()
	if err != nil {
		return nil, err
	}
	switch {
	case record != nil:
		h, err := parseHeld(&token.ID, record)
		if err != nil || h.fence != token.Fence {
			return nil, err
		}
		return &heldItem{held: h}, nil
	case value != nil:
		history, err := parseHistory(&token.ID, past)
		if err != nil || history.fence != token.Fence {
			return nil, err
		}
		h := &held{id: token.ID, deliveries: history.deliveries, fence: history.fence, wait: history.wait, end: token.End, value: value}
		return &heldItem{held: h, ready: true}, nil
	}
	return nil, nil
}

// roomFor returns how many bytes the leases of the operations may move, since a transaction
// must not grow too large: what the pushes leave of it.
func roomFor(ops []Op) int {
	room := MaxMessageSize
	for i := range ops {
		room -= restoreOverhead
		if ops[i].Kind == OpPush {
			room -= ops[i].Message.size()
		}
	}
	return room
}

// errNoRoom is for what the next transaction may have room for.
var errNoRoom = fmt.Errorf("%w: there is no room for it beside other operations: try again", ErrMaxBytes)

// fits reports whether the transaction has room to move an item's value between ("i") and
// ("h"), and takes the room. The first always fits.
func (t *txOps) fits(value []byte) bool {
	switch {
	case t.moves == 0:
		t.room = roomFor(t.ops)
	case len(value) > t.room:
		return false
	}
	t.moves++
	t.room -= len(value)
	return true
}

// settleOne moves an item whose token holds.
func (t *txOps) settleOne(q *queueOps, op *Op, h *heldItem, result *Result) {
	g := &q.ledger
	if op.Kind != OpAck && !t.fits(h.value) {
		result.Err = errNoRoom
		return
	}
	g.claim(h)
	switch op.Kind {
	case OpAck:
		g.discard(&h.id)
		result.wait = h.wait
	case OpNak:
		h.fence++ // ends the token
		if op.Uncounted {
			h.deliveries--
		}
		if op.Delay > 0 {
			h.state, h.due = delayed, t.now.Add(op.Delay)
			g.hold(h.held)
		} else {
			g.putBack(h.held)
		}
	case OpExtend:
		if op.Lease > 0 {
			h.wait = op.Lease
		}
		h.state, h.due = leased, t.now.Add(h.wait)
		g.hold(h.held)
		result.Lease = Lease{Token: op.Token, Until: micros(h.due), Deliveries: h.deliveries}
	}
}

// micros is t as it is stored.
func micros(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// leaseItem leases an item, whose history is given as stored, to an operation. The error is
// ErrCorrupt; then nothing changes.
func (t *txOps) leaseItem(q *queueOps, i int, s *stored, encoded []byte) error {
	past, err := parseHistory(&s.item.ID, encoded)
	if err != nil {
		return err
	}
	op, result := &t.ops[i], &t.results[i]
	wait := op.Lease
	if wait == 0 && op.Follows && i > 0 {
		wait = t.results[i-1].wait
	}
	if wait == 0 {
		wait = DefaultLease
	}
	result.wait = wait
	h := &held{
		id: s.item.ID, state: leased, deliveries: past.deliveries + 1, fence: past.fence + 1,
		due: t.now.Add(wait), wait: wait, end: op.End, value: s.pair.Value,
	}
	q.ledger.lend(s)
	q.ledger.forget(&h.id, encoded)
	q.ledger.hold(h)
	result.Item = s.item
	result.Lease = Lease{Token: Token{ID: h.id, Fence: h.fence, End: h.end}, Until: micros(h.due), Deliveries: h.deliveries}
	return nil
}

// checkLease returns an error if the duration cannot be the length of a lease. 0 means the
// default.
func checkLease(d time.Duration) error {
	if d != 0 && (d < MinLease || d > MaxLease) {
		return fmt.Errorf("%w: a lease of %v: want %v to %v", ErrOp, d, MinLease, MaxLease)
	}
	return nil
}
