package fdbpq_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// limitModel is a queue with limits, as plain as it can be.
type limitModel struct {
	fifo      bool
	now       time.Time
	settings  fdbpq.Settings
	items     []*limitItem
	discarded int64
}

type limitItem struct {
	id     fdbpq.ID
	size   int64
	due    time.Time // of its lease or delay; zero if it is ready
	leased bool
	token  fdbpq.Token
}

// settleDue returns what is due.
func (m *limitModel) settleDue() {
	for _, i := range m.items {
		if !i.due.IsZero() && !i.due.After(m.now) {
			i.due, i.leased = time.Time{}, false
		}
	}
}

func (m *limitModel) exceeded(items []*limitItem) bool {
	bytes := int64(0)
	for _, i := range items {
		bytes += i.size
	}
	return m.settings.MaxItems > 0 && int64(len(items)) > m.settings.MaxItems || m.settings.MaxBytes > 0 && bytes > m.settings.MaxBytes
}

// push pushes a group of items, whose priorities are given, and reports whether it can be done. Their ids are not
// known yet, but come after all others of their priorities.
func (m *limitModel) push(group []*limitItem) bool {
	all := slices.Clone(m.items)
	for _, i := range group {
		i.id.Count = 1 << 60
		all = append(all, i)
	}
	if m.exceeded(all) {
		m.settleDue()
	}
	gone := int64(0)
	for m.exceeded(all) {
		if m.settings.Discard != fdbpq.DiscardOld {
			return false
		}
		first := -1
		for n, i := range all {
			if !i.leased && (first < 0 || (m.compare(i, all[first]) > 0) != m.fifo) {
				first = n
			}
		}
		if first < 0 || slices.Contains(group, all[first]) {
			return false
		}
		all = slices.Delete(all, first, first+1)
		gone++
	}
	m.items = all
	m.discarded += gone
	return true
}

func (m *limitModel) compare(a, b *limitItem) int { return compareIDs(a.id, b.id) }

// remove removes an item.
func (m *limitModel) remove(item *limitItem) {
	m.items = slices.DeleteFunc(m.items, func(i *limitItem) bool { return i == item })
}

// first returns the ready item at an end, nil if there is none.
func (m *limitModel) first(end fdbpq.End) (best *limitItem) {
	for _, i := range m.items {
		if i.due.IsZero() && (best == nil || (compareIDs(i.id, best.id) < 0) == (end == fdbpq.Front)) {
			best = i
		}
	}
	return best
}

// limitRun drives a queue and the model.
type limitRun struct {
	*fixture
	seed      uint64
	random    *rand.Rand
	q         fdbpq.Target
	model     limitModel
	discarded int64
	counts    map[string]int // what happened
}

func (r *limitRun) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

func (r *limitRun) run(ops ...fdbpq.Op) []fdbpq.Result {
	r.Helper()
	for i := range ops {
		ops[i].Queue = r.q
	}
	before := r.batcher.Removed().Discarded
	results, err := r.batcher.Apply(r.ctx, ops)
	if err != nil {
		r.fail("%v", err)
	}
	r.discarded += r.batcher.Removed().Discarded - before
	return results
}

func (r *limitRun) message() (m fdbpq.Message) {
	m.Value = []byte(strings.Repeat("v", r.random.IntN(30)))
	switch r.random.IntN(20) {
	case 0:
		m.Value = make([]byte, 80_000+r.random.IntN(120_000))
	case 1, 2:
		m.Headers = map[string][]string{"Name": {"value\x00", strings.Repeat("h", r.random.IntN(20))}}
	case 3:
		m.Unique = fmt.Sprint("key", r.random.Uint64())
	case 4:
		m.Headers = map[string][]string{"Large": {strings.Repeat("\x00", 50_000)}}
	}
	return m
}

// push pushes several groups in one batch.
func (r *limitRun) push() {
	var ops []fdbpq.Op
	var groups [][]*limitItem
	var items []*limitItem
	for range 1 + r.random.IntN(3) {
		var group []*limitItem
		for n := range 1 + r.random.IntN(3) {
			op := fdbpq.Op{Kind: fdbpq.OpPush, Priority: r.random.Int64N(3), Message: r.message(), Follows: n > 0}
			item := &limitItem{size: int64(op.Message.Size())}
			if !r.model.fifo {
				item.id.Priority = op.Priority
			}
			if r.random.IntN(3) == 0 {
				op.At = r.model.now.Add(time.Duration(1+r.random.IntN(20)) * time.Second)
				item.due = op.At
			}
			ops, group = append(ops, op), append(group, item)
		}
		groups, items = append(groups, group), append(items, group...)
	}
	results := r.run(ops...)
	if slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Message.Unique != "" }) {
		r.model.settleDue()
	}
	for _, group := range groups {
		want := r.model.push(group)
		for range group {
			err := results[0].Err
			if err != nil && !errors.Is(err, fdbpq.ErrFull) || (err == nil) != want {
				r.fail("a group of %d with limits %d and %d: %v, want it done: %v", len(group), r.model.settings.MaxItems, r.model.settings.MaxBytes, err, want)
			}
			i := items[0]
			i.id = results[0].Item.ID
			results, items = results[1:], items[1:]
		}
		r.counts[fmt.Sprint("pushed ", want)]++
	}
	r.wantDiscarded()
}

// wantDiscarded checks how many items were discarded.
func (r *limitRun) wantDiscarded() {
	if r.discarded != r.model.discarded {
		r.fail("discarded are %d, want %d", r.discarded, r.model.discarded)
	}
}

// configure changes limits, never both so that the other would not matter.
func (r *limitRun) configure() {
	s := fdbpq.Settings{}
	s.Discard = []string{"", fdbpq.DiscardNew, fdbpq.DiscardOld, fdbpq.DiscardOld}[r.random.IntN(4)]
	if r.random.IntN(2) == 0 {
		s.MaxItems = 1 + r.random.Int64N(12)
	}
	switch r.random.IntN(4) {
	case 0:
		s.MaxBytes = 1 + r.random.Int64N(400)
	case 1:
		s.MaxBytes = 100_000 + r.random.Int64N(600_000)
	}
	r.set(s)
}

func (r *limitRun) set(s fdbpq.Settings) {
	r.model.settings = s
	r.fixture.configure(r.q, func(now *fdbpq.Settings) { now.MaxItems, now.MaxBytes, now.Discard = s.MaxItems, s.MaxBytes, s.Discard })
}

// step does something other than a push.
func (r *limitRun) step() {
	m := &r.model
	m.settleDue()
	var known *limitItem // any item
	if len(m.items) > 0 {
		known = m.items[r.random.IntN(len(m.items))]
	}
	end := fdbpq.Front
	if !m.fifo {
		end = fdbpq.End(r.random.IntN(2))
	}
	switch what := r.random.IntN(6); {
	case what == 0:
		result := r.run(fdbpq.Op{Kind: fdbpq.OpPop, End: end})[0]
		r.wantItem(m.first(end), result)
		if result.Err == nil {
			m.remove(m.first(end))
		}
	case what == 1:
		result := r.run(fdbpq.Op{Kind: fdbpq.OpLease, End: end, Lease: time.Duration(5+r.random.IntN(20)) * time.Second})[0]
		item := m.first(end)
		r.wantItem(item, result)
		if item != nil {
			item.token, item.due, item.leased = result.Lease.Token, result.Lease.Until, true
		}
	case known == nil:
	case what == 2:
		wantError(r.T, r.run(fdbpq.Op{Kind: fdbpq.OpRemove, ID: known.id})[0].Err, nil)
		m.remove(known)
	case what == 3 && !m.fifo && !known.leased:
		result := r.run(fdbpq.Op{Kind: fdbpq.OpMove, ID: known.id, Priority: r.random.Int64N(3)})[0]
		wantError(r.T, result.Err, nil)
		known.id, known.token = result.Item.ID, fdbpq.Token{}
	case what == 4 && known.leased:
		wantError(r.T, r.run(fdbpq.Op{Kind: fdbpq.OpAck, Token: known.token})[0].Err, nil)
		m.remove(known)
	case what == 5 && known.leased:
		due := m.now.Add(time.Minute)
		wantError(r.T, r.run(fdbpq.Op{Kind: fdbpq.OpNak, Token: known.token, Delay: time.Minute})[0].Err, nil)
		known.due, known.leased = due, false
	}
}

func (r *limitRun) wantItem(want *limitItem, got fdbpq.Result) {
	r.Helper()
	switch {
	case want == nil && !errors.Is(got.Err, fdbpq.ErrEmpty), want != nil && (got.Err != nil || got.Item.ID != want.id):
		r.fail("got %v, %v: want %+v", got.Item.ID, got.Err, want)
	}
}

// finish compares what is left.
func (r *limitRun) finish() {
	r.check()
	r.model.now = r.model.now.Add(24 * time.Hour)
	r.model.settleDue()
	slices.SortFunc(r.model.items, r.model.compare)
	for _, i := range r.model.items {
		r.wantItem(i, r.run(fdbpq.Op{Kind: fdbpq.OpPop})[0])
	}
	r.wantItem(nil, r.run(fdbpq.Op{Kind: fdbpq.OpPop})[0])
}

// A queue with limits does what its model does, whatever they are and whenever they change: it refuses what the
// model refuses, discards what that discards, and has the same items in the end.
func TestLimitsRandom(t *testing.T) {
	onEngines(t, func(f *fixture) {
		seed := rand.Uint64()
		f.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		counts := map[string]int{}
		for n, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			r := &limitRun{fixture: f, seed: seed, random: random, q: q, counts: counts}
			r.model = limitModel{fifo: n == 1, now: time.UnixMicro(time.Now().UnixMicro())}
			f.batcher.SetNow(func() time.Time { return r.model.now })
			r.set(fdbpq.Settings{MaxItems: 4, Discard: fdbpq.DiscardOld})
			for n := range 120 {
				r.model.now = r.model.now.Add(time.Duration(random.IntN(3)) * time.Second)
				switch what := random.IntN(10); {
				case what == 0 && n > 20: // before that, some are discarded for sure
					r.configure()
				case what < 4:
					r.step()
				default:
					r.push()
				}
				if random.IntN(25) == 0 {
					f.check()
				}
				if f.Failed() {
					r.fail("see above")
				}
			}
			r.finish()
			counts["discarded"] += int(r.discarded)
		}
		if counts["pushed true"] == 0 || counts["pushed false"] == 0 || counts["discarded"] == 0 {
			f.Errorf("seed %d: too little happened: %v", seed, counts)
		}
	})
}
