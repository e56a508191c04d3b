package fdbpq_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// modelRun drives a priority queue, a FIFO queue, and the queues of their dead letters, and the
// model of them.
type modelRun struct {
	f      *fixture
	m      *model
	random *rand.Rand

	// Some items are large; then none die of max_deliver, for which there might be no room.
	large   bool
	failing *hooked
	main    *fdbpq.Batcher // usually knows what it need not read
	other   *fdbpq.Batcher
	homes   []*modelQueue
	pushed  int
}

// modelPart is the operations of a batch on one queue.
type modelPart struct {
	q   *modelQueue
	ops []fdbpq.Op
}

// Queues do what their model does, in any batch, run by any process at any time.
func TestModel(t *testing.T) {
	counts := map[string]int{}
	onEngines(t, func(f *fixture) {
		steps := f.steps(500)
		for _, large := range []bool{false, true} {
			random, _ := newRandom(f.T)
			r := newModelRun(f, random, large, counts)

			for n := range steps {
				r.step()
				if n%25 == 0 {
					f.check()
				}
			}

			r.finish()
		}
	})

	for _, what := range []string{
		"came back", "expired", "died", "discarded", "refused", "duplicate", "restored",
		"lost its key", "purged", "removed", "moved", "redriven", "redriven alone", "released",
		"browsed", "acknowledged", "lost", "leased", "popped", "paused", "max_leased", "in turn",
		"rate", "group limits", "set", "counted", "found dead", "retried later",
		"successor", "no successor",
		"kept", "done before", "found done", "run again", "done and removed", "swept",
		"attempt",
	} {
		// A short run need not have everything.
		if counts[what] == 0 && harness.Nightly && !harness.Race {
			t.Errorf("nothing was %s: %v", what, counts)
		}
	}
}

func newModelRun(f *fixture, random *rand.Rand, large bool, counts map[string]int) *modelRun {
	f.fixGroups()
	failing := &hooked{Database: f.db}

	r := &modelRun{
		f:       f,
		random:  random,
		large:   large,
		failing: failing,
		main:    fdbpq.NewBatcher(failing, f.Keyspace),
		other:   fdbpq.NewBatcher(f.db, f.Keyspace),
	}

	r.m = &model{
		T:      f.T,
		now:    time.UnixMicro(time.Now().UnixMicro()).UTC(),
		queues: map[fdbpq.Target]*modelQueue{},
		counts: counts,
	}

	targets := map[string]fdbpq.Target{}
	r.m.target = func(name string, fifo bool) fdbpq.Target {
		key := fmt.Sprint(name, fifo)
		if targets[key] == nil && fifo {
			targets[key] = f.fifoQueue(name)
		} else if targets[key] == nil {
			targets[key] = f.queue(name)
		}

		return targets[key]
	}

	for _, b := range []*fdbpq.Batcher{r.main, r.other} {
		b.SetNow(func() time.Time { return r.m.now })
	}

	for _, fifo := range []bool{false, true} {
		r.homes = append(r.homes, r.m.queue(fmt.Sprint("jobs", large), fifo))
	}

	return r
}

// step lets time pass and makes one or two batches.
func (r *modelRun) step() {
	r.pass()
	defer r.browse()
	defer r.findAllArrived()

	switch r.random.IntN(14) {
	case 0:
		r.applyFailed(r.batch(true))
	case 1, 2:
		a, b := r.batch(false), r.batch(false)

		// Something is written, so that it cannot come before the first.
		b[0].ops = append(b[0].ops, r.on(b[0].q, r.push(b[0].q))...)
		r.applyTogether(a, b)
	case 3, 4:
		r.applyBehind()
	case 5:
		r.applyBy(r.other, r.batch(true))
	case 6, 7, 8:
		r.applyAlone(r.batch(true), 0)
	default:
		r.applyBy(r.main, r.batch(true))
	}
}

// pass lets time pass: nothing, a little, until something falls due or just before, or the clock is
// set back.
func (r *modelRun) pass() {
	now := r.m.now
	switch r.random.IntN(12) {
	case 0, 1, 2:
		now = now.Add(r.millis(2500))
	case 3, 4, 5:
		q := r.homes[r.random.IntN(2)]
		next := q.nextDue()

		for _, seen := range q.msgIDs {
			if seen.until.After(now) {
				next = earlier(next, seen.until)
			}
		}

		if q.settings.PauseUntil.After(now) {
			next = earlier(next, q.settings.PauseUntil)
		}

		if !next.IsZero() {
			now = next.Add(-time.Duration(r.random.IntN(2)) * time.Microsecond)
		}
	case 6:
		if r.random.IntN(4) == 0 && !slices.ContainsFunc(r.homes, (*modelQueue).forgetsMsgIDs) {
			now = now.Add(-r.millis(3000))
		}
	}

	r.m.now = now
}

// forgetsMsgIDs reports whether message ids are over, so that pushes may have removed them.
func (q *modelQueue) forgetsMsgIDs() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(q.msgIDs)),
		func(seen modelMsgID) bool { return !seen.until.After(q.now) })
}

func (r *modelRun) millis(n int) time.Duration {
	return time.Duration(r.random.IntN(n)) * time.Millisecond
}

// batch returns operations on one queue, or on one of either kind. With dead it may be one of dead
// letters.
func (r *modelRun) batch(dead bool) (parts []modelPart) {
	for n, home := range r.homes {
		if r.random.IntN(4) == 0 || n == 1 && len(parts) == 0 {
			q := home
			if dead && r.random.IntN(5) == 0 {
				q = r.m.queue(home.name+"-dead", home.fifo)
			}

			parts = append(parts, modelPart{q, r.on(q, r.ops(q)...)})
		} else if n == 0 && r.random.IntN(2) == 0 {
			parts = append(parts, modelPart{home, r.on(home, r.ops(home)...)})
		}
	}
	return parts
}

// on returns operations of a queue.
func (r *modelRun) on(q *modelQueue, ops ...fdbpq.Op) []fdbpq.Op {
	for i := range ops {
		ops[i].Queue = q.target
	}
	return ops
}

func flat(parts []modelPart) (ops []fdbpq.Op) {
	for _, part := range parts {
		ops = append(ops, part.ops...)
	}
	return ops
}

func (r *modelRun) applyBy(b *fdbpq.Batcher, parts []modelPart) {
	before, model := b.SideEffects(), r.m.effects
	results, err := b.Apply(r.f.ctx, flat(parts))
	r.compare(parts, results, err, 0)

	want := r.m.effects
	want.Add(fdbpq.SideEffects{
		Expired:   before.Expired - model.Expired,
		Discarded: before.Discarded - model.Discarded,
		Dead:      before.Dead - model.Dead,
		RanOut:    before.RanOut - model.RanOut,
		Next:      before.Next - model.Next,
	})

	if got := b.SideEffects(); got != want {
		r.f.Fatalf("removed are %+v, want %+v", got, want)
	}
}

// applyAlone applies a batch in a transaction that no Batcher has made.
func (r *modelRun) applyAlone(parts []modelPart, page int) {
	results, err := do(r.f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.ApplyBehindAt(tx, flat(parts), r.m.now, page)
	})
	r.compare(parts, results, err, page)
}

// applyBehind applies pops, leases or a peek as if very much were due: more than a transaction
// handles.
func (r *modelRun) applyBehind() {
	q := r.homes[r.random.IntN(2)]
	ops := r.pops(q)

	if r.random.IntN(3) == 0 {
		ops = []fdbpq.Op{{Kind: fdbpq.OpPeek, End: ops[0].End}}
	}

	r.applyAlone([]modelPart{{q, r.on(q, ops...)}}, 2)
	r.applyAlone([]modelPart{{q, r.on(q, opLen)}}, 0)
}

// applyTogether starts the second of two batches before it waits for the first.
func (r *modelRun) applyTogether(parts ...[]modelPart) {
	var pending []*fdbpq.Pending
	for _, some := range parts {
		pending = append(pending, r.main.Start(r.f.ctx, flat(some)))
	}

	for n, p := range pending {
		results, err := p.Wait()
		r.compare(parts[n], results, err, 0)
	}
}

var errCommit = errors.New("this commit fails")

// applyFailed applies a batch that is not committed, unless it only reads.
func (r *modelRun) applyFailed(parts []modelPart) {
	ctx, cancel := context.WithCancel(r.f.ctx)
	defer cancel()
	canceled, tried := r.f.db.Traits().Serial && r.random.IntN(2) == 0, false

	r.failing.commit = func(tx kv.Transaction) kv.Future[struct{}] {
		tried, r.failing.commit = true, nil
		if canceled {
			cancel()
			return tx.Commit()
		}

		tx.Cancel()
		return kv.Ready(struct{}{}, errCommit)
	}

	_, err := r.main.Apply(ctx, flat(parts))
	if err == nil && tried ||
		err != nil && !errors.Is(err, errCommit) && !errors.Is(err, context.Canceled) {
		r.f.Fatalf("a batch whose commit fails: %v", err)
	}

	r.failing.commit = nil
}

// compare compares the results of a batch with the model.
func (r *modelRun) compare(parts []modelPart, results []fdbpq.Result, err error, page int) {
	r.f.Helper()
	if err != nil {
		r.f.Fatal(err)
	}

	for _, part := range parts {
		n := len(part.ops)
		part.q.run(part.ops, results[:n:n], page)
		results = results[n:]
	}
}

// findAllArrived finds out the ids of items that no result has told.
func (r *modelRun) findAllArrived() {
	for _, q := range r.m.queues {
		if len(q.arrived) > 0 {
			r.findArrived(q)
		}
	}
}

func (r *modelRun) findArrived(q *modelQueue) {
	root := r.f.priority
	if q.fifo {
		root = r.f.fifo
	}

	for _, pair := range r.f.stored(root) {
		key := must(tuple.Unpack(pair.Key))
		if key[1] != q.name || key[2] != "i" {
			continue
		}

		var id fdbpq.ID
		if !q.fifo {
			id.Priority = key[3].(int64)
		}

		id.Count = key[len(key)-2].(int64)
		copy(id.Random[:], key[len(key)-1].([]byte))

		if q.items[id] != nil {
			continue
		}

		at := slices.IndexFunc(q.arrived,
			func(i *modelItem) bool { return i.ID.Priority == id.Priority })
		if at < 0 || !bytes.Contains(pair.Value, q.arrived[at].Value[:12]) {
			r.f.Fatalf("%s: %d %d has arrived out of order: %.100q",
				q.name, id.Priority, id.Count, pair.Value)
		}

		i := q.arrived[at]
		q.arrived = slices.Delete(q.arrived, at, at+1)

		if i.told != (fdbpq.ID{}) && i.told != id {
			r.f.Fatalf("%s: %v has arrived, but the result said %v", q.name, id, i.told)
		}

		i.ID = id
		q.add(i)
	}

	if len(q.arrived) > 0 {
		r.f.Fatalf("%s: %d items have not arrived", q.name, len(q.arrived))
	}
}

// finish compares the remaining items.
func (r *modelRun) finish() {
	r.f.check()

	r.m.now = r.m.now.Add(24 * time.Hour)
	for _, q := range r.homes { // each push removes some message ids that are over
		for range 10 {
			push := r.on(q, fdbpq.Op{
				Kind:    fdbpq.OpPush,
				Message: fdbpq.Message{MsgID: "last", Value: fmt.Append(nil, q.name, r.m.now)},
			})

			r.applyBy(r.main, []modelPart{{q, r.on(q, fdbpq.Op{
				Kind:      fdbpq.OpConfigure,
				Configure: func(s *fdbpq.Settings) { *s = fdbpq.Settings{} },
			})}})

			r.applyBy(r.main, []modelPart{{q, push}})
			r.findAllArrived()
			r.m.now = r.m.now.Add(time.Hour)
		}
	}

	for more := true; more; { // what is due may move dead letters to others
		more = false
		byName := func(a, b fdbpq.Target) int {
			return cmp.Compare(r.m.queues[a].name, r.m.queues[b].name)
		}
		for _, target := range slices.SortedFunc(maps.Keys(r.m.queues), byName) {
			q := r.m.queues[target]
			if len(q.items) > 0 { // none of its groups stays paused
				r.applyBy(r.main, []modelPart{{q, r.on(q, fdbpq.Op{
					Kind:      fdbpq.OpConfigure,
					Configure: func(s *fdbpq.Settings) { *s = fdbpq.Settings{} },
				})}})
			}

			for ; len(q.items) > 0; more = true {
				r.applyBy(r.main, []modelPart{{q, r.on(q, opPopMin)}})
				r.findAllArrived()
				r.m.now = r.m.now.Add(time.Minute)
			}
		}
	}

	r.removeConsumers()
	if contents := r.f.check(); contents.Items > 0 {
		r.f.Errorf("%d items are left", contents.Items)
	}

	left := slices.DeleteFunc(append(r.f.stored(r.f.priority), r.f.stored(r.f.fifo)...),
		func(pair kv.KeyValue) bool {
			key := must(tuple.Unpack(pair.Key))
			return key[1] != r.homes[0].name || key[2] != "d"
		})

	if len(left) > 2 { // the last message id of each queue
		r.f.Errorf("%d keys are left", len(left))
	}
}

// browse compares what a Browse and ReadItems find in a queue with the model, now and then.
func (r *modelRun) browse() {
	if r.random.IntN(3) > 0 {
		return
	}

	q := r.homes[r.random.IntN(2)]
	if r.random.IntN(4) == 0 {
		q = r.m.queue(q.name+"-dead", q.fifo)
	}

	b := fdbpq.Browse{
		State:    fdbpq.ItemState(r.random.IntN(4)),
		End:      r.end(q),
		MaxItems: r.random.IntN(8),
		MaxBytes: r.random.IntN(3) * 40,
		Trail:    r.random.IntN(2) == 0,
	}

	if id := r.someID(q); r.random.IntN(3) == 0 && id != (fdbpq.ID{}) {
		b.After = &id
	}

	r.walk(q, b, 10)
	r.walkFinished(q)
	r.readItems(q)
}

// walk compares what a Browse finds with the model, page by page.
func (r *modelRun) walk(q *modelQueue, b fdbpq.Browse, most int) {
	passed := func(i *modelItem) bool { // by the walk, before it begins
		return b.After != nil && (compareIDs(i.ID, *b.After) <= 0) == (b.End == fdbpq.Front) ||
			b.After != nil && i.ID == *b.After
	}

	want := q.inOrder(func(i *modelItem) bool {
		return !passed(i) && (b.State == fdbpq.AnyState || b.State == i.state) &&
			(i.state == fdbpq.Leased || !r.m.expired(i))
	})

	scanned := q.inOrder(func(i *modelItem) bool {
		return !passed(i) &&
			(b.State == fdbpq.AnyState || (b.State == fdbpq.Ready) == (i.state == fdbpq.Ready))
	})

	if b.End == fdbpq.Back {
		slices.Reverse(want)
	}

	r.m.counts["browsed"] += len(want)
	scans := len(scanned)

	for {
		left := 1 + r.random.IntN(most)
		end, err := b.Walk(r.f.ctx, r.f.db, q.target, r.m.now, func(item *fdbpq.Browsed) bool {
			if left--; left < 0 {
				return false
			}

			if len(want) == 0 {
				r.f.Fatalf("%s: %+v: more than there is: %v", q.name, b, item.ID)
			}
			r.wantBrowsed(q, item, want[0], b.Trail)

			want = want[1:]
			return true
		})
		if err != nil {
			r.f.Fatal(err)
		}

		scans -= int(end.Scanned)

		// A page that ends because of its bytes does not tell whether there is more.
		least := 1

		if r.large {
			least = 0
		}

		if b.MaxItems > 0 && end.Scanned > int64(b.MaxItems) || !end.More && scans != 0 ||
			end.More && scans < least {
			r.f.Fatalf("%s: %+v: %+v, and %d are left to look at", q.name, b, end, scans)
		}

		if !end.More {
			break
		}

		b.After = &end.Last
	}

	if len(want) > 0 {
		r.f.Fatalf("%s: %+v: %d are missing, from %v on", q.name, b, len(want), want[0])
	}
}

// readItems reads items by their ids.
func (r *modelRun) readItems(q *modelQueue) {
	var ids []fdbpq.ID
	for range r.random.IntN(40) {
		ids = append(ids, r.anyID(q))
	}

	n := 0
	err := fdbpq.ReadItems(r.f.ctx, r.f.db, q.target, ids, r.m.now,
		func(i int, item *fdbpq.Browsed) bool {
			want := q.named(ids[i])
			if want != nil && (want.state == fdbpq.Leased || !r.m.expired(want)) {
				r.wantBrowsed(q, item, want, true)
			} else if f := q.done(ids[i]); want == nil && f != nil {
				if !f.is(withoutNext(&item.Item)) || !sameTrail(item.Attempts(), f.trail) ||
					item.State != fdbpq.Done || item.Err != nil {
					r.f.Fatalf("%s: %+v, which is done", q.name, item)
				}
			} else if !errors.Is(item.Err, fdbpq.ErrNotFound) || item.ID != ids[i] {
				r.f.Fatalf("%s: %v, %v, which is gone", q.name, item.ID, item.Err)
			}

			n++
			return true
		})

	if err != nil || n != len(ids) {
		r.f.Fatalf("%d items of %d, %v", n, len(ids), err)
	}
}

// wantBrowsed compares an item with the model, with the attempts of this life if it was read with
// them.
func (r *modelRun) wantBrowsed(
	q *modelQueue, got *fdbpq.Browsed, want *modelItem, attempts bool,
) {
	wantTrail := withLives(want.Headers, nil)
	if attempts {
		wantTrail = q.allTold(want)
	}
	if !sameTrail(got.Attempts(), wantTrail) {
		r.f.Fatalf("%s: %.20q has the attempts %s, want %s", q.name, got.Value,
			written(got.Attempts()), written(wantTrail))
	}

	due := want.due
	if want.state == fdbpq.Ready {
		due = time.Time{}
	}

	if got.Err != nil || !want.is(&got.Item) || got.State != want.state || !got.Due.Equal(due) ||
		got.Deliveries != want.deliveries || got.Reason != want.reason {
		r.f.Fatalf("%s: %.200q at %v, %v, due %v, %d deliveries, %q, %v: want %.200q at %v, %v, "+
			"due %v, %d deliveries, %q",
			q.name, got.Value, got.ID, got.State, got.Due, got.Deliveries, got.Reason, got.Err,
			want.Value, want.ID, want.state, want.due, want.deliveries, want.reason)
	}
}
