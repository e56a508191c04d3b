package fdbpq_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// leaseModel is a queue with leases, as plain as it can be.
type leaseModel struct {
	items map[string]*leaseItem // by value, which is unique
	now   time.Time
}

type leaseItem struct {
	id         fdbpq.ID
	value      string
	ready      bool
	leased     bool // else it is delayed, unless ready
	due        time.Time
	wait       time.Duration
	deliveries int64
	token      fdbpq.Token // zero if no token holds
}

// settleDue returns what is due to the queue.
func (m *leaseModel) settleDue() {
	for _, i := range m.items {
		if !i.ready && !i.due.After(m.now) {
			i.ready, i.leased = true, false
		}
	}
}

// first returns the ready item at an end, nil if there is none.
func (m *leaseModel) first(end fdbpq.End) *leaseItem {
	var best *leaseItem
	for _, i := range m.items {
		if !i.ready {
			continue
		}
		if best == nil || (compareIDs(i.id, best.id) < 0) == (end == fdbpq.Front) {
			best = i
		}
	}
	return best
}

// leaseRun drives a queue and the model with the same operations.
type leaseRun struct {
	*testing.T
	seed   uint64
	random *rand.Rand
	db     kv.Database
	q      fdbpq.Target
	fifo   bool
	model  leaseModel
	old    []fdbpq.Token // that were ever given
	pushed int
}

func (r *leaseRun) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

func (r *leaseRun) apply(ops ...fdbpq.Op) []fdbpq.Result {
	r.Helper()
	results, err := kv.Transact(r.Context(), r.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.ApplyAt(tx, ops, r.model.now)
	})
	if err != nil {
		r.fail("%v", err)
	}
	return results
}

func (r *leaseRun) end() fdbpq.End {
	if r.fifo || r.random.IntN(3) > 0 {
		return fdbpq.Front
	}
	return fdbpq.Back
}

func (r *leaseRun) push() {
	m := fdbpq.Message{Value: fmt.Append(nil, "item-", r.pushed)}
	r.pushed++
	if r.random.IntN(3) == 0 {
		m.Headers = map[string][]string{"Header": {"value"}}
	}
	result := r.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: r.q, Priority: r.random.Int64N(3), Message: m})[0]
	for _, i := range r.model.items {
		if i.id.Priority == result.Item.ID.Priority && compareIDs(i.id, result.Item.ID) >= 0 {
			r.fail("pushed as %v, before %q at %v", result.Item.ID, i.value, i.id)
		}
	}
	r.model.items[string(m.Value)] = &leaseItem{id: result.Item.ID, value: string(m.Value), ready: true}
}

// pop pops or leases several items at once.
func (r *leaseRun) pop() {
	kind, end, n := fdbpq.OpPop, r.end(), 1+r.random.IntN(3)
	if r.random.IntN(3) > 0 {
		kind = fdbpq.OpLease
	}
	wait := time.Duration(r.random.IntN(4)) * time.Second
	var ops []fdbpq.Op
	for range n {
		ops = append(ops, fdbpq.Op{Kind: kind, End: end, Queue: r.q, Lease: wait})
	}
	results := r.apply(ops...)
	r.model.settleDue()
	for _, result := range results {
		r.got(kind, end, wait, result)
	}
}

// got compares one pop or lease with the model.
func (r *leaseRun) got(kind fdbpq.OpKind, end fdbpq.End, wait time.Duration, result fdbpq.Result) {
	r.Helper()
	want := r.model.first(end)
	if want == nil {
		if !errors.Is(result.Err, fdbpq.ErrEmpty) {
			r.fail("got %q, %v from an empty queue", result.Item.Value, result.Err)
		}
		return
	}
	if result.Err != nil || string(result.Item.Value) != want.value || result.Item.ID != want.id {
		r.fail("got %q at %v, %v: want %q at %v", result.Item.Value, result.Item.ID, result.Err, want.value, want.id)
	}
	if kind == fdbpq.OpPop {
		delete(r.model.items, want.value)
		return
	}
	if wait == 0 {
		wait = fdbpq.DefaultLease
	}
	want.ready, want.leased, want.wait, want.due, want.token = false, true, wait, r.model.now.Add(wait), result.Lease.Token
	want.deliveries++
	r.old = append(r.old, want.token)
	if result.Lease.Deliveries != want.deliveries || !result.Lease.Until.Equal(want.due) {
		r.fail("%q: delivery %d until %v, want %d until %v", want.value, result.Lease.Deliveries, result.Lease.Until, want.deliveries, want.due)
	}
	if again, err := fdbpq.ParseToken(want.token.String()); err != nil || again != want.token || len(want.token.String()) > 80 {
		r.fail("token %v is read as %v, %v", want.token, again, err)
	}
}

// look peeks and counts.
func (r *leaseRun) look() {
	end := r.end()
	results := r.apply(fdbpq.Op{Kind: fdbpq.OpPeek, End: end, Queue: r.q}, fdbpq.Op{Kind: fdbpq.OpLen, Queue: r.q})
	r.model.settleDue()
	ready := int64(0)
	for _, i := range r.model.items {
		if i.ready {
			ready++
		}
	}
	if results[1].Err != nil || results[1].Len != ready {
		r.fail("%d items are counted, %v: want %d", results[1].Len, results[1].Err, ready)
	}
	want := r.model.first(end)
	if (want == nil) != errors.Is(results[0].Err, fdbpq.ErrEmpty) || want != nil && string(results[0].Item.Value) != want.value {
		r.fail("peeked at %q, %v: want %+v", results[0].Item.Value, results[0].Err, want)
	}
}

// settle uses a token, often an old one. With +NXT another item is leased if it holds.
func (r *leaseRun) settle() {
	if len(r.old) == 0 {
		return
	}
	token := r.old[r.random.IntN(len(r.old))]
	if r.random.IntN(2) == 0 {
		token = r.old[len(r.old)-1]
	}
	var item *leaseItem
	for _, i := range r.model.items {
		if i.token == token {
			item = i
		}
	}
	op := fdbpq.Op{Queue: r.q, Token: token}
	switch r.random.IntN(4) {
	case 0:
		op.Kind = fdbpq.OpNak
		op.Delay = time.Duration(r.random.IntN(3)) * time.Second
		op.Uncounted = r.random.IntN(3) == 0
	case 1:
		op.Kind = fdbpq.OpExtend
	default:
		op.Kind = fdbpq.OpAck
	}
	ops := []fdbpq.Op{op}
	next := op.Kind == fdbpq.OpAck && r.random.IntN(2) == 0
	if next {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: r.q, End: token.End, Follows: true})
	}
	results := r.apply(ops...)
	if held := item != nil; held == errors.Is(results[0].Err, fdbpq.ErrLeaseLost) || held && results[0].Err != nil {
		r.fail("kind %d of a token that holds: %t: %v", op.Kind, held, results[0].Err)
	}
	if item == nil {
		if next && !errors.Is(results[1].Err, fdbpq.ErrLeaseLost) {
			r.fail("the next was leased although the token is lost: %v", results[1].Err)
		}
		return
	}
	switch op.Kind {
	case fdbpq.OpAck:
		delete(r.model.items, item.value)
	case fdbpq.OpNak:
		item.token, item.leased, item.ready, item.due = fdbpq.Token{}, false, op.Delay == 0, r.model.now.Add(op.Delay)
		if op.Uncounted {
			item.deliveries--
		}
	case fdbpq.OpExtend:
		item.ready, item.leased, item.due = false, true, r.model.now.Add(item.wait)
		if !results[0].Lease.Until.Equal(item.due) {
			r.fail("extended until %v, want %v", results[0].Lease.Until, item.due)
		}
	}
	if next {
		r.model.settleDue()
		r.got(fdbpq.OpLease, token.End, item.wait, results[1])
	}
}

// Leases, acknowledgements and delays do what the plain model does: an item is with one
// holder at a time, a token works for one delivery, nothing that is settled comes back, and
// what comes back does so when it is due, at its old place.
func TestLeasesRandomly(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, fifo := range []bool{false, true} {
			seed := rand.Uint64()
			r := &leaseRun{
				T: f.T, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), db: f.db, fifo: fifo,
				model: leaseModel{items: map[string]*leaseItem{}, now: time.UnixMicro(time.Now().UnixMicro())},
			}
			keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
			if err != nil {
				t.Fatal(err)
			}
			var name = fmt.Sprint("leases-", fifo)
			if fifo {
				r.q, err = keyspace.Queue(name)
			} else {
				r.q, err = keyspace.PriorityQueue(name)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 600 {
				switch n := r.random.IntN(11); {
				case n < 3:
					r.push()
				case n < 6:
					r.pop()
				case n < 9:
					r.settle()
				case n == 9:
					r.look()
				default:
					r.model.now = r.model.now.Add(time.Duration(r.random.IntN(2500)) * time.Millisecond)
				}
			}
			r.checkAll()
		}
	})
}

// checkAll compares what is stored with the model, and with itself.
func (r *leaseRun) checkAll() {
	r.Helper()
	if _, err := fdbpqtest.CheckInvariants(r.Context(), r.db, "pq", "q"); err != nil {
		r.fail("%v", err)
	}
	r.model.now = r.model.now.Add(24 * time.Hour)
	r.model.settleDue()
	var want, got []string
	for i := r.model.first(fdbpq.Front); i != nil; i = r.model.first(fdbpq.Front) {
		want = append(want, i.value)
		delete(r.model.items, i.value)
	}
	for {
		result := r.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: r.q})[0]
		if errors.Is(result.Err, fdbpq.ErrEmpty) {
			break
		}
		got = append(got, string(result.Item.Value))
	}
	if !slices.Equal(got, want) {
		r.fail("left are %q, want %q", got, want)
	}
	if _, err := fdbpqtest.CheckInvariants(r.Context(), r.db, "pq", "q"); err != nil {
		r.fail("when all is popped: %v", err)
	}
}
