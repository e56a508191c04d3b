package fdbpq

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// infos is the OpInfos on one queue, which share one result.
type infos struct {
	familyOps
	limit int // of priorities, from either end; 0 without priorities

	total       kv.Future[[]byte]
	front, back kv.Future[[]kv.KeyValue] // counters
	next        kv.Future[[]kv.KeyValue] // the first entry of the time index
	groups      kv.Future[[]kv.KeyValue] // counters of groups; nil without priorities
	finished    kv.Future[[]byte]        // a counter; nil without priorities

	info Info
	err  error
}

// add adds an operation.
func (n *infos) add(i, limit int) {
	n.note(i)
	switch {
	case limit < 0:
		return
	case limit == 0:
		limit = MaxInfoPriorities
	}
	n.limit = max(n.limit, min(limit, MaxInfoPriorities)/2, 1)
}

// beginCounters starts to read the counters, and what falls due next.
func (n *infos) beginCounters() {
	r := n.snapshot
	counters := n.l.KindRange(codec.KindCounter)
	n.total = r.Get(n.l.TotalKey())

	// The counters of states have texts, which sort before the priorities.
	n.front = r.GetRange(counters, kv.RangeOptions{Limit: n.limit + len(codec.HeldStates)})
	if n.limit == 0 {
		return
	}

	if !n.l.Fifo {
		n.back = r.GetRange(counters, kv.RangeOptions{Limit: n.limit, Reverse: true})
	}
	n.next = r.GetRange(n.l.KindRange(codec.KindDue), kv.RangeOptions{Limit: 1})
	n.groups = r.GetRange(n.l.GroupCounters(), kv.RangeOptions{Limit: n.bounds.groupRows})
	n.finished = r.Get(n.l.FinishedCounterKey())
}

// finish reads the rest, and sets the results. The error is one of the store.
func (n *infos) finish() error {
	err := n.err
	if err == nil {
		err = n.finishGroups()
	}
	if err == nil { // all OpInfos on the queue have one result
		for _, i := range n.indexes {
			n.results[i].Info = &n.info
		}
	}
	return n.failOps(err, n.indexes...)
}

// finishCounters waits for the counters. The error is ErrCorrupt or one of the store, here and
// below.
func (n *infos) finishCounters() (err error) {
	if n.info.Ready, err = state.ReadCounter(n.total); err != nil {
		return err
	}
	if err := n.countPriorities(); err != nil {
		return err
	}

	if n.limit == 0 {
		n.info.Priorities = nil
		return nil
	}
	if n.info.Finished, err = state.ReadCounter(n.finished); err != nil {
		return err
	}
	next, err := n.next.Get()
	if err != nil {
		return err
	}

	counted := int64(0)
	for _, p := range n.info.Priorities {
		counted += p.Count
	}
	n.info.MorePriorities = !n.l.Fifo && counted < n.info.Ready
	if len(next) > 0 {
		if due, err := n.l.DueTime(next[0].Key); err == nil {
			n.info.NextDue = due
		}
	}
	return nil
}

// countPriorities adds the counters of states and priorities to the result.
func (n *infos) countPriorities() error {
	front, err := n.front.Get()
	if err != nil {
		return err
	}
	var back []kv.KeyValue
	if n.back != nil {
		if back, err = n.back.Get(); err != nil {
			return err
		}
	}

	// front may have more, because it has room for the counters of states. back is in reverse, and
	// repeats what front has unless there are more between them.
	slices.Reverse(back)
	var last []byte // key added
	for i, pair := range slices.Concat(front, back) {
		isFull := n.limit > 0 && len(n.info.Priorities) == n.limit
		if i < len(front) && isFull || i >= len(front) && bytes.Compare(pair.Key, last) <= 0 {
			continue
		}
		if err := n.addCounter(pair); err != nil {
			return err
		}
		last = pair.Key
	}
	return nil
}

// addCounter adds a counter to the result.
func (n *infos) addCounter(pair kv.KeyValue) error {
	count, err := state.ParseLength(pair.Value)
	if err != nil {
		return err
	}

	rest := pair.Key[len(n.l.Prefix)+codec.KindSize:]
	if priority, _, err := tuple.DecodeInt(rest); err == nil {
		n.info.Priorities = append(n.info.Priorities, PriorityCount{priority, count})
		return nil
	}

	switch name, _, _ := tuple.DecodeString(rest); name {
	case codec.Leased.String():
		n.info.Leased = count
	case codec.Delayed.String():
		n.info.Delayed = count
	}
	return nil
}

// firstItem is the read of the first item of a queue, or of one of its priorities.
type firstItem struct {
	*infos
	keys kv.Range
	read kv.Future[[]kv.KeyValue]
}

// firstItems returns what to read to find the oldest item.
func (n *infos) firstItems() (all []firstItem) {
	if n.l.Fifo && n.limit > 0 {
		all = append(all, firstItem{infos: n, keys: n.l.ItemRange()})
	}
	for _, p := range n.info.Priorities {
		all = append(all, firstItem{infos: n, keys: n.l.PriorityRange(codec.KindItem, p.Priority)})
	}
	return all
}

// finish notes the age of the item. The error is ErrCorrupt or one of the store.
func (f *firstItem) finish() error {
	pairs, err := f.read.Get()
	if err != nil || len(pairs) == 0 {
		return err
	}

	id, err := f.l.ParseItem(pairs[0].Key)
	if err == nil {
		f.info.Oldest = codec.Earliest(f.info.Oldest, codec.PushedAt(&id))
	}
	return err
}

// finishGroups sets what the result says of groups, from one page of their counters.
func (n *infos) finishGroups() error {
	if n.groups == nil {
		return nil
	}
	if rows, err := n.groups.Get(); err != nil || len(rows) == 0 {
		return err
	}

	// Pops would pass over the groups that their limits refuse.
	n.ledger.ReadSettings(n.snapshot, n.l)
	settings, err := n.ledger.ReadableSettings()
	if err != nil {
		return err
	}
	limits := popLimits{queueTxn: n.queueTxn}
	if err := limits.setUp(settings); err != nil {
		return err
	}
	loads, rest, err := limits.loadGroups(n.groups)
	if err != nil {
		return err
	}

	without := func(g state.GroupLoad) bool { return g.Hash == codec.NoGroup }
	loads = slices.DeleteFunc(loads, without)
	n.info.GroupCount = len(loads)
	for _, load := range loads {
		if served, err := limits.mayServe(load.Hash); err != nil {
			return err
		} else if !served && load.Ready > 0 {
			n.info.GroupsAtLimit++
		}
	}

	slices.SortStableFunc(loads, func(a, b state.GroupLoad) int { // those with the most first
		return cmp.Compare(b.Ready+b.Leased, a.Ready+a.Leased)
	})
	n.info.MoreGroups = !rest.Empty() || len(loads) > MaxInfoGroups
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
			keys := n.l.GroupItems(kind, load.Hash)
			firsts = append(firsts, n.snapshot.GetRange(keys, kv.RangeOptions{Limit: 1}))
		}

		items := make([]state.ItemRead, len(some))
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
			if err := items[i].ReadHeaders(n.snapshot, n.l); err != nil {
				return err
			}
			if name := items[i].Item.Group(); name != "" {
				name = strings.Clone(name) // it shares the bytes of the item
				n.info.Groups = append(n.info.Groups, GroupCount{name, load.Ready, load.Leased})
			}
			items[i] = state.ItemRead{} // it holds values
		}
	}

	byName := func(a, b GroupCount) int { return cmp.Compare(a.Group, b.Group) }
	slices.SortFunc(n.info.Groups, byName)
	return nil
}
