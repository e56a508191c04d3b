package fdbpq_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// twins is the same queues in two stores: in the first the Batcher knows what it need not read, in the
// second it knows nothing. Whatever is for both has an element for each.
type twins struct {
	*testing.T
	seed    uint64
	random  *rand.Rand
	now     time.Time
	stores  [2]*fixture
	others  [2]*fdbpq.Batcher
	failing *commitFailer // of the first
	queues  [2][]fdbpq.Target

	pushed int
	ids    [][2]fdbpq.ID // of items, most of which have moved or gone
	leases []twinLease
	popped []twinPop   // by the last batch
	dues   []time.Time // when something falls due, or fell
}

type twinOp [2]fdbpq.Op

// twinLease is a lease of an item in one of the queues.
type twinLease struct {
	queue  int
	tokens [2]fdbpq.Token
}

// twinPop is an item that nobody received.
type twinPop struct {
	queue int
	items [2]fdbpq.Item
}

// What a Batcher knows makes no difference: the results of random batches are the same, and so are the keys at the
// end, whatever comes between the batches, and whichever of them are not committed.
func TestKnownRandom(t *testing.T) {
	random, seed := newRandom(t)
	db := &commitFailer{Database: openPebble(t, vfs.NewMem())}
	w := &twins{T: t, seed: seed, random: random, now: time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), failing: db}
	for n, db := range []kv.Database{db, memkv.New(memkv.Options{})} {
		f := newFixtureIn(t, db, "pq", "q", fdbpq.RawValues)
		f.batcher.SetNow(func() time.Time { return w.now })
		w.stores[n], w.others[n] = f, fdbpq.NewBatcher(db, f.Keyspace)
		w.others[n].SetNow(func() time.Time { return w.now })
		w.queues[n] = []fdbpq.Target{f.queue("a"), f.queue("b"), f.fifoQueue("a"), f.queue("a-dead"), f.fifoQueue("a-dead")}
	}
	for range 600 {
		w.step()
	}
	for n := range w.queues[0] {
		w.apply(w.op(n, fdbpq.Op{Kind: fdbpq.OpInfo}), w.op(n, fdbpq.Op{Kind: fdbpq.OpSettings}))
	}
	w.wantSameKeys()
}

func (w *twins) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

// step lets time pass and makes one or two batches, which may follow something else.
func (w *twins) step() {
	w.pass()
	if w.random.IntN(4) == 0 && len(w.popped) > 0 {
		var back []twinOp
		for _, p := range w.popped {
			back = append(back, twinOp{opRestore(w.queues[0][p.queue], p.items[0]), opRestore(w.queues[1][p.queue], p.items[1])})
		}
		w.apply(back...)
	}
	batch := w.batch()
	switch w.random.IntN(16) {
	case 0, 1:
		w.applyFailed(batch) // and then again
	case 2:
		w.applyFailed(w.batch())
		for n := range w.queues[0] { // what is due may have come back
			batch = append(batch, w.op(n, opLen))
		}
	case 3:
		w.sweep()
	case 4:
		w.applyBy(w.others, w.batch())
	case 5:
		w.applyAlone(w.batch())
	case 6, 7:
		w.applyTogether(batch, append(w.batch(), w.push(0))) // if it only read, it could be before the first
		return
	}
	w.apply(batch...)
}

// pass lets time pass: nothing, a little, until something falls due or just before, or the clock is set back.
func (w *twins) pass() {
	switch w.random.IntN(10) {
	case 0, 1, 2:
		w.now = w.now.Add(time.Duration(w.random.Int64N(int64(time.Second))))
	case 3, 4, 5:
		if len(w.dues) > 0 {
			w.now = w.dues[w.random.IntN(len(w.dues))].Add(time.Duration(w.random.IntN(1500) - 700))
		}
	case 6:
		if w.random.IntN(4) == 0 {
			w.now = w.now.Add(-time.Duration(w.random.Int64N(int64(5 * time.Second))))
		}
	}
}

// op returns an operation on a queue.
func (w *twins) op(queue int, o fdbpq.Op) twinOp {
	return twinOp{op(o, w.queues[0][queue]), op(o, w.queues[1][queue])}
}

func (w *twins) batch() (ops []twinOp) {
	for range 1 + w.random.IntN(4) {
		ops = append(ops, w.randomOp())
	}
	return ops
}

func (w *twins) randomOp() twinOp {
	queue := min(w.random.IntN(12)/2, len(w.queues[0])-1)
	if w.random.IntN(3) == 0 {
		queue = 0
	}
	switch w.random.IntN(17) {
	case 0, 1, 2, 3:
		return w.push(queue)
	case 4:
		return w.op(queue, fdbpq.Op{Kind: fdbpq.OpPop, End: w.end(queue), Waits: true})
	case 5, 6, 7:
		return w.op(queue, fdbpq.Op{Kind: fdbpq.OpLease, End: w.end(queue), Waits: true, Lease: w.seconds(3)})
	case 8, 9, 10, 11, 12:
		return w.settle()
	case 13:
		return w.edit(queue)
	case 14:
		return w.configure(queue)
	default:
		look := []fdbpq.OpKind{fdbpq.OpLen, fdbpq.OpInfo, fdbpq.OpPeek, fdbpq.OpSettings}
		return w.op(queue, fdbpq.Op{Kind: look[w.random.IntN(len(look))]})
	}
}

// end returns an end that the queue is served from.
func (w *twins) end(queue int) fdbpq.End {
	if _, fifo := w.queues[0][queue].(*fdbpq.Queue); fifo || w.random.IntN(3) > 0 {
		return fdbpq.Front
	}
	return fdbpq.Back
}

// seconds returns a duration up to n seconds, or now and then 0.
func (w *twins) seconds(n int64) time.Duration {
	if w.random.IntN(4) == 0 {
		return 0
	}
	return time.Second + time.Duration(w.random.Int64N(n*int64(time.Second)))
}

func (w *twins) push(queue int) twinOp {
	w.pushed++
	o := opPush(nil, w.random.Int64N(3), fmt.Sprint("item ", w.pushed))
	switch w.random.IntN(5) {
	case 0:
		o.Delay = w.seconds(3)
	case 1:
		o.TTL = w.seconds(4)
	case 2:
		o.Message.Unique, o.TTL = fmt.Sprint("key ", w.random.IntN(3)), w.seconds(4)
	}
	return w.op(queue, o)
}

// settle returns an operation with a token, which may not hold any more.
func (w *twins) settle() twinOp {
	if len(w.leases) == 0 {
		return w.push(0)
	}
	lease := w.leases[max(len(w.leases)-1-w.random.IntN(8), 0)]
	o := fdbpq.Op{Kind: []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm}[w.random.IntN(5)]}
	switch {
	case o.Kind == fdbpq.OpExtend:
		o.Lease = w.seconds(3)
	case o.Kind == fdbpq.OpNak && w.random.IntN(2) == 0:
		o.Delay = []time.Duration{fdbpq.Backoff, 1, time.Second}[w.random.IntN(3)]
	}
	both := w.op(lease.queue, o)
	both[0].Token, both[1].Token = lease.tokens[0], lease.tokens[1]
	return both
}

// edit returns an operation on an item wherever it is, or on many.
func (w *twins) edit(queue int) twinOp {
	switch w.random.IntN(8) {
	case 0:
		return w.op(queue, fdbpq.Op{Kind: fdbpq.OpPurge, State: fdbpq.ItemState(w.random.IntN(4))})
	case 1, 2, 3:
		return w.op(3+w.random.IntN(2), fdbpq.Op{Kind: fdbpq.OpRedrive})
	}
	o := fdbpq.Op{Kind: fdbpq.OpMove, Priority: w.random.Int64N(3)}
	if w.random.IntN(4) == 0 {
		o.Kind = fdbpq.OpRemove
	}
	both := w.op(0, o)
	if len(w.ids) > 0 {
		ids := w.ids[max(len(w.ids)-1-w.random.IntN(20), 0)]
		both[0].ID, both[1].ID = ids[0], ids[1]
	}
	return both
}

// configure returns a change of some of the settings; with the priority queues, a is the dead-letter queue of b.
func (w *twins) configure(queue int) twinOp {
	r, dead := w.random, []string{"", ""}
	if queue == 1 {
		dead[0] = "a"
	}
	max, backoff, ttl, pause, items, leased := r.Int64N(4), w.seconds(2), w.seconds(5), w.now.Add(w.seconds(2)), 4*r.Int64N(4), r.Int64N(4)
	discard, letters, field := []string{"", fdbpq.DiscardOld}[r.IntN(2)], dead[r.IntN(2)], r.IntN(7)
	return w.op(queue, fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) {
		switch field {
		case 0:
			*s = fdbpq.Settings{}
		case 1:
			s.MaxDeliver, s.DeadLetter = max, letters
		case 2:
			s.Backoff = []time.Duration{backoff}
		case 3:
			s.TTL = ttl
		case 4:
			s.PauseUntil = pause
		case 5:
			s.MaxItems, s.MaxBytes, s.Discard = items, items*20, discard
		case 6:
			s.MaxLeased = leased
		}
	}})
}

// side returns the operations for one of the stores.
func side(n int, batch []twinOp) (ops []fdbpq.Op) {
	for _, o := range batch {
		ops = append(ops, o[n])
	}
	return ops
}

func (w *twins) apply(batch ...twinOp) {
	w.Helper()
	w.applyBy([2]*fdbpq.Batcher{w.stores[0].batcher, w.stores[1].batcher}, batch)
}

func (w *twins) applyBy(batchers [2]*fdbpq.Batcher, batch []twinOp) {
	w.Helper()
	var results [2][]fdbpq.Result
	for n := range results {
		var err error
		if results[n], err = batchers[n].Apply(w.stores[n].ctx, side(n, batch)); err != nil {
			w.fail("Apply: %v", err)
		}
	}
	w.compare(batch, results)
}

// applyTogether starts the second of two batches before it waits for the first.
func (w *twins) applyTogether(first, second []twinOp) {
	w.Helper()
	var results [2][2][]fdbpq.Result // by batch
	for n, f := range w.stores {
		a := f.batcher.Start(f.ctx, side(n, first))
		b := f.batcher.Start(f.ctx, side(n, second))
		for i, p := range []*fdbpq.Pending{a, b} {
			var err error
			if results[i][n], err = p.Wait(); err != nil {
				w.fail("batch %d: %v", i+1, err)
			}
		}
	}
	w.compare(first, results[0])
	w.compare(second, results[1])
}

// applyAlone applies the operations in transactions that no Batcher has made.
func (w *twins) applyAlone(batch []twinOp) {
	w.Helper()
	var results [2][]fdbpq.Result
	for n, f := range w.stores {
		var err error
		results[n], err = do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) { return fdbpq.Apply(tx, side(n, batch), w.now) })
		if err != nil {
			w.fail("Apply: %v", err)
		}
	}
	w.compare(batch, results)
}

// applyFailed applies a batch to the first store that is not committed, unless it only reads.
func (w *twins) applyFailed(batch []twinOp) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.stores[0].ctx)
	defer cancel()
	w.failing.next = true
	if w.random.IntN(2) == 0 {
		w.failing.cancel = cancel
	}
	_, err := w.stores[0].batcher.Apply(ctx, side(0, batch))
	if err == nil && !w.failing.next || err != nil && !errors.Is(err, errCommit) && !errors.Is(err, context.Canceled) {
		w.fail("a batch whose commit fails: %v", err)
	}
	w.failing.next, w.failing.cancel = false, nil
}

// sweep does what is due.
func (w *twins) sweep() {
	for n, f := range w.stores {
		b := fdbpq.NewBatcher(f.db, f.Keyspace)
		b.SetNow(func() time.Time { return w.now })
		if _, err := b.Apply(f.ctx, sweeps(w.queues[n])); err != nil {
			w.fail("sweep: %v", err)
		}
	}
}

// compare compares the results of a batch, and learns of its items.
func (w *twins) compare(batch []twinOp, results [2][]fdbpq.Result) {
	w.Helper()
	w.popped = nil // what this batch has pushed may come before or after those: counts may be higher than necessary
	for i, both := range batch {
		a, b := &results[0][i], &results[1][i]
		if got, want := resultText(a), resultText(b); got != want {
			w.fail("operation %d of kind %d at %v:\ngot  %s\nwant %s", i, both[0].Kind, w.now, got, want)
		}
		if a.Err != nil {
			continue
		}
		queue := slices.Index(w.queues[0], both[0].Queue)
		switch both[0].Kind {
		case fdbpq.OpPush, fdbpq.OpMove:
			if queue == 0 {
				w.ids = append(w.ids, [2]fdbpq.ID{a.Item.ID, b.Item.ID})
			}
			w.dues = append(w.dues, w.now.Add(both[0].TTL))
		case fdbpq.OpPop:
			w.popped = append(w.popped, twinPop{queue, [2]fdbpq.Item{a.Item, b.Item}})
		case fdbpq.OpLease:
			w.leases = append(w.leases, twinLease{queue, [2]fdbpq.Token{a.Lease.Token, b.Lease.Token}})
		}
		for _, at := range []time.Time{a.NextDue, a.Lease.Until} {
			if !at.IsZero() {
				w.dues = append(w.dues, at)
			}
		}
		w.dues = w.dues[max(len(w.dues)-10, 0):]
	}
}

// resultText is a result without what is random.
func resultText(r *fdbpq.Result) string {
	failed, letter := fmt.Sprint(r.Err), fdbpq.DeadLetter{}
	if errors.Is(r.Err, fdbpq.ErrNotFound) { // it says which
		failed = "not found"
	}
	if r.Item.DeadLetter != nil {
		letter = *r.Item.DeadLetter
	}
	text := fmt.Sprintf("%s %q priority %d pushed %v expires %v unique %q dead %+v duplicate %t leased until %v, %d times, fence %d next %v freed %t len %d progress %+v",
		failed, r.Item.Value, r.Item.ID.Priority, r.Item.PushedAt, r.Item.Expires, r.Item.Unique, letter, r.Duplicate,
		r.Lease.Until, r.Lease.Deliveries, r.Lease.Token.Fence>>48, r.NextDue, r.Freed, r.Len, r.Progress)
	if r.Info != nil {
		text += fmt.Sprintf(" %+v", *r.Info)
	}
	if r.Settings != nil {
		text += fmt.Sprintf(" %+v", *r.Settings)
	}
	return text
}

// wantSameKeys compares all keys of the queues.
func (w *twins) wantSameKeys() {
	w.Helper()
	for _, root := range []string{"pq", "q", "pq-queues", "q-queues"} {
		got, want := pairTexts(w.stores[0].stored(root), root), pairTexts(w.stores[1].stored(root), root)
		for _, text := range got {
			if !slices.Contains(want, text) {
				w.Errorf("seed %d: only with what the Batcher knows: %s", w.seed, text)
			}
		}
		for _, text := range want {
			if !slices.Contains(got, text) {
				w.Errorf("seed %d: only without what the Batcher knows: %s", w.seed, text)
			}
		}
	}
}

// pairTexts returns pairs with the places of items among all in place of their counts and random parts, and
// without the random part of fences.
func pairTexts(pairs []kv.KeyValue, root string) (texts []string) {
	type id struct{ count, random any }
	var ids []id // in order
	for _, pair := range pairs {
		key, err := tuple.Unpack(pair.Key)
		if n := len(key); err == nil && n > 4 && (key[2] == "i" || key[2] == "h") {
			ids = append(ids, id{key[n-2], key[n-1]})
		}
	}
	for _, pair := range pairs {
		key, value := pair.Key, pair.Value
		if fence := fenceIn(pair); fence > 1 {
			value = bytes.Replace(value, tuple.Tuple{fence}.Pack(), fmt.Appendf(nil, "<fence %d>", fence>>48), 1)
		}
		for n, id := range ids {
			packed, place := tuple.Tuple{id.count, id.random}.Pack(), fmt.Appendf(nil, "<%d>", n)
			key, value = bytes.ReplaceAll(key, packed, place), bytes.ReplaceAll(value, packed, place)
		}
		texts = append(texts, fmt.Sprintf("%q = %q", key, value))
	}
	return texts
}

// fenceIn returns the fence in a held item or in a history, 0 in other pairs.
func fenceIn(pair kv.KeyValue) int64 {
	key, err := tuple.Unpack(pair.Key)
	if err != nil || len(key) < 5 {
		return 0
	}
	record, at := pair.Value, 1
	switch key[2] {
	case "h":
		n, used := binary.Uvarint(record)
		record, at = record[used:used+int(n)], 3
	case "a":
	default:
		return 0
	}
	content, err := tuple.Unpack(record)
	if err != nil {
		return 0
	}
	fence, _ := content[at].(int64)
	return fence
}
