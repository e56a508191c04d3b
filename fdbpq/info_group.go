package fdbpq

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
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
	if rows, err := n.groups.Get(); err != nil || len(rows) == 0 {
		return err
	}
	n.ledger.ReadSettings(n.snapshot, n.l)
	settings, err := n.ledger.ReadableSettings()
	if err != nil {
		return err
	}
	limits := popLimits{queueTxn: n.queueTxn}
	limits.setUp(settings)
	loads, cut, err := limits.know(n.groups, infoGroupRows)
	if err != nil {
		return err
	}

	loads = slices.DeleteFunc(loads, func(g state.GroupLoad) bool { return g.Hash == codec.NoGroup })
	n.info.GroupCount = len(loads)
	for _, load := range loads {
		if may, err := limits.may(load.Hash); err != nil {
			return err
		} else if !may && load.Ready > 0 {
			n.info.GroupsAtLimit++
		}
	}

	slices.SortStableFunc(loads, func(a, b state.GroupLoad) int { return cmp.Compare(b.Ready+b.Leased, a.Ready+a.Leased) })
	n.info.MoreGroups = cut || len(loads) > MaxInfoGroups
	return n.nameGroups(loads[:min(len(loads), MaxInfoGroups)])
}

// nameGroups adds groups to the result, with their names, which an item of each has in its headers.
func (n *infos) nameGroups(loads []state.GroupLoad) error {
	for some := range slices.Chunk(loads, n.returned.AtOnce()) {
		var firsts []kv.Future[[]kv.KeyValue]
		for _, load := range some {
			kind := codec.KindGroupReady
			if load.Ready <= 0 {
				kind = codec.KindGroupHeld
			}
			firsts = append(firsts, n.snapshot.GetRange(n.l.GroupItems(kind, load.Hash), kv.RangeOptions{Limit: 1}))
		}

		items := make([]state.Stored, len(some))
		for i, first := range firsts {
			pairs, err := first.Get()
			if err != nil {
				return err
			}
			if len(pairs) > 0 {
				if id, err := n.l.ParseGroupItem(pairs[0].Key); err == nil {
					items[i] = state.BeginItem(n.l, n.snapshot, &id, state.Beginning)
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
