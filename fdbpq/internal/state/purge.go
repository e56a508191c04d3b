package state

import (
	"bytes"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
)

// Purge removes all items, however many, and returns how many there were by the counters. The
// caller must have flushed all ledgers of the queue. Purge clears ranges, so it also removes what
// other programs left there. Message ids stay until their window is over, and items that staged
// pops have yet to collect stay as well.
//
// Purge conflicts with everything that changes the number of items. Other changes that commit while
// it runs are to items that it removes, and go with them. The error is ErrManyRates, and then
// nothing has changed, or one of the store.
func (g *Ledger) Purge() (items int64, err error) {
	counters := [][]byte{g.L.TotalKey()}
	for _, s := range codec.HeldStates {
		counters = append(counters, g.L.StateCounterKey(s))
	}

	for _, key := range counters {
		n, err := ReadCounter(g.Tx.Get(key))
		if codec.UnlessCorrupt(err) != nil {
			return 0, err
		}
		items += n
	}

	staged, err := g.uncollected()
	if err != nil {
		return 0, err
	}

	entries, err := g.dueBesideItems()
	if err != nil {
		return 0, err
	}

	for _, kind := range codec.ItemKinds {
		g.Tx.ClearRange(g.L.AllOf(kind))
	}

	for _, entry := range entries {
		g.Tx.Set(entry, []byte{})
	}

	g.wrote = true
	g.facts.forgetItems()
	clear(*g.turns())
	return items, g.clearBeside(staged)
}

// clearBeside clears what belongs to items besides their own keys, except for items that staged
// pops have yet to collect. Only their bytes count from then on.
func (g *Ledger) clearBeside(staged []kv.KeyValue) error {
	counts := g.CountsBytes()
	g.Tx.Clear(g.L.BytesKey())
	g.setCounted(counts)
	g.Tx.ClearRange(g.L.AllOf(codec.KindUnique))

	// Histories and ("m") keys go as the ranges between those of the staged items.
	slices.SortFunc(staged, func(a, b kv.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	histories, metas := g.L.AllOf(codec.KindHistory), g.L.AllOf(codec.KindMeta)
	for _, pair := range staged {
		id, err := g.L.ParseItem(pair.Key)
		if err != nil {
			return err
		}

		if counts {
			size, err := g.SizeOf(&codec.Record{ID: id, Value: pair.Value})
			if err != nil {
				return err
			}
			g.addBytes(&id, size)
		}

		rest := BeginItem(g.L, g.Tx, &id, Beginning)
		lasting, err := rest.Lasting()
		if codec.UnlessCorrupt(err) != nil {
			return err
		}

		g.keepUnique(&id, lasting.Unique)

		histories = g.clearUpTo(histories, g.L.HistoryKey(&id))
		metas = g.clearUpTo(metas, g.L.IDKey(codec.KindMeta, &id))
	}

	g.Tx.ClearRange(histories)
	g.Tx.ClearRange(metas)
	return nil
}

// clearUpTo clears the keys of a range before those that begin with kept, and returns the range
// behind them.
func (g *Ledger) clearUpTo(keys kv.Range, kept []byte) kv.Range {
	g.Tx.ClearRange(kv.Range{Begin: keys.Begin, End: kept})
	return kv.Range{Begin: append(slices.Clone(kept), 0xff), End: keys.End}
}

// dueBesideItems returns the entries of the time index for everything but items. The error is
// ErrManyRates if there are too many, or one of the store.
func (g *Ledger) dueBesideItems() (entries [][]byte, err error) {
	for _, rows := range []struct {
		keys kv.Range
		due  func(value []byte) time.Time // zero for what cannot be read
	}{
		{g.L.RecordRange(codec.ScheduleRecord), func(value []byte) (at time.Time) {
			if r, err := schedule.Parse(value); err == nil {
				at = r.Next
			}
			return at
		}},
		{g.L.RecordRange(codec.ConsumerRecord), codec.ConsumerExpires},
		{g.L.AllOf(codec.KindBucket), codec.BucketRowDue},
		{codec.Within(g.L.PartPrefix(codec.PartAnswer)), func(value []byte) (at time.Time) {
			if a, err := codec.ParseAnswer(value); err == nil {
				at = a.Deadline
			}
			return at
		}},
		{codec.Within(g.L.PartPrefix(codec.PartClaim)), func(value []byte) time.Time {
			at, _, _ := codec.ParseClaim(value)
			return at
		}},
	} {
		pairs, err := g.Tx.GetRange(rows.keys, kv.RangeOptions{Limit: MostGroupRows}).Get()
		if err != nil {
			return nil, err
		}

		if len(pairs) == MostGroupRows {
			return nil, codec.ErrManyRates
		}

		for _, pair := range pairs {
			if at := rows.due(pair.Value); !at.IsZero() {
				entries = append(entries, g.L.DueKey(at, pair.Key))
			}
		}
	}

	return entries, nil
}
