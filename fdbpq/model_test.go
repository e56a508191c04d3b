package fdbpq_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// model is what queues are expected to have, as plain as it can be. It runs the operations of a
// batch in the order that Batcher.Start documents, and compares each result with its own.
type model struct {
	*testing.T
	now     time.Time
	queues  map[fdbpq.Target]*modelQueue
	target  func(name string, fifo bool) fdbpq.Target
	effects fdbpq.SideEffects
	counts  map[string]int // what has happened
	ended   int            // jobs that were kept so far
}

// modelQueue is one queue.
type modelQueue struct {
	*model
	target   fdbpq.Target
	name     string
	fifo     bool
	settings fdbpq.Settings
	items    map[fdbpq.ID]*modelItem
	finished map[fdbpq.ID]*modelFinished // by job

	// Dead letters and those redriven, in order, whose ids nobody has told yet.
	arrived []*modelItem
	popped  []modelPop
	tokens  []fdbpq.Token // that were ever given
	msgIDs  map[string]modelMsgID
	rates   modelRates

	consumers map[string]string
}

type modelMsgID struct {
	id    fdbpq.ID
	until time.Time
}

// modelPop is what a pop returned, and what the item was.
type modelPop struct {
	item     *fdbpq.Item
	was      *modelItem
	restored bool // an operation was drawn that restores it
}

// modelItem is an item, as a pop would return it, and where it is.
type modelItem struct {
	fdbpq.Item
	state      fdbpq.ItemState
	due        time.Time // of a lease or delay
	wait       time.Duration
	deliveries int64
	token      fdbpq.Token // zero if no token holds
	reason     string      // of the last nak with one
	told       fdbpq.ID    // of one that has arrived, if a result has told
	modelTrail
}

// queue returns a queue, which may be new.
func (m *model) queue(name string, fifo bool) *modelQueue {
	target := m.target(name, fifo)
	q := m.queues[target]

	if q == nil {
		q = &modelQueue{
			model:     m,
			target:    target,
			name:      name,
			fifo:      fifo,
			items:     map[fdbpq.ID]*modelItem{},
			finished:  map[fdbpq.ID]*modelFinished{},
			msgIDs:    map[string]modelMsgID{},
			consumers: map[string]string{},
		}

		q.rates = modelRates{full: map[string]time.Time{}, entries: map[modelEntry]bool{}}
		m.queues[target] = q
	}

	return q
}

func compareIDs(a, b fdbpq.ID) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Count, b.Count),
		bytes.Compare(a.Random[:], b.Random[:]))
}

func (m *model) expired(i *modelItem) bool { return !i.Expires.IsZero() && !i.Expires.After(m.now) }

// is reports whether an operation has returned this item.
func (i *modelItem) is(got *fdbpq.Item) bool {
	return got.ID == i.ID && got.Job() == i.Job() && (got.First == nil) == (i.First == nil) &&
		bytes.Equal(got.Value, i.Value) &&
		got.MsgID == i.MsgID && got.Unique == i.Unique && got.Keep == i.Keep &&
		reflect.DeepEqual(got.Headers, i.Headers) &&
		reflect.DeepEqual(got.DeadLetter, i.DeadLetter) &&
		got.Expires.Equal(i.Expires) && got.PushedAt.Equal(i.PushedAt)
}

// fallsDue is when something has to be done about an item; the zero time if nothing has.
func (i *modelItem) fallsDue() time.Time {
	if i.state == fdbpq.Leased ||
		i.state == fdbpq.Delayed && (i.Expires.IsZero() || i.due.Before(i.Expires)) {
		return i.due
	}
	return i.Expires
}

// nextDue is when something falls due after now; the zero time if nothing does.
func (q *modelQueue) nextDue() (next time.Time) {
	for _, i := range q.items {
		if at := i.fallsDue(); at.After(q.now) {
			next = earlier(next, at)
		}
	}

	for e := range q.rates.entries {
		if e.at.After(q.now) {
			next = earlier(next, e.at)
		}
	}

	return next
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inOrder returns items in the order in which they are served.
func (q *modelQueue) inOrder(which func(*modelItem) bool) (list []*modelItem) {
	for _, id := range slices.SortedFunc(maps.Keys(q.items), compareIDs) {
		if which(q.items[id]) {
			list = append(list, q.items[id])
		}
	}
	return list
}

func isReady(i *modelItem) bool { return i.state == fdbpq.Ready }

// limitsLeased reports whether the end of a lease lets another begin.
func (q *modelQueue) limitsLeased() bool {
	return q.settings.MaxLeased > 0 || q.settings.MaxLeasedPerGroup > 0
}

// inState returns how many items are in a state.
func (q *modelQueue) inState(s fdbpq.ItemState) int64 {
	isIn := func(i *modelItem) bool { return s == fdbpq.AnyState || i.state == s }
	return int64(len(q.inOrder(isIn)))
}

// bringBack does as much due work as a transaction that handles limit entries, 0 for all, in the
// order in which it fell due. It reports whether there is more.
func (q *modelQueue) bringBack(limit int) (more bool) {
	type event struct {
		at    time.Time
		kind  string // as in the time index, which it orders
		item  *modelItem
		entry modelEntry
	}

	isDue := func(i *modelItem) bool {
		at := i.fallsDue()
		return !at.IsZero() && !at.After(q.now)
	}

	var due []event
	for _, i := range q.inOrder(isDue) {
		kind := "h"
		if isReady(i) {
			kind = "x"
		}

		due = append(due, event{at: i.fallsDue(), kind: kind, item: i})
	}

	for e := range q.rates.entries {
		if !e.at.After(q.now) {
			due = append(due, event{at: e.at, kind: "q", entry: e})
		}
	}

	slices.SortStableFunc(due, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind),
			compareEntries(a.entry, b.entry))
	})

	if more = limit > 0 && len(due) > limit; more {
		due = due[:limit]
	}

	for _, e := range due {
		i := e.item
		if i != nil && i.state == fdbpq.Leased {
			q.effects.RanOut++
		}

		switch {
		case i == nil:
			q.rates.end(e.entry)
		case q.expired(i):
			q.expire(i)
		case i.state == fdbpq.Leased && q.exhausted(i):
			q.die(i, fdbpq.ReasonMaxDeliver, i.attempt(trail.RanOut, i.due, ""))
		default:
			if i.state == fdbpq.Leased {
				q.note(i, i.attempt(trail.RanOut, i.due, ""))
				i.since = time.Time{}
				i.due = i.due.Add(q.backoff(i))
			}

			if i.state = fdbpq.Delayed; !i.due.After(q.now) {
				i.state = fdbpq.Ready
			}

			q.counts["came back"]++
		}
	}

	return more
}

func (q *modelQueue) exhausted(i *modelItem) bool {
	return q.settings.MaxDeliver > 0 && i.deliveries >= q.settings.MaxDeliver
}

// backoff is how long an item stays back after its last delivery.
func (q *modelQueue) backoff(i *modelItem) time.Duration {
	list := q.settings.Backoff
	if len(list) == 0 || i.deliveries == 0 {
		return 0
	}

	return list[min(int(i.deliveries), len(list))-1]
}

// lose removes an item.
func (q *modelQueue) lose(i *modelItem, why string) {
	delete(q.items, i.ID)
	q.counts[why]++
}

func (q *modelQueue) expire(i *modelItem) {
	q.lose(i, "expired")
	q.effects.Expired++
}

// deadLetters is the queue that items move to when they die.
func (q *modelQueue) deadLetters() *modelQueue {
	return q.queue(cmp.Or(q.settings.DeadLetter, q.name+"-dead"), q.fifo)
}

// named returns the item at a place or, if there is none, the one of the job with that id; nil if
// neither is in the queue.
func (q *modelQueue) named(id fdbpq.ID) *modelItem {
	if i := q.items[id]; i != nil {
		return i
	}
	for _, i := range q.items {
		if i.First != nil && *i.First == id {
			return i
		}
	}
	return nil
}

// letter returns the dead letter of a job of this queue, nil if there is none.
func (q *modelQueue) letter(job fdbpq.ID) *modelItem {
	dead := q.deadLetters()
	for _, i := range slices.AppendSeq(slices.Clone(dead.arrived), maps.Values(dead.items)) {
		if i.DeadLetter != nil && i.DeadLetter.Queue == q.name && *i.First == job {
			return i
		}
	}
	return nil
}

// die moves an item to the dead-letter queue, with its last attempt.
func (q *modelQueue) die(i *modelItem, reason string, last trail.Attempt) {
	q.lose(i, "died")
	q.effects.Dead++
	letter := &modelItem{Item: i.Item, state: fdbpq.Ready}
	letter.MsgID, letter.Unique, letter.Expires = "", "", time.Time{}
	all := withLives(i.Headers, append(i.without(last.Number), last))
	letter.Headers = withTrail(i.Headers, all, q.settings.Trail)
	job := i.Job()
	letter.First = &job

	letter.DeadLetter = &fdbpq.DeadLetter{
		Queue:      q.name,
		Reason:     reason,
		At:         q.now.UTC(),
		Deliveries: i.deliveries,
		Error:      i.reason,
	}

	to := q.deadLetters()

	// One that died before keeps the queue that it first came from, unless it is there now.
	if i.DeadLetter != nil && i.DeadLetter.Queue != to.name {
		letter.DeadLetter.Queue = i.DeadLetter.Queue
	}

	to.arrived = append(to.arrived, letter)
}

// end returns the item at an end among those allowed, nil if there is none.
func (q *modelQueue) end(end fdbpq.End, which func(*modelItem) bool) *modelItem {
	list := q.inOrder(which)
	switch {
	case len(list) == 0:
		return nil
	case end == fdbpq.Back:
		return list[len(list)-1]
	}

	return list[0]
}

// add checks that a new item comes after all others of its priority, and adds it.
func (q *modelQueue) add(i *modelItem) {
	q.addAfter(i, func(*modelItem) bool { return true })
}

// addInTurn checks that a new item comes after all others of its priority and group, and adds it.
func (q *modelQueue) addInTurn(i *modelItem) {
	q.counts["in turn"]++
	q.addAfter(i, func(other *modelItem) bool { return other.Group() == i.Group() })
}

func (q *modelQueue) addAfter(i *modelItem, which func(other *modelItem) bool) {
	for _, other := range q.items {
		if i.ID.Priority == other.ID.Priority && which(other) && compareIDs(i.ID, other.ID) <= 0 {
			q.Fatalf("%s: %q at %v comes before %q at %v", q.name, short(i.Value), i.ID,
				short(other.Value), other.ID)
		}
	}
	q.items[i.ID] = i
}

// load is what counts for the limits.
func (q *modelQueue) load(there map[fdbpq.ID]*modelItem, more []*modelItem) (items, bytes int64) {
	for _, i := range slices.AppendSeq(slices.Clone(more), maps.Values(there)) {
		items, bytes = items+1, bytes+int64(i.Size())
	}
	return items, bytes
}

// exceeded says how the queue would have more than its limits allow, "" if it would not.
func (q *modelQueue) exceeded(items, bytes int64) string {
	switch s := &q.settings; {
	case s.MaxItems > 0 && items > s.MaxItems:
		return fmt.Sprint("max_items is ", s.MaxItems)
	case s.MaxBytes > 0 && bytes > s.MaxBytes:
		return fmt.Sprint("max_bytes is ", s.MaxBytes)
	}
	return ""
}

// makeRoom discards what has to go for a group of pushes, and returns it, or else why there is no
// room for them: parts of the text of an error, and that.
func (q *modelQueue) makeRoom(
	group []*modelItem,
) (gone []*modelItem, refused []string, err error) {
	items, bytes := q.load(q.items, group)
	full := q.exceeded(items, bytes)

	if full == "" {
		return nil, nil, nil
	}

	if q.exceeded(q.load(nil, group)) != "" {
		return nil, []string{"of the queue is"}, fdbpq.ErrMessageTooLarge
	}

	if q.settings.Discard != fdbpq.DiscardOld {
		return nil, []string{full}, fdbpq.ErrFull
	}

	victims := q.inOrder(func(i *modelItem) bool { return i.state != fdbpq.Leased })
	if !q.fifo {
		slices.Reverse(victims)
	}

	n := 0
	for ; q.exceeded(items, bytes) != ""; n++ {
		servedBefore := func(i *modelItem) bool { // the victim is served before a push
			return i.ID.Priority >= victims[n].ID.Priority
		}
		if n == len(victims) || !q.fifo && slices.ContainsFunc(group, servedBefore) {
			why := []string{full, "too few items may be discarded for it: leased ones stay"}
			return nil, why, fdbpq.ErrFull
		}
		items, bytes = items-1, bytes-int64(victims[n].Size())
	}

	for _, i := range victims[:n] {
		q.lose(i, "discarded")
		q.effects.Discarded++
	}

	return victims[:n], nil, nil
}
