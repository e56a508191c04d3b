package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// dedupModel is a queue whose pushes may be duplicates, as plain as it can be.
type dedupModel struct {
	now    time.Time
	window time.Duration
	msgIDs map[string]modelMsgID
	items  map[fdbpq.ID]*dedupItem
}

type modelMsgID struct {
	id    fdbpq.ID
	until time.Time
}

type dedupItem struct {
	unique string // "" if it has none, or lost it
	item   fdbpq.Item
	due    time.Time // zero if it is ready
	token  fdbpq.Token
	dies   bool // when due
}

// first returns the item that a push is a duplicate of.
func (m *dedupModel) first(p *fdbpq.Message) (id fdbpq.ID, found bool) {
	if seen, ok := m.msgIDs[p.MsgID]; p.MsgID != "" && ok && seen.until.After(m.now) {
		return seen.id, true
	}
	return m.holder(p.Unique)
}

// holder returns the item that has a unique key.
func (m *dedupModel) holder(key string) (id fdbpq.ID, found bool) {
	for id, i := range m.items {
		if key != "" && i.unique == key && !(i.dies && !i.due.After(m.now)) {
			return id, true
		}
	}
	return id, false
}

// dedupRun drives a queue and the model.
type dedupRun struct {
	*fixture
	seed   uint64
	random *rand.Rand
	q      fdbpq.Target
	model  dedupModel
	popped []*dedupItem
	died   int
	counts map[string]int // what happened
}

func (r *dedupRun) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

func (r *dedupRun) run(ops ...fdbpq.Op) []fdbpq.Result {
	r.Helper()
	for i := range ops {
		ops[i].Queue = r.q
	}
	results, err := kv.Transact(r.ctx, r.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.ApplyAt(tx, ops, r.model.now)
	})
	if err != nil {
		r.fail("%v", err)
	}
	return results
}

// settleDue does what operations that see what is due do.
func (r *dedupRun) settleDue() {
	for id, i := range r.model.items {
		if i.due.IsZero() || i.due.After(r.model.now) {
			continue
		}
		if i.dies {
			delete(r.model.items, id)
			r.died++
		}
		i.due = time.Time{}
	}
}

func (r *dedupRun) key(prefix string, n int) string {
	if i := r.random.IntN(n + 2); i < n {
		return fmt.Sprint(prefix, "\x00", i)
	}
	return ""
}

func (r *dedupRun) push() {
	var ops []fdbpq.Op
	for n := range 1 + r.random.IntN(4) {
		m := fdbpq.Message{MsgID: r.key("id", 6), Unique: r.key("key", 2), Value: []byte("v")}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPush, Priority: r.random.Int64N(2), Message: m, Follows: n > 0 && r.random.IntN(2) == 0})
	}
	results := r.run(ops...)
	if slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Message.Unique != "" }) {
		r.settleDue()
	}
	for i, result := range results {
		m := &ops[i].Message
		first, duplicate := r.model.first(m)
		if result.Err != nil || result.Duplicate != duplicate || duplicate && (result.Item.ID != first || result.Item.PushedAt.IsZero()) {
			r.fail("push %d of %+v: %+v, want a duplicate: %t, of %v", i, m, result, duplicate, first)
		}
		if duplicate {
			r.counts["duplicate"]++
			continue
		}
		if m.MsgID != "" && r.model.window > 0 {
			r.model.msgIDs[m.MsgID] = modelMsgID{result.Item.ID, r.model.now.Add(r.model.window)}
		}
		r.model.items[result.Item.ID] = &dedupItem{unique: m.Unique, item: fdbpq.Item{ID: result.Item.ID, Message: *m}}
	}
}

// take pops or leases an item.
func (r *dedupRun) take() {
	lease := r.random.IntN(3) > 0
	op := fdbpq.Op{Kind: fdbpq.OpPop}
	if lease {
		op = fdbpq.Op{Kind: fdbpq.OpLease, Lease: 10 * time.Second}
	}
	result := r.run(op)[0]
	r.settleDue()
	if errors.Is(result.Err, fdbpq.ErrEmpty) {
		return
	}
	i := r.model.items[result.Item.ID]
	if result.Err != nil || i == nil || i.item.MsgID != result.Item.MsgID || i.unique != result.Item.Unique {
		r.fail("took %+v, %v: want %+v", result.Item, result.Err, i)
	}
	if lease {
		i.token, i.due = result.Lease.Token, r.model.now.Add(10*time.Second)
		i.dies = result.Lease.Deliveries >= 3
		return
	}
	delete(r.model.items, result.Item.ID)
	i.item = result.Item
	r.popped = append(r.popped, i)
}

// settle uses the token of an item.
func (r *dedupRun) settle() {
	for id, i := range r.model.items {
		if i.token == (fdbpq.Token{}) {
			continue
		}
		kind := []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpTerm, fdbpq.OpExtend}[r.random.IntN(4)]
		result := r.run(fdbpq.Op{Kind: kind, Token: i.token, Delay: time.Duration(r.random.IntN(2)) * time.Second, Reason: r.key("no", 2)})[0]
		if result.Err != nil {
			r.fail("kind %d of %+v: %v", kind, i, result.Err)
		}
		switch {
		case kind == fdbpq.OpExtend:
			i.due = r.model.now.Add(10 * time.Second)
		case kind == fdbpq.OpNak && !i.dies:
			i.due, i.token = result.NextDue, fdbpq.Token{}
		default:
			delete(r.model.items, id)
			if kind != fdbpq.OpAck {
				r.died++
			}
		}
		return
	}
}

// restore puts back a popped item, without its unique key if that is taken.
func (r *dedupRun) restore() {
	if len(r.popped) == 0 {
		return
	}
	at := r.random.IntN(len(r.popped))
	i := r.popped[at]
	r.popped = slices.Delete(r.popped, at, at+1)
	if result := r.run(fdbpq.Op{Kind: fdbpq.OpRestore, Item: &i.item})[0]; result.Err != nil {
		r.fail("restore %+v: %v", i.item, result.Err)
	}
	for _, other := range r.model.items {
		if i.unique != "" && other.unique == i.unique {
			i.unique = ""
			r.counts["lost its key"]++
		}
	}
	i.token, i.due, i.dies = fdbpq.Token{}, time.Time{}, false
	r.model.items[i.item.ID] = i
}

func (r *dedupRun) configure() {
	window := []time.Duration{0, fdbpq.NoDuplicateWindow, 3 * time.Second, 20 * time.Second}[r.random.IntN(4)]
	if r.run(fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.DuplicateWindow, s.MaxDeliver = window, 3 }})[0].Err != nil {
		r.fail("configure %v", window)
	}
	if r.model.window = window; window == 0 {
		r.model.window = fdbpq.DefaultDuplicateWindow
	}
}

// Whatever becomes of the items, a push is a duplicate exactly if its message id was pushed within the window
// or its unique key is in the queue.
func TestDuplicatesRandomly(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, fifo := range []bool{false, true} {
			random, seed := newRandom(f.T)
			r := &dedupRun{fixture: f, seed: seed, random: random, q: f.queue("jobs"), counts: map[string]int{}}
			if fifo {
				r.q = f.fifoQueue("jobs")
			}
			r.model = dedupModel{now: time.UnixMicro(time.Now().UnixMicro()), msgIDs: map[string]modelMsgID{}, items: map[fdbpq.ID]*dedupItem{}}
			r.configure()
			for range 500 {
				switch n := random.IntN(15); {
				case n < 4:
					r.push()
				case n < 8:
					r.take()
				case n < 10:
					r.settle()
				case n < 12:
					r.restore()
				case n == 12 && random.IntN(4) == 0:
					r.configure()
				default:
					r.model.now = r.model.now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
				}
			}
			r.finish()
		}
	})
}

// finish checks that items, and the keys of them, are all that is left.
func (r *dedupRun) finish() {
	r.Helper()
	r.check()
	if r.died == 0 || r.counts["duplicate"] == 0 {
		r.fail("%d died, %v", r.died, r.counts)
	}
	r.model.now = r.model.now.Add(24 * time.Hour)
	for range 100 { // each push removes some message ids that are over
		r.run(fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{MsgID: "last", Value: []byte("v")}})
		r.model.now = r.model.now.Add(time.Hour)
	}
	for r.run(fdbpq.Op{Kind: fdbpq.OpPop})[0].Err == nil {
	}
	left := 0
	for _, root := range []string{r.priority, r.fifo} {
		for _, pair := range r.stored(root) {
			for _, kind := range []string{"d", "e", "u"} {
				if begin, _ := tuple.NewSubspace(tuple.Tuple{root, "jobs", kind}).Range(); bytes.HasPrefix(pair.Key, begin[:len(begin)-1]) {
					left++
				}
			}
		}
	}
	if left > 4 { // the last message id of each queue
		r.fail("%d keys of message ids and unique keys are left", left)
	}
}
