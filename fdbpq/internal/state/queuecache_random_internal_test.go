package state

import (
	"bytes"
	"encoding/binary"
	"flag"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random test; 0 picks one")

// What is known of queues is what the store has, whatever was written, and whether or not it was
// committed.
func TestKnownIsStored(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again: go test ./fdbpq/internal/state -run '^%s$' -seed %d", t.Name(), seed)

	for run := range harness.Times(3, 40) {
		r := newCacheRun(t, rand.New(rand.NewPCG(seed, uint64(run))))
		for range 80 {
			r.transaction()
		}
		r.do(r.db.Close())
	}
}

// cacheRun is random transactions of a priority queue and a FIFO queue.
type cacheRun struct {
	*testing.T
	random *rand.Rand
	db     kv.Database
	cache  *QueueCache
	queues []*codec.Layout
	now    time.Time

	gone []TakenItem   // that were popped, and may be restored
	next CountsByQueue // after the open transaction
}

func newCacheRun(t *testing.T, random *rand.Rand) *cacheRun {
	db, err := pebblekv.Open("db", pebblekv.Options{
		FS: vfs.NewMem(), MinFreeSpace: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	r := &cacheRun{T: t, random: random, db: db, now: time.UnixMicro(1.8e15 + random.Int64N(1e6))}
	bound := []int{2_000, 20_000, MaxQueueCache}[random.IntN(3)] // the first two forget a lot
	r.cache = NewQueueCache(bound)
	for n, format := range []codec.ValueFormat{codec.RawValues, codec.TupleValues} {
		space := tuple.NewSubspace(tuple.Tuple{"q", n})
		r.queues = append(r.queues, codec.NewLayout(space, format, n == 1))
	}
	return r
}

// do fails the test if a step of a transaction has failed.
func (r *cacheRun) do(err error) {
	if r.Helper(); err != nil {
		r.Fatal(err)
	}
}

// pairs returns what a transaction sees in a range.
func (r *cacheRun) pairs(g *Ledger, keys kv.Range) []kv.KeyValue {
	pairs, err := g.Tx.Snapshot().GetRange(keys, kv.RangeOptions{}).Get()
	r.do(err)
	return pairs
}

// transaction changes the queues. Some transactions are not committed, and some are those of a
// program that does not tell r.cache.
func (r *cacheRun) transaction() {
	tx, err := r.db.Begin(r.Context(), kv.BeginOptions{})
	r.do(err)
	defer tx.Cancel()
	known, gone := r.cache, slices.Clone(r.gone)
	if r.random.IntN(10) == 0 {
		known = nil
	}

	known.BeginTransaction(tx)
	r.now, r.next = r.now.Add(time.Duration(r.random.IntN(300))*time.Millisecond), CountsByQueue{}
	var ledgers []Ledger
	for _, l := range r.queues {
		ledgers = append(ledgers, NewLedger(tx, l, r.now, known))
		g := &ledgers[len(ledgers)-1]
		for priority, count := range known.Counts(l) {
			least, err := ReadNextCount(l, tx, priority).Get()
			if r.do(err); count < least {
				r.Errorf("the next count of priority %d is %d: known is %d", priority, least, count)
			}
		}
		r.check(g)
	}

	for range 1 + r.random.IntN(6) {
		g := &ledgers[r.random.IntN(len(ledgers))]
		r.change(g)
		r.check(g)
	}
	for n := range ledgers {
		g := &ledgers[n]
		r.do(g.Flush())
		stored := int64(len(r.pairs(g, g.L.ItemRange())))
		if count, err := ReadCounter(tx.Get(g.L.TotalKey())); err != nil || count != stored {
			r.Errorf("%d items, %v: want %d", count, err, stored)
		}
	}

	if r.random.IntN(5) == 0 {
		r.gone = gone
		return
	}
	known.LearnCounts(r.next)
	_, err = tx.Commit().Get()
	r.do(err)
}

// change changes a queue.
func (r *cacheRun) change(g *Ledger) {
	ready, held := r.pairs(g, g.L.ItemRange()), r.pairs(g, g.L.KindRange(codec.KindHeld))
	switch n := r.random.IntN(30); {
	case n < 12:
		r.add(g)
	case n < 19:
		r.take(g, ready)
	case n < 23 && len(held) > 0:
		r.settle(g, held[r.random.IntN(len(held))])
	case n < 25 && len(ready) > 0:
		h, _ := r.readyItem(g, ready[r.random.IntN(len(ready))])
		g.Discard(h)
	case n < 26:
		e := &Expiries{G: g}
		for _, pair := range ready {
			if h, expires := r.readyItem(g, pair); expires && r.random.IntN(3) > 0 {
				e.Items = append(e.Items, h)
			}
		}
		if len(e.Items) > 0 {
			r.do(RemoveExpired(e))
		}
	case n < 28:
		r.gone = slices.DeleteFunc(slices.Clone(r.gone), func(i TakenItem) bool {
			restores := i.L == g.L && r.random.IntN(4) == 0
			if restores {
				r.do(g.Restore(i.Item))
			}
			return restores
		})
	case n < 29:
		r.do(g.Flush())
		_, err := g.Purge()
		r.do(err)
	}
}

// add adds a few items of random sizes.
func (r *cacheRun) add(g *Ledger) {
	for range 1 << r.random.IntN(7) {
		priority := int64(0)
		if !g.L.Fifo {
			priority = r.random.Int64N(3)
		}

		next := r.next[g.L.Prefix]
		if next == nil {
			next = map[int64]int64{}
			r.next[g.L.Prefix] = next
		}
		if _, ok := next[priority]; !ok {
			count, err := ReadNextCount(g.L, g.Tx, priority).Get()
			r.do(err)
			next[priority] = max(count, r.cache.Counts(g.L)[priority])
		}

		m := &codec.Message{Value: bytes.Repeat([]byte{1}, r.random.IntN(1<<r.random.IntN(12)))}
		if r.random.IntN(4) == 0 {
			m.Headers = map[string][]string{"a": {"b"}}
		}
		if r.random.IntN(4) == 0 {
			m.Expires = r.now.Add(time.Minute)
		}
		unique := make([]byte, codec.UniqueSize)
		binary.BigEndian.PutUint64(unique, r.random.Uint64())
		id := codec.NewID(priority, next[priority], r.now, unique, g.L.Flags(m))
		next[priority] = codec.Following(next[priority])
		g.Add(&id, m)
	}
}

// take pops or leases items from both ends, which must be those of left.
func (r *cacheRun) take(g *Ledger, left []kv.KeyValue) {
	want := [2]int{r.random.IntN(8), 0}
	if !g.L.Fifo {
		want[codec.Back] = r.random.IntN(3)
	}
	_, _ = g.FirstHistory().Get()
	_, _ = g.ReadDue(10).Get()
	ends := g.WalkEnds(g.Tx, want, 1+r.random.IntN(5000), 4)
	r.do(ends.Arrive())

	for range r.random.IntN(12) {
		end := codec.End(r.random.IntN(2))
		if want[end] == 0 {
			continue
		}
		s, err := ends.Peek(end)
		if r.do(err); s == nil || len(left) == 0 {
			if s != nil || len(left) > 0 {
				r.Fatalf("end %v: found %v, and %d items are left", end, s, len(left))
			}
			return
		}

		at := (len(left) - 1) * int(end)
		if !bytes.Equal(s.Pair.Key, left[at].Key) || !bytes.Equal(s.Pair.Value, left[at].Value) {
			r.Fatalf("end %v: got %x: want %x", end, s.Pair.Key, left[at].Key)
		}
		left = slices.Delete(left, at, at+1)
		r.do(s.FinishRead())
		r.do(s.ReadMeta(g.Tx, g.L, NoBound))

		past, err := ReadHistory(g.L, g.Tx, &s.Item.ID).Get()
		r.do(err)
		if r.random.IntN(2) == 0 {
			g.Pop(s)
			r.gone = append(r.gone, s.Taken(g.L, past))
		} else {
			h := &codec.Record{ID: s.Item.ID, State: codec.Leased, Due: r.now.Add(time.Hour),
				Value: s.Pair.Value, Parts: s.Parts()}
			h.Fence, h.Wait = codec.NextFence(0), time.Hour
			h.Lasting = codec.LastingOf(&s.Item.Message)
			g.Detach(s.Pair.Key, &h.ID)
			g.ClearExpiry(&h.ID, h.Expires)
			g.Hold(h)
		}
		g.ClearHistory(&s.Item.ID, past)
		ends.NoteTaken(end, s.Pair.Key)
		ends.Walks[end].Drop()
	}
}

// settle acknowledges a lease, with what is known of it, or ends it.
func (r *cacheRun) settle(g *Ledger, pair kv.KeyValue) {
	id, err := g.L.ParseItem(pair.Key)
	r.do(err)
	if r.random.IntN(2) == 0 {
		h, err := codec.ParseRecord(&id, pair.Value)
		r.do(err)
		g.Unhold(h)
		g.Requeue(h)
		return
	}

	look := g.LookUpLeased(&id)
	h, err := look.Anywhere(&id)
	r.do(err)
	g.DetachAnywhere(h)
	g.Delete(h, codec.MemberGone)
	if parts := r.pairs(g, g.L.MetaRange(&id)); len(parts) > 0 {
		r.Errorf("%d keys of %v are left", len(parts), id)
	}
}

// readyItem returns what belongs to a ready item, and whether it expires.
func (r *cacheRun) readyItem(g *Ledger, pair kv.KeyValue) (h *codec.Record, expires bool) {
	id, err := g.L.ParseItem(pair.Key)
	r.do(err)
	s := BeginItem(g.L, g.Tx, &id, 0)
	r.do(s.Load(g.Tx, g.L, pair.Value, true))
	h = &codec.Record{ID: id, State: codec.Ready, Value: pair.Value}
	h.Lasting = codec.LastingOf(&s.Item.Message)
	return h, !h.Expires.IsZero()
}

// check compares what is known of a queue with what the transaction sees.
func (r *cacheRun) check(g *Ledger) {
	r.Helper()
	c := g.cache
	if c == nil {
		return
	}

	size, items := cachedQueueSize+len(g.L.Prefix), r.pairs(g, g.L.ItemRange())
	if w := &c.readAhead; !w.all {
		at, _ := (&readAhead{items: items}).find(w.end)
		items = items[:at]
	}
	same := func(a, b kv.KeyValue) bool {
		return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
	}
	if !slices.EqualFunc(c.readAhead.items, items, same) {
		r.Fatalf("known are %d items: want %d", len(c.readAhead.items), len(items))
	}

	for _, pair := range items {
		size += sizeOfPair(pair)
	}
	for id, known := range c.leased {
		size += sizeOfLeased(known)
		value, err := g.Tx.Get(g.L.HeldKey(&id)).Get()
		r.do(err)
		h, err := codec.ParseRecord(&id, value)
		r.do(err)
		if n := len(r.pairs(g, g.L.MetaRange(&id))); known.Parts != 0 && known.Parts != n {
			r.Errorf("a lease has %d more keys: known are %d", n, known.Parts)
		}

		h.Dropped, h.Parts = len(codec.DecodeValue(g.L.Format, h.Value)), known.Parts
		if h.Due, h.Value = codec.Micros(h.Due), nil; !reflect.DeepEqual(h, known) {
			r.Fatalf("a lease is %+v: known is %+v", h, known)
		}
	}
	if size += countSize*len(c.counts) + turnSize*len(c.turns); c.size != size {
		r.Errorf("the cached queue takes %d bytes: want %d", c.size, size)
	}

	if c.noHistories && len(r.pairs(g, g.L.KindRange(codec.KindHistory))) > 0 {
		r.Error("it is known that no item has a history")
	}
	for _, entry := range r.pairs(g, g.L.KindRange(codec.KindDue)) {
		if at, err := g.L.DueTime(entry.Key); err != nil || at.Before(c.quietUntil) {
			r.Errorf("%v, %v: known is that nothing is due before %v", at, err, c.quietUntil)
		}
	}
}
