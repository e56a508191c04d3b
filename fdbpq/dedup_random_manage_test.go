package fdbpq_test

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// someID returns the id of an item that is there, or now and then of one that was popped.
func (r *dedupRun) someID() (id fdbpq.ID) {
	if len(r.popped) > 0 && r.random.IntN(6) == 0 {
		return r.popped[r.random.IntN(len(r.popped))].item.ID
	}
	if ids := r.ids(); len(ids) > 0 {
		id = ids[r.random.IntN(len(ids))]
	}
	return id
}

// ids returns the ids of the items, in order.
func (r *dedupRun) ids() []fdbpq.ID {
	return slices.SortedFunc(maps.Keys(r.model.items), compareIDs)
}

// remove removes an item.
func (r *dedupRun) remove() {
	id := r.someID()
	result := r.run(fdbpq.Op{Kind: fdbpq.OpRemove, ID: id})[0]
	r.settleDue()
	if there := r.model.items[id] != nil; there != (result.Err == nil) || !there && !errors.Is(result.Err, fdbpq.ErrNotFound) {
		r.fail("remove %v, which is there: %t: %v", id, there, result.Err)
	} else if there {
		r.lose(id, "removed")
	}
}

// move moves an item to another priority, with its keys.
func (r *dedupRun) move() {
	id := r.someID()
	result := r.run(fdbpq.Op{Kind: fdbpq.OpMove, ID: id, Priority: r.random.Int64N(2)})[0]
	r.settleDue()
	i := r.model.items[id]
	var want error
	switch {
	case i == nil:
		want = fdbpq.ErrNotFound
	case i.state == fdbpq.Leased:
		want = fdbpq.ErrLeased
	}
	if !errors.Is(result.Err, want) {
		r.fail("move %+v: %v, want %v", i, result.Err, want)
	}
	if want != nil {
		return
	}
	if seen := r.model.msgIDs[i.item.MsgID]; seen.id == id {
		seen.id = result.Item.ID
		r.model.msgIDs[i.item.MsgID] = seen
	}
	r.lose(id, "moved")
	i.item.ID, i.token = result.Item.ID, fdbpq.Token{}
	r.model.items[result.Item.ID] = i
}

// inState counts items.
func (r *dedupRun) inState(s fdbpq.ItemState) (n int) {
	for _, i := range r.model.items {
		if s == fdbpq.AnyState || i.state == s {
			n++
		}
	}
	if s == fdbpq.AnyState || s == fdbpq.Ready {
		n += len(r.back)
	}
	return n
}

// purge removes all items in a state.
func (r *dedupRun) purge() {
	state := []fdbpq.ItemState{fdbpq.AnyState, fdbpq.Ready, fdbpq.Delayed, fdbpq.Leased}[r.random.IntN(4)]
	result := r.run(fdbpq.Op{Kind: fdbpq.OpPurge, State: state})[0]
	r.settleDue()
	if want := r.inState(state); result.Err != nil || result.Progress.Done != int64(want) || result.Progress.Next != "" {
		r.fail("purge of state %v: %+v, %v: want %d", state, result.Progress, result.Err, want)
	}
	for id, i := range r.model.items {
		if state == fdbpq.AnyState || i.state == state {
			r.lose(id, "purged")
		}
	}
	if state == fdbpq.AnyState || state == fdbpq.Ready {
		clear(r.back)
	}
	r.check() // before the keys are used again
}

// redrive sends all dead letters back, without keys and expiry.
func (r *dedupRun) redrive() {
	home := r.q
	r.q = r.letters
	if first := r.run(fdbpq.Op{Kind: fdbpq.OpPeek})[0].Item; first.Unique != "" || first.MsgID != "" || !first.Expires.IsZero() {
		r.fail("a dead letter with keys: %+v", first)
	}
	result := r.run(fdbpq.Op{Kind: fdbpq.OpRedrive})[0]
	r.q = home
	if result.Err != nil || result.Progress.Done != int64(len(r.dead)) {
		r.fail("redriven: %+v, %v: want %d", result.Progress, result.Err, len(r.dead))
	}
	for value, i := range r.dead {
		i.unique, i.item.MsgID, i.item.Unique = "", "", ""
		i.state, i.expires, i.token, i.dies = fdbpq.Ready, time.Time{}, fdbpq.Token{}, false
		r.back[value] = i
		r.counts["redriven"]++
	}
	clear(r.dead)
}

// wantCounts compares the counters with the model.
func (r *dedupRun) wantCounts() {
	info := r.run(fdbpq.Op{Kind: fdbpq.OpInfo})[0].Info
	r.settleDue()
	got, want := [3]int64{info.Ready, info.Delayed, info.Leased}, [3]int64{}
	for n, s := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed, fdbpq.Leased} {
		want[n] = int64(r.inState(s))
	}
	if got != want {
		r.fail("ready, delayed, leased: %d, want %d", got, want)
	}
	r.check()
}
