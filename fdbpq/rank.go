package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// rank is an OpRank. The counters say how many items other priorities have, and the
// items of its own priority are counted one by one.
type rank struct {
	*queueTxn
	index    int // into txn.ops
	id       ID
	end      End
	item     state.Lookup
	counters kv.Future[[]kv.KeyValue] // of the priorities that come before; nil in a FIFO queue
	rest     kv.Range                 // of its priority, what is not counted yet
	page     kv.Future[[]kv.KeyValue] // the first of these
	asked    kv.RangeOptions          // for the page
}

const (
	// MaxRank is the largest number of items of one priority, and of other priorities, that an
	// OpRank counts.
	MaxRank = 10_000
	// maxRankBytes limits the values that are read on the way: items cannot be counted without.
	maxRankBytes = 64 << 20

	firstRankPage = 64
	maxRankPage   = 1024
)

// beginReads implements inspection.
func (k *rank) beginReads(bytes int) {
	r, l := k.snapshot, k.l
	k.item = state.LookUp(l, r, &k.id)
	key := l.ItemKey(&k.id)
	k.rest = l.PriorityRange(k.id.Priority)
	if k.end == Front {
		k.rest.End = key
	} else {
		k.rest.Begin = kv.SingleKey(key).End
	}
	k.asked = kv.RangeOptions{Limit: firstRankPage, Bytes: bytes}
	k.page = r.GetRange(k.rest, k.asked)

	if l.Fifo {
		return
	}
	all := l.KindRange(codec.KindCounter)
	own := l.CounterKey(k.id.Priority)
	before := kv.Range{Begin: append(l.Key(codec.KindCounter, 1), firstNotText), End: own}
	if k.end == Back {
		before = kv.Range{Begin: kv.SingleKey(own).End, End: all.End}
	}
	k.counters = r.GetRange(before, kv.RangeOptions{Limit: MaxRank + 1})
}

// firstNotText follows all texts in a tuple, such as the names of the counters of states, and
// comes before all numbers.
const firstNotText = 0x03

// finish implements inspection.
func (k *rank) finish() error { return k.failOps(k.count(), k.index) }

// count sets the result. The error is ErrCorrupt or one of the store.
func (k *rank) count() error {
	result := &k.results[k.index]
	exists, err := k.item.Exists()
	if err != nil {
		return err
	}
	if !exists {
		result.Err = notFound(&k.id)
		return nil
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
		k.asked = kv.RangeOptions{Limit: min(4*k.asked.Limit, maxRankPage), Bytes: k.returned.Page()}
		k.page = k.snapshot.GetRange(k.rest, k.asked)
	}
}
