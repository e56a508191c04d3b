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
	unique  string // "" if it has none, or lost it
	item    fdbpq.Item
	state   fdbpq.ItemState
	due     time.Time // unless it is ready
	expires time.Time // zero if it never does
	token   fdbpq.Token
	dies    bool // when its lease ends
}

func (m *dedupModel) expired(i *dedupItem) bool {
	return !i.expires.IsZero() && !i.expires.After(m.now)
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
		if key != "" && i.unique == key {
			return id, true
		}
	}
	return id, false
}

// dedupRun drives a queue and the model.
type dedupRun struct {
	*fixture
	seed    uint64
	random  *rand.Rand
	q       fdbpq.Target
	letters fdbpq.Target // its dead-letter queue
	model   dedupModel
	popped  []*dedupItem
	pushed  int
	dead    map[string]*dedupItem // dead letters, by value
	back    map[string]*dedupItem // those that were redriven, whose ids are not known yet, by value
	counts  map[string]int        // what happened
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
		return fdbpq.Apply(tx, ops, r.model.now)
	})
	if err != nil {
		r.fail("%v", err)
	}
	return results
}

// settleDue does what operations that see what is due do.
func (r *dedupRun) settleDue() {
	for id, i := range r.model.items {
		over := i.state != fdbpq.Ready && !i.due.After(r.model.now)
		switch {
		case i.state == fdbpq.Leased && !over:
		case r.model.expired(i):
			r.lose(id, "expired")
		case over && i.dies:
			r.die(id, i)
		case over:
			i.state = fdbpq.Ready
		}
	}
}

// lose removes an item.
func (r *dedupRun) lose(id fdbpq.ID, why string) {
	delete(r.model.items, id)
	r.counts[why]++
}

// die makes an item a dead letter.
func (r *dedupRun) die(id fdbpq.ID, i *dedupItem) {
	r.lose(id, "died")
	r.dead[string(i.item.Value)] = i
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
		r.pushed++
		m := fdbpq.Message{MsgID: r.key("id", 6), Unique: r.key("key", 2), Value: fmt.Append(nil, r.pushed)}
		op := fdbpq.Op{Kind: fdbpq.OpPush, Priority: r.random.Int64N(2), Message: m, Follows: n > 0 && r.random.IntN(2) == 0}
		if r.random.IntN(4) == 0 {
			op.Delay = time.Duration(1+r.random.IntN(5)) * time.Second
		}
		if r.random.IntN(4) == 0 {
			op.TTL = time.Duration(1+r.random.IntN(8)) * time.Second
		}
		ops = append(ops, op)
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
		r.model.items[result.Item.ID] = r.model.pushed(&ops[i], result.Item.ID)
	}
}

// pushed returns an item that was pushed.
func (m *dedupModel) pushed(op *fdbpq.Op, id fdbpq.ID) *dedupItem {
	i := &dedupItem{unique: op.Message.Unique, item: fdbpq.Item{ID: id, Message: op.Message}, state: fdbpq.Ready}
	if op.Delay > 0 {
		i.state, i.due = fdbpq.Delayed, m.now.Add(op.Delay)
	}
	if op.TTL > 0 {
		i.expires = m.now.Add(op.TTL)
	}
	return i
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
		if n := r.inState(fdbpq.Ready); n > 0 {
			r.fail("took nothing, and %d items are ready", n)
		}
		return
	}
	i := r.model.items[result.Item.ID]
	if back := r.back[string(result.Item.Value)]; back != nil { // a dead letter, redriven
		if i = back; i.item.ID == result.Item.ID {
			r.fail("redriven with its old id: %+v", result.Item)
		}
		delete(r.back, string(result.Item.Value))
		i.item.ID = result.Item.ID
		r.model.items[i.item.ID] = i
	}
	if i != nil && i.state != fdbpq.Ready {
		r.fail("took %+v, which is not ready: %+v", result.Item, i)
	}
	if result.Err != nil || i == nil || i.item.MsgID != result.Item.MsgID || i.unique != result.Item.Unique {
		r.fail("took %+v, %v: want %+v", result.Item, result.Err, i)
	}
	if lease {
		i.token, i.state, i.due = result.Lease.Token, fdbpq.Leased, r.model.now.Add(10*time.Second)
		i.dies = result.Lease.Deliveries >= 3
		return
	}
	delete(r.model.items, result.Item.ID)
	i.item = result.Item
	r.popped = append(r.popped, i)
}

// settle uses the token of an item.
func (r *dedupRun) settle() {
	for _, id := range r.ids() {
		i := r.model.items[id]
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
			i.state, i.due = fdbpq.Leased, r.model.now.Add(10*time.Second)
		case kind == fdbpq.OpAck:
			r.lose(id, "acknowledged")
		case kind == fdbpq.OpNak && r.model.expired(i):
			r.lose(id, "expired")
		case kind == fdbpq.OpNak && !i.dies:
			i.state, i.due, i.token = fdbpq.Ready, result.NextDue, fdbpq.Token{}
			if !i.due.IsZero() {
				i.state = fdbpq.Delayed
			}
		default:
			r.die(id, i)
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
	if r.model.expired(i) {
		return
	}
	for _, other := range r.model.items {
		if i.unique != "" && other.unique == i.unique {
			i.unique = ""
			r.counts["lost its key"]++
		}
	}
	i.token, i.state, i.dies = fdbpq.Token{}, fdbpq.Ready, false
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
			r := &dedupRun{
				fixture: f, seed: seed, random: random, q: f.queue("jobs"), letters: f.queue("jobs-dead"), counts: map[string]int{},
				dead: map[string]*dedupItem{}, back: map[string]*dedupItem{},
			}
			if fifo {
				r.q, r.letters = f.fifoQueue("jobs"), f.fifoQueue("jobs-dead")
			}
			r.model = dedupModel{now: time.UnixMicro(time.Now().UnixMicro()), msgIDs: map[string]modelMsgID{}, items: map[fdbpq.ID]*dedupItem{}}
			r.configure()
			steps, few := f.steps(500)
			for range steps {
				r.step(fifo)
			}
			r.finish(fifo, few)
		}
	})
}

// step does one thing at random.
func (r *dedupRun) step(fifo bool) {
	switch n := r.random.IntN(19); {
	case n < 4:
		r.push()
	case n < 8:
		r.take()
	case n < 10:
		r.settle()
	case n < 12:
		r.restore()
	case n == 12:
		r.remove()
	case n == 13 && !fifo:
		r.move()
	case n == 14 && r.random.IntN(4) == 0:
		r.configure()
	case n == 15 && r.random.IntN(8) == 0:
		r.purge()
	case n == 15 && r.random.IntN(4) == 0:
		r.redrive()
	case n == 16 && r.random.IntN(4) == 0:
		r.wantCounts()
	default:
		r.model.now = r.model.now.Add(time.Duration(r.random.IntN(4000)) * time.Millisecond)
	}
}

// finish checks that items, and the keys of them, are all that is left.
func (r *dedupRun) finish(fifo, few bool) {
	r.Helper()
	r.check()
	r.redrive()
	r.wantCounts()
	for _, what := range []string{"duplicate", "died", "expired", "removed", "redriven", "moved"} {
		if r.counts[what] == 0 && !few && (what != "moved" || !fifo) {
			r.fail("nothing was %s: %v", what, r.counts)
		}
	}
	r.model.now = r.model.now.Add(24 * time.Hour)
	for range 10 { // each push removes some message ids that are over
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
