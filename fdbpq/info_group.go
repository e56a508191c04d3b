package fdbpq

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// infoGroupRows is the most counters of groups that an OpInfo reads.
const infoGroupRows = 2_000

// beginGroups starts to read the counters of groups.
func (n *infos) beginGroups() {
	n.groups = n.snapshot.GetRange(n.l.GroupCounters(), kv.RangeOptions{Limit: infoGroupRows})
}

// finishGroups sets what the result says of groups. The error is ErrCorrupt or one of the store.
func (n *infos) finishGroups() error {
	if n.groups == nil {
		return nil
	}
	loads, cut, err := state.GroupLoads(n.l, n.groups, infoGroupRows)
	if err != nil {
		return err
	}

	loads = slices.DeleteFunc(loads, func(g state.GroupLoad) bool { return g.Hash == codec.NoGroup })
	if len(loads) == 0 {
		return nil
	}
	n.info.GroupCount = len(loads)
	if n.info.GroupsAtLimit, err = n.countAtLimit(loads); err != nil {
		return err
	}

	slices.SortStableFunc(loads, func(a, b state.GroupLoad) int { return cmp.Compare(b.Ready+b.Leased, a.Ready+a.Leased) })
	n.info.MoreGroups = cut || len(loads) > MaxInfoGroups
	return n.nameGroups(loads[:min(len(loads), MaxInfoGroups)])
}

// countAtLimit returns how many groups have ready items that are passed over.
func (n *infos) countAtLimit(loads []state.GroupLoad) (count int, err error) {
	n.ledger.ReadSettings(n.snapshot, n.l)
	set, err := n.ledger.ReadableSettings()
	if err != nil || !set.LimitsGroups() {
		return 0, err
	}

	buckets := map[codec.GroupHash][]byte{}
	rate, _ := settings.ParseRate(set.RatePerGroup)
	if rate.Count > 0 {
		read := n.snapshot.GetRange(n.l.GroupBuckets(), kv.RangeOptions{Limit: state.MostGroupRows})
		if buckets, err = groupBuckets(n.l, read); err != nil {
			return 0, err
		}
	}

	for _, load := range loads {
		full := set.MaxLeasedPerGroup > 0 && load.Leased >= set.MaxLeasedPerGroup
		if row := buckets[load.Hash]; row != nil {
			at, err := state.KnownBucket(load.Hash, rate, row).Next(n.asOf)
			if err != nil {
				return 0, err
			}
			full = full || !at.IsZero()
		}
		if full && load.Ready > 0 {
			count++
		}
	}
	return count, nil
}

// groupBuckets waits for rows of rates, and returns those of groups.
func groupBuckets(l *codec.Layout, read kv.Future[[]kv.KeyValue]) (map[codec.GroupHash][]byte, error) {
	pairs, err := read.Get()
	if err != nil {
		return nil, err
	}
	buckets := make(map[codec.GroupHash][]byte, len(pairs))
	for _, pair := range pairs {
		hash, err := l.ParseBucketKey(pair.Key)
		if err != nil {
			return nil, err
		}
		buckets[hash] = pair.Value
	}
	return buckets, nil
}

// nameGroups adds groups to the result, with their names, which an item of each has in its headers.
func (n *infos) nameGroups(loads []state.GroupLoad) error {
	for some := range slices.Chunk(loads, n.returned.AtOnce()) {
		var firsts [][2]kv.Future[[]kv.KeyValue]
		for _, load := range some {
			first := kv.RangeOptions{Limit: 1}
			firsts = append(firsts, [2]kv.Future[[]kv.KeyValue]{
				n.snapshot.GetRange(n.l.GroupItems(codec.KindGroupReady, load.Hash), first),
				n.snapshot.GetRange(n.l.GroupItems(codec.KindGroupHeld, load.Hash), first),
			})
		}

		items := make([]state.Stored, len(some))
		for i := range some {
			for _, first := range firsts[i] {
				pairs, err := first.Get()
				if err != nil {
					return err
				}
				if len(pairs) == 0 {
					continue
				}
				if id, err := n.l.ParseGroupItem(pairs[0].Key); err == nil {
					items[i] = state.BeginItem(n.l, n.snapshot, &id, state.Beginning)
					break
				}
			}
		}

		for i, load := range some {
			if _, err := items[i].Lasting(); err != nil {
				return err
			}
			if items[i].Cut && items[i].Item.Headers == nil { // very large headers
				if err := items[i].ReadRest(n.snapshot, n.l, state.SweepBytes); err != nil {
					return err
				}
			}
			if name := items[i].Item.Group(); name != "" {
				n.info.Groups = append(n.info.Groups, GroupCount{strings.Clone(name), load.Ready, load.Leased})
			}
			items[i] = state.Stored{} // it holds values
		}
	}

	slices.SortFunc(n.info.Groups, func(a, b GroupCount) int { return cmp.Compare(a.Group, b.Group) })
	return nil
}

// noteCorrupt makes what cannot be read the error of the infos, and returns any other error.
func (n *infos) noteCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		n.err = cmp.Or(n.err, err)
		return nil
	}
	return err
}
