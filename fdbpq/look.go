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
	familyOps
	length kv.Future[[]byte]
}

// inspection is an OpGet or OpRank.
type inspection interface {
	// beginReads starts to read at the place where the item is looked for, up to about that many
	// bytes of items, unless there is no room.
	beginReads(bytes int)
	// beginAlias and follow look for an item that is not there at the place that its alias names.
	beginAlias()
	follow()
	// beginElsewhere begins to look for an item that is not in its queue. It may have to be
	// followed again.
	beginElsewhere()
	// finish sets the result. The error is one of the store.
	finish() error
}

// beginLens starts to read the lengths of queues, again if their counters were written meanwhile.
func beginLens(looks []*queueLooks) {
	for _, q := range looks {
		if q.length == nil || q.ledger.Wrote() {
			q.length = q.snapshot.Get(q.l.TotalKey())
		}
	}
}

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
func (t *txn) readInfos(all []*infos) error {
	for _, n := range all {
		n.beginCounters()
	}

	var firsts []firstItem
	for _, n := range all {
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
	return state.Each(all, (*infos).finish)
}

// inspect runs the OpGets and OpRanks. The error is one of the store.
func (t *txn) inspect(inspections []inspection) error {
	// Each takes up to three values to begin with.
	for some := range slices.Chunk(inspections, (t.returned.AtOnce()+2)/3) {
		share := t.returned.Share(1, len(some))
		for _, one := range some {
			one.beginReads(share)
		}
		for _, one := range some {
			one.beginAlias()
		}
		for _, one := range some {
			one.follow()
		}
		for _, one := range some {
			one.beginElsewhere()
		}
		for _, one := range some {
			one.follow()
		}
		if err := state.Each(some, inspection.finish); err != nil {
			return err
		}
		clear(some) // they hold values
	}
	return nil
}

// rank is an OpRank. It takes how many items other priorities have from their counters, and counts
// the items of its own priority one by one.
type rank struct {
	*queueTxn
	state.IDLookup
	index    int // into txn.ops
	id       ID  // of the job, or of the place of its item
	end      End
	bytes    int                      // about how many to read at once
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
	k.bytes = bytes
	k.readAt(&k.id)
}

// beginAlias implements inspection.
func (k *rank) beginAlias() { k.BeginAlias(k.snapshot, k.l) }

// follow implements inspection.
func (k *rank) follow() {
	if k.Follow() {
		k.readAt(&k.Place)
	}
}

// beginElsewhere implements inspection.
func (k *rank) beginElsewhere() {}

// readAt starts to read the item at a place, and what comes before it.
func (k *rank) readAt(place *ID) {
	r, l := k.snapshot, k.l
	k.Begin(place, state.LookUp(l, r, place))
	key := l.ItemKey(place)
	k.rest = l.PriorityRange(codec.KindItem, place.Priority)
	if k.end == Front {
		k.rest.End = key
	} else {
		k.rest.Begin = kv.SingleKey(key).End
	}
	k.asked = kv.RangeOptions{Limit: rankPage, Bytes: k.bytes}
	k.page = r.GetRange(k.rest, k.asked)

	if l.Fifo {
		return
	}

	// The counters of states have texts, which sort before the priorities.
	all := l.KindRange(codec.KindCounter)
	own := l.CounterKey(place.Priority)
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
	op, result := &k.ops[k.index], &k.results[k.index]
	if k.Err != nil {
		return k.Err
	}
	exists, err := k.Exists()
	if err != nil {
		return err
	}
	if !exists || op.misses(&k.Place) {
		done, err := state.BeginFinished(k.l, k.snapshot, &k.id, 1).Load(k.snapshot, 0)
		kept := err == nil && done != nil && !done.OverBy(k.asOf)
		if kept && !op.misses(&done.Record.ID) {
			return ErrDone
		}
		return cmp.Or(err, notFound(&k.id))
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
