package fdbpq_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// modelBatch is the operations of a batch on one queue, and what the queue says.
type modelBatch struct {
	*modelQueue
	ops     []fdbpq.Op
	results []fdbpq.Result
	page    int // entries of the time index that the transaction handles, 0 for all

	swept   bool            // of finished jobs
	handled bool            // what is due
	behind  bool            // and there is more
	least   time.Time       // when something falls due once that is handled
	served  map[int64]int64 // by priority, the count of what was next before the batch
	place   map[int]bool
	waits   map[int]time.Duration // the lengths of leases that were given or ended
}

// run runs a batch on the model.
func (q *modelQueue) run(ops []fdbpq.Op, results []fdbpq.Result, page int) {
	q.Helper()
	b := &modelBatch{
		modelQueue: q,
		ops:        ops,
		results:    results,
		page:       page,
		place:      map[int]bool{},
		waits:      map[int]time.Duration{},
		served:     map[int64]int64{},
	}

	for _, i := range slices.Backward(q.inOrder(isReady)) {
		b.served[i.ID.Priority] = i.ID.Count
	}

	b.each(b.configure, fdbpq.OpConfigure, fdbpq.OpSettings)
	b.each(b.consumer, fdbpq.OpConsumers, fdbpq.OpSetConsumer)

	looks := []fdbpq.OpKind{fdbpq.OpLen, fdbpq.OpInfo, fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpSweep}
	edits := []fdbpq.OpKind{
		fdbpq.OpRemove, fdbpq.OpMove, fdbpq.OpRelease, fdbpq.OpRedriveItem, fdbpq.OpPurge,
	}

	bringsBack := func(o fdbpq.Op) bool {
		return o.Kind == fdbpq.OpPeek || o.Message.Unique != "" ||
			slices.Contains(looks, o.Kind) || slices.Contains(edits, o.Kind)
	}
	if slices.ContainsFunc(ops, bringsBack) {
		b.bringBackOnce()
	}

	b.each(b.look, looks...)
	b.push()
	b.each(b.restore, fdbpq.OpRestore)
	b.settle()
	b.each(b.edit, edits...)
	b.pop()
	b.each(b.peek, fdbpq.OpPeek)
}

// each runs the operations of some kinds, in their order.
func (b *modelBatch) each(run func(o *fdbpq.Op, r *fdbpq.Result), kinds ...fdbpq.OpKind) {
	for i := range b.ops {
		if slices.Contains(kinds, b.ops[i].Kind) {
			run(&b.ops[i], &b.results[i])
		}
	}
}

func (b *modelBatch) bringBackOnce() {
	if !b.handled {
		b.handled, b.behind = true, b.bringBack(b.page)
		b.least = b.nextDue()
	}
}

// fail ends the test with what an operation did.
func (b *modelBatch) fail(o *fdbpq.Op, r *fdbpq.Result, want any) {
	b.Helper()
	b.Fatalf("%s: operation %d at %d, follows %t:\ngot %q, %+v, %v, next due %v\nwant %.300v",
		b.name, o.Kind, o.End, o.Follows, short(r.Item.Value), r.Lease, r.Err, r.NextDue,
		fmt.Sprintf("%+v", want))
}

// wantErr checks the error of an operation, and reports whether there is none.
func (b *modelBatch) wantErr(o *fdbpq.Op, r *fdbpq.Result, want error) bool {
	b.Helper()
	if !errors.Is(r.Err, want) {
		b.fail(o, r, want)
	}

	return want == nil
}

// wantItem checks that an operation has returned an item, or found none.
func (b *modelBatch) wantItem(o *fdbpq.Op, r *fdbpq.Result, want *modelItem) bool {
	b.Helper()
	if want == nil {
		if b.behind { // something may come back next
			b.wantErr(o, r, fdbpq.ErrNoRoom)
		}
		return b.wantErr(o, r, fdbpq.ErrEmpty)
	}

	b.wantErr(o, r, nil)

	if !want.is(&r.Item) {
		b.fail(o, r, want)
	}

	return true
}

func (b *modelBatch) configure(o *fdbpq.Op, r *fdbpq.Result) {
	if o.Kind == fdbpq.OpConfigure {
		changed := *b.settings.Clone()
		if o.Configure(&changed); changed.DeadLetter == b.name {
			b.wantErr(o, r, fdbpq.ErrSettings)
			return
		}

		changed.PauseUntil = changed.PauseUntil.Truncate(time.Microsecond)
		b.changeRates(&changed)
		if changed.Trail < b.settings.Trail {
			for _, i := range b.items {
				i.attempts = nil
			}
		}
		b.settings = changed
	}
	if b.wantErr(o, r, nil); !reflect.DeepEqual(*r.Settings, b.settings) {
		b.fail(o, r, b.settings)
	}
}

func (b *modelBatch) look(o *fdbpq.Op, r *fdbpq.Result) {
	item := b.named(o.ID)
	switch {
	case o.Kind == fdbpq.OpLen:
		if b.wantErr(o, r, nil); r.Len != b.inState(fdbpq.Ready) {
			b.fail(o, r, b.inState(fdbpq.Ready))
		}
	case o.Kind == fdbpq.OpInfo:
		want := b.info()
		if b.wantErr(o, r, nil); !sameInfo(*r.Info, want) {
			b.Logf("info %+v, want %+v", r.Info, want)
			b.fail(o, r, want)
		}
	case o.Kind == fdbpq.OpSweep:
		b.wantErr(o, r, nil)
		b.sweepFinished(o, r)
	case item == nil && b.done(o.ID) != nil:
		b.lookFinished(o, r, b.done(o.ID))
	case item == nil && o.Kind == fdbpq.OpGet && b.letter(o.ID) != nil:
		b.wantLetter(o, r, b.letter(o.ID))
	case item == nil:
		b.wantErr(o, r, fdbpq.ErrNotFound)
	case o.Kind == fdbpq.OpGet:
		if b.wantItem(o, r, item); r.State != item.state ||
			!sameTrail(r.Found.Attempts(), b.allTold(item)) {
			b.fail(o, r, item)
		}
	default:
		before := b.inOrder(func(i *modelItem) bool {
			return isReady(i) && i != item &&
				(compareIDs(i.ID, item.ID) < 0) == (o.End == fdbpq.Front)
		})
		if b.wantErr(o, r, nil); r.Rank != int64(len(before)) {
			b.fail(o, r, len(before))
		}
	}
}

// wantLetter checks that an OpGet has found a job among the dead letters.
func (b *modelBatch) wantLetter(o *fdbpq.Op, r *fdbpq.Result, letter *modelItem) {
	b.counts["found dead"]++
	dead := b.deadLetters()
	if dead.items[letter.ID] != letter { // it has arrived in this batch
		letter.ID, letter.told = r.Item.ID, r.Item.ID
	}
	if b.wantItem(o, r, letter); r.State != letter.state || r.Queue != dead.name ||
		!sameTrail(r.Found.Attempts(), dead.allTold(letter)) {
		b.fail(o, r, letter)
	}
}

// sameInfo reports whether an OpInfo has returned what the model expects.
func sameInfo(got, want fdbpq.Info) bool {
	return slices.Equal(got.Priorities, want.Priorities) &&
		got.Ready == want.Ready &&
		got.Leased == want.Leased &&
		got.Delayed == want.Delayed &&
		slices.Equal(got.Groups, want.Groups) &&
		got.GroupCount == want.GroupCount &&
		got.GroupsAtLimit == want.GroupsAtLimit &&
		!got.MoreGroups &&
		got.NextDue.Equal(want.NextDue) &&
		got.Oldest.Equal(want.Oldest)
}

// info is what an OpInfo returns.
func (q *modelQueue) info() (info fdbpq.Info) {
	info.Ready = q.inState(fdbpq.Ready)
	info.Leased = q.inState(fdbpq.Leased)
	info.Delayed = q.inState(fdbpq.Delayed)
	info.NextDue = q.nextDue()
	q.countGroups(&info)

	for n, i := range q.inOrder(isReady) {
		last := len(info.Priorities) - 1
		switch {
		case last >= 0 && info.Priorities[last].Priority == i.ID.Priority:
			info.Priorities[last].Count++
			continue
		case !q.fifo:
			info.Priorities = append(info.Priorities,
				fdbpq.PriorityCount{Priority: i.ID.Priority, Count: 1})
		case n > 0:
			continue
		}

		info.Oldest = earlier(info.Oldest, i.PushedAt)
	}

	return info
}

// push runs the pushes.
func (b *modelBatch) push() {
	var all []*modelItem
	uniques := map[string]fdbpq.ID{} // by whom they are taken

	for _, i := range b.items {
		uniques[i.Unique] = i.Job()
	}

	delete(uniques, "")
	b.each(func(o *fdbpq.Op, _ *fdbpq.Result) { all = append(all, b.pushed(o)) }, fdbpq.OpPush)

	if len(all) > 0 && b.exceeded(b.load(b.items, all)) != "" {
		b.bringBackOnce()
	}

	for i := 0; i < len(b.ops); {
		n := 1
		for i+n < len(b.ops) && b.ops[i+n].Follows && b.ops[i].Kind == fdbpq.OpPush {
			n++
		}

		if b.ops[i].Kind == fdbpq.OpPush {
			b.pushGroup(b.ops[i:i+n], b.results[i:i+n], uniques)
		}

		i += n
	}
}

// pushed is the item of a push, which has no id yet.
func (b *modelBatch) pushed(o *fdbpq.Op) *modelItem {
	i := &modelItem{Item: fdbpq.Item{Message: o.Message}, state: fdbpq.Ready, due: o.At}
	if !b.fifo {
		i.ID.Priority = o.Priority
	}

	if o.Delay > 0 {
		i.due = b.now.Add(o.Delay)
	}

	if i.due.After(b.now) {
		i.state = fdbpq.Delayed
	}

	switch {
	case o.TTL == fdbpq.Never:
		i.Expires = time.Time{}
	case o.TTL > 0:
		i.Expires = b.now.Add(o.TTL)
	case i.Expires.IsZero() && b.settings.TTL > 0:
		i.Expires = b.now.Add(b.settings.TTL)
	}

	return i
}

// pushGroup runs pushes that are done together or not at all.
func (b *modelBatch) pushGroup(
	ops []fdbpq.Op, results []fdbpq.Result, uniques map[string]fdbpq.ID,
) {
	var gone []*modelItem
	if added := b.newItems(ops, uniques); len(added) > 0 {
		var refused []string
		var err error
		if gone, refused, err = b.makeRoom(added); err != nil {
			b.refuse(ops, results, refused, err)
			return
		}
	}

	for i := range ops {
		o, r := &ops[i], &results[i]
		b.wantErr(o, r, nil)
		if id, found := b.firstPush(&o.Message, uniques); found {
			b.wantDuplicate(o, r, id)
			continue
		}

		item := b.wantPushed(o, r)
		if item.MsgID != "" && b.window() > 0 {
			b.msgIDs[item.MsgID] = modelMsgID{item.ID, b.now.Add(b.window())}
		}
		if item.Unique != "" {
			uniques[item.Unique] = item.ID
		}
	}

	for _, i := range gone { // their unique keys are free for the pushes after these
		if uniques[i.Unique] == i.Job() {
			delete(uniques, i.Unique)
		}
	}
}

// window is how long message ids count.
func (b *modelBatch) window() time.Duration {
	return cmp.Or(b.settings.DuplicateWindow, fdbpq.DefaultDuplicateWindow)
}

// firstPush returns the item of an earlier push with the same message id or unique key.
func (b *modelBatch) firstPush(
	m *fdbpq.Message, uniques map[string]fdbpq.ID,
) (id fdbpq.ID, found bool) {
	if seen, ok := b.msgIDs[m.MsgID]; ok && seen.until.After(b.now) {
		return seen.id, true
	}
	id, found = uniques[m.Unique]
	return id, found
}

// newItems returns the items that pushes add: none for duplicates of earlier pushes or of each
// other.
func (b *modelBatch) newItems(ops []fdbpq.Op, uniques map[string]fdbpq.ID) (added []*modelItem) {
	for i := range ops {
		m := &ops[i].Message
		repeats := func(a *modelItem) bool {
			return m.MsgID != "" && a.MsgID == m.MsgID && b.window() > 0 ||
				m.Unique != "" && a.Unique == m.Unique
		}
		if _, found := b.firstPush(m, uniques); !found && !slices.ContainsFunc(added, repeats) {
			added = append(added, b.pushed(&ops[i]))
		}
	}
	return added
}

// refuse wants an error with these texts for each of the pushes.
func (b *modelBatch) refuse(
	ops []fdbpq.Op, results []fdbpq.Result, texts []string, err error,
) {
	b.counts["refused"]++
	for i := range ops {
		b.wantErr(&ops[i], &results[i], err)
		lacks := func(text string) bool { return !strings.Contains(results[i].Err.Error(), text) }
		if slices.ContainsFunc(texts, lacks) {
			b.fail(&ops[i], &results[i], texts)
		}
	}
}

// wantDuplicate wants the result of a push that changes nothing, because of an earlier one.
func (b *modelBatch) wantDuplicate(o *fdbpq.Op, r *fdbpq.Result, first fdbpq.ID) {
	b.counts["duplicate"]++
	if !r.Duplicate || r.Item.ID != first || r.Item.PushedAt.IsZero() {
		b.fail(o, r, first)
	}
}

// wantPushed wants the result of a push that adds an item, and adds it to the model at the place
// that the result says, if it can be there.
func (b *modelBatch) wantPushed(o *fdbpq.Op, r *fdbpq.Result) *modelItem {
	item := b.pushed(o)
	if r.Duplicate || r.Item.PushedAt.IsZero() || r.Item.ID.Priority != item.ID.Priority {
		b.fail(o, r, item)
	}

	var due time.Time
	if !isReady(item) {
		due = item.due
	}
	if !r.NextDue.Equal(due) {
		b.fail(o, r, item)
	}

	item.ID, item.PushedAt = r.Item.ID, r.Item.PushedAt
	if item.Group() == "" {
		b.add(item)
		return item
	}

	b.addInTurn(item)
	next, any := b.served[item.ID.Priority]
	if o.Weight > 1 { // it may still join the turn that was served last
		next--
	}
	if any && item.ID.Count < next {
		b.fail(o, r, fmt.Sprint("a count of at least ", next))
	}
	return item
}

// restore puts an item back that nobody received.
func (b *modelBatch) restore(o *fdbpq.Op, r *fdbpq.Result) {
	if b.items[o.Item.ID] != nil {
		b.wantErr(o, r, fdbpq.ErrExists)
		return
	}
	b.wantErr(o, r, nil)

	isItem := func(p modelPop) bool { return p.item == o.Item }
	i := *b.popped[slices.IndexFunc(b.popped, isItem)].was
	if b.expired(&i) {
		b.effects.Expired++
		return
	}
	i.attempts = nil

	for _, other := range b.items {
		if i.Unique != "" && other.Unique == i.Unique {
			i.Unique = ""
			b.counts["lost its key"]++
		}
	}

	b.items[i.ID] = &i
	b.counts["restored"]++
}

// edit runs an operation on an item by its id, or on many items.
func (b *modelBatch) edit(o *fdbpq.Op, r *fdbpq.Result) {
	i := b.named(o.ID)
	if o.Kind != fdbpq.OpPurge && r.Err == nil && i != nil && r.Item.Job() != i.Job() {
		b.fail(o, r, i.Job())
	}
	switch {
	case o.Kind == fdbpq.OpPurge && o.State == fdbpq.Done:
		b.purgeFinished(o, r)
	case o.Kind == fdbpq.OpPurge:
		gone := b.inOrder(func(*modelItem) bool { return true })
		if b.wantErr(o, r, nil); r.Len != int64(len(gone)) {
			b.fail(o, r, len(gone))
		}

		for _, i := range gone {
			b.lose(i, "purged")
		}

		b.rates.forgetStale()
	case i == nil && b.done(o.ID) != nil:
		b.editFinished(o, r, b.done(o.ID))
	case i == nil || i.state != fdbpq.Leased && b.expired(i) ||
		o.State != fdbpq.AnyState && o.State != i.state:
		b.wantErr(o, r, fdbpq.ErrNotFound)
	case o.Kind == fdbpq.OpRemove:
		b.wantErr(o, r, nil)
		b.lose(i, "removed")
	case o.Kind == fdbpq.OpRelease:
		b.release(o, r, i)
	case i.state == fdbpq.Leased:
		b.wantErr(o, r, fdbpq.ErrLeased)
	case o.Kind == fdbpq.OpRedriveItem && i.DeadLetter == nil:
		b.wantErr(o, r, fdbpq.ErrNotDeadLetter)
	case o.Kind == fdbpq.OpRedriveItem:
		if b.wantErr(o, r, nil); r.Home != i.DeadLetter.Queue || !r.Item.PushedAt.Equal(b.now) {
			b.fail(o, r, i.DeadLetter.Queue)
		}

		b.sendHome(i).told = r.Item.ID
		b.counts["redriven alone"]++
	case b.wantErr(o, r, nil):
		b.lose(i, "moved")
		job := i.Job()
		i.First = &job
		i.ID, i.token = r.Item.ID, fdbpq.Token{}
		b.add(i)
	}
}

// release ends the lease of an item as if it had not been delivered.
func (b *modelBatch) release(o *fdbpq.Op, r *fdbpq.Result, i *modelItem) {
	switch leased := i.state == fdbpq.Leased; {
	case r.Freed != (leased && b.limitsLeased()):
		b.fail(o, r, b.settings.MaxLeased)
	case !leased:
		b.wantErr(o, r, fdbpq.ErrNotLeased)
	case b.expired(i):
		b.wantErr(o, r, fdbpq.ErrNotFound)
		b.expire(i)
	default:
		b.wantErr(o, r, nil)
		i.state, i.due, i.token = fdbpq.Ready, time.Time{}, fdbpq.Token{}
		i.since = time.Time{}
		i.deliveries--
		b.counts["released"]++
	}
}

// sendHome sends a dead letter back to the queue that it was in, as a new push.
func (b *modelBatch) sendHome(i *modelItem) *modelItem {
	home := b.queue(i.DeadLetter.Queue, b.fifo)
	headers := i.Headers
	if len(i.attempts) > 0 {
		headers = withTrail(headers, withLives(headers, i.attempts), b.settings.Trail)
	}
	b.lose(i, "redriven")

	job := i.Job()
	back := &modelItem{
		Item: fdbpq.Item{
			ID:       i.ID,
			PushedAt: b.now,
			Message: fdbpq.Message{
				Value: i.Value, Headers: headers, First: &job, Keep: i.Keep,
			},
		},
		state: fdbpq.Ready,
	}

	if home.settings.TTL > 0 {
		back.Expires = b.now.Add(home.settings.TTL)
	}

	home.arrived = append(home.arrived, back)
	return back
}

var errThere = errors.New("there is one")

// consumer draws an operation on consumers.
func (r *modelRun) consumer() fdbpq.Op {
	value, what := fmt.Sprint("record ", r.random.IntN(3)), r.random.IntN(6)
	if what == 0 {
		return fdbpq.Op{Kind: fdbpq.OpConsumers}
	}

	return fdbpq.Op{
		Kind:   fdbpq.OpSetConsumer,
		Record: fmt.Sprint("c", r.random.IntN(3)),
		Change: func(old []byte, _ time.Time) ([]byte, error) {
			switch {
			case what == 1: // removes it
				return nil, nil
			case what == 2: // too long
				return []byte(strings.Repeat("x", fdbpq.MaxConsumerValue+1)), nil
			case what == 3 && old != nil: // refuses, as a client may
				return nil, errThere
			case len(old) < 100: // depends on the old one
				return append(slices.Clone(old), value...), nil
			}
			return []byte(value), nil
		},
	}
}

// consumer runs an operation on consumers.
func (b *modelBatch) consumer(o *fdbpq.Op, r *fdbpq.Result) {
	if o.Kind == fdbpq.OpSetConsumer {
		var old []byte
		if value, there := b.consumers[o.Record]; there {
			old = []byte(value)
		}

		value, err := o.Change(old, b.now)
		switch {
		case len(value) > fdbpq.MaxConsumerValue:
			b.wantErr(o, r, fdbpq.ErrOp)
			return
		case !b.wantErr(o, r, err):
			return
		case len(value) == 0:
			delete(b.consumers, o.Record)
			return
		}

		b.counts["set"]++
		b.consumers[o.Record] = string(value)
		return
	}

	b.wantErr(o, r, nil)

	var want []fdbpq.Record
	for _, name := range slices.Sorted(maps.Keys(b.consumers)) {
		want = append(want, fdbpq.Record{Name: name, Value: []byte(b.consumers[name])})
	}

	if fmt.Sprint(r.Records) != fmt.Sprint(want) {
		b.fail(o, r, fmt.Sprintf("%v, not %v", want, r.Records))
	}
}

// removeConsumers removes the remaining consumers.
func (r *modelRun) removeConsumers() {
	for _, q := range r.m.queues {
		for name := range q.consumers {
			r.applyBy(r.main, []modelPart{{q, r.on(q, opSetConsumer(nil, name, ""))}})
		}
	}
}

// wantReady checks how many items are ready after a pop or lease.
func (b *modelBatch) wantReady(n int) {
	o, r := &b.ops[n], &b.results[n]
	want := b.inState(fdbpq.Ready) + int64(len(b.arrived))
	found := r.Err == nil || errors.Is(r.Err, fdbpq.ErrEmpty)

	if !o.Count || !found || o.Follows && b.results[n-1].Err != nil {
		want = 0
	} else {
		b.counts["counted"]++
	}

	if r.Ready != want {
		b.fail(o, r, fmt.Sprintf("%d ready items, not %d", want, r.Ready))
	}
}
