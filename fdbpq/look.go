package fdbpq

import (
	"cmp"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queueLooks is the lens of one queue. All looks read without conflict.
type queueLooks struct {
	part
	length kv.Future[[]byte]
}

// inspection is an OpGet or OpRank.
type inspection interface {
	// beginReads starts to read, up to about that many bytes of items, unless there is no room.
	beginReads(bytes int)
	// finish sets the result. The error is one of the store.
	finish() error
}

// beginLens starts to read the lengths of queues, again if their counters were written meanwhile.
func (t *txOps) beginLens() {
	for _, q := range t.looks {
		if q.length == nil || q.ledger.Wrote() {
			q.length = q.snapshot.Get(q.l.TotalKey())
		}
	}
}

func (t *txOps) finishLens() error { return state.Each(t.looks, (*queueLooks).finish) }

// finish sets the results of the lens.
func (q *queueLooks) finish() error {
	n, err := state.ReadCounter(q.length)
	if err != nil {
		return q.failOps(err, q.indexes...)
	}
	for _, i := range q.indexes {
		q.results[i].Len = n
	}
	return nil
}

// readInfos runs the infos of all queues together. The error is one of the store.
func (t *txOps) readInfos() error {
	for _, n := range t.infos {
		n.beginCounters()
	}

	var firsts []firstItem
	for _, n := range t.infos {
		n.err = n.finishCounters()
		firsts = append(firsts, n.firstItems()...)
	}

	// A few at a time, because they have values.
	for some := range slices.Chunk(firsts, t.returned.AtOnce()) {
		for i := range some {
			some[i].read = t.snapshot.GetRange(some[i].keys, kv.RangeOptions{Limit: 1})
		}
		for i := range some {
			some[i].err = cmp.Or(some[i].err, some[i].finish())
		}
		clear(some)
	}
	return state.Each(t.infos, (*infos).finish)
}

// readItems runs the infos, OpGets and OpRanks. The error is one of the store.
func (t *txOps) readItems() error {
	if err := t.readInfos(); err != nil {
		return err
	}

	// Each of the others takes up to three values to begin with.
	for some := range slices.Chunk(t.inspections, (t.returned.AtOnce()+2)/3) {
		share := t.returned.Share(1, len(some))
		for _, one := range some {
			one.beginReads(share)
		}
		if err := state.Each(some, inspection.finish); err != nil {
			return err
		}
		clear(some) // they hold values
	}
	return nil
}

// get is an OpGet.
type get struct {
	*queueTxn
	index int // into txn.ops
	id    ID
	begun bool
	where state.Lookup
	rest  state.Stored // what else belongs to the item
}

// beginReads implements inspection.
func (g *get) beginReads(bytes int) {
	if g.returned.Refused {
		return
	}
	g.begun = true
	g.where = state.LookUp(g.l, g.snapshot, &g.id)
	g.rest = state.BeginItem(g.l, g.snapshot, &g.id, bytes)
}

// finish implements inspection.
func (g *get) finish() error { return g.failOps(g.find(), g.index) }

// find sets the result. The error is for the operation, or one of the store.
func (g *get) find() error {
	if !g.begun {
		return state.ErrNoRoom
	}
	h, err := g.where.Anywhere(&g.id)
	if err != nil {
		return err
	}
	if h == nil {
		return notFound(&g.id)
	}

	g.rest.SetOwn(g.l, h.Value)
	item, err := g.rest.Whole(g.snapshot, g.l, &g.returned)
	if err != nil {
		return err
	}

	// A leased item never expires.
	if h.State != Leased && codec.Expired(item.Expires, g.now) {
		return notFound(&g.id)
	}
	result := &g.results[g.index]
	result.Item, result.State = item, h.State
	return nil
}

// rank is an OpRank. It takes how many items other priorities have from their counters, and counts
// the items of its own priority one by one.
type rank struct {
	*queueTxn
	index    int // into txn.ops
	id       ID
	end      End
	item     state.Lookup
	counters kv.Future[[]kv.KeyValue] // of the priorities that come before; nil in a FIFO queue
	rest     kv.Range                 // what is not counted yet of its priority
	page     kv.Future[[]kv.KeyValue] // the first items there
	asked    kv.RangeOptions          // for the page
}

const (
	// MaxRank is the largest number of items of one priority, and of other priorities, that an
	// OpRank counts.
	MaxRank = 10_000
	// maxRankBytes limits the values that it reads, because counting items reads their values.
	maxRankBytes = 64 << 20

	rankPage = 1024
)

// beginReads implements inspection.
func (k *rank) beginReads(bytes int) {
	r, l := k.snapshot, k.l
	k.item = state.LookUp(l, r, &k.id)
	key := l.ItemKey(&k.id)
	k.rest = l.PriorityRange(codec.KindItem, k.id.Priority)
	if k.end == Front {
		k.rest.End = key
	} else {
		k.rest.Begin = kv.SingleKey(key).End
	}
	k.asked = kv.RangeOptions{Limit: rankPage, Bytes: bytes}
	k.page = r.GetRange(k.rest, k.asked)

	if l.Fifo {
		return
	}

	// The counters of states have texts, which sort before the priorities.
	all := l.KindRange(codec.KindCounter)
	own := l.CounterKey(k.id.Priority)
	before := kv.Range{Begin: append(l.Key(codec.KindCounter, 1), firstNotText), End: own}
	if k.end == Back {
		before = kv.Range{Begin: kv.SingleKey(own).End, End: all.End}
	}
	k.counters = r.GetRange(before, kv.RangeOptions{Limit: MaxRank + 1})
}

// firstNotText sorts after all texts in a tuple, such as the names of the counters of states, and
// before all numbers.
const firstNotText = 0x03

// finish implements inspection.
func (k *rank) finish() error { return k.failOps(k.count(), k.index) }

// count sets the result. The error is for the operation, or one of the store.
func (k *rank) count() error {
	result := &k.results[k.index]
	exists, err := k.item.Exists()
	if err != nil {
		return err
	}
	if !exists {
		return notFound(&k.id)
	}

	if k.counters != nil {
		counters, err := k.counters.Get()
		if err != nil {
			return err
		}
		if len(counters) > MaxRank {
			counters, result.RankAtLeast = counters[:MaxRank], true
		}
		for _, counter := range counters {
			n, err := state.ParseLength(counter.Value)
			if err != nil {
				return err
			}
			result.Rank += n
		}
	}

	n, all, err := k.countOwn()
	result.Rank += n
	result.RankAtLeast = result.RankAtLeast || !all
	return err
}

// countOwn counts the items of the same priority, page by page.
func (k *rank) countOwn() (n int64, all bool, err error) {
	for bytes := 0; ; {
		pairs, err := k.page.Get()
		if err != nil {
			return 0, false, err
		}
		n += int64(len(pairs))
		if !k.asked.Full(pairs) {
			return min(n, MaxRank), n <= MaxRank, nil
		}

		for _, pair := range pairs {
			bytes += len(pair.Value)
		}
		if n > MaxRank || bytes > maxRankBytes {
			return min(n, MaxRank), false, nil
		}

		k.rest.Begin = kv.SingleKey(pairs[len(pairs)-1].Key).End
		k.asked.Bytes = k.returned.Page()
		k.page = k.snapshot.GetRange(k.rest, k.asked)
	}
}
