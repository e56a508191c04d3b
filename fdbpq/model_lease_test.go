package fdbpq_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// settle runs the operations with tokens.
func (b *modelBatch) settle() {
	for i := 0; i < len(b.ops); i++ {
		switch b.ops[i].Kind {
		case fdbpq.OpAck:
			group := i + 1
			for group < len(b.ops) && b.ops[group].Follows && b.ops[group].Kind == fdbpq.OpAck {
				group++
			}

			b.ack(i, group)
			i = group - 1
		case fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm:
			b.useToken(&b.ops[i], &b.results[i])
		}
	}
}

// holder returns the item that a token holds, nil if it is lost.
func (q *modelQueue) holder(token fdbpq.Token) *modelItem {
	if i := q.items[token.ID]; i != nil && i.token == token && token != (fdbpq.Token{}) {
		return i
	}
	return nil
}

// ack runs acknowledgements that are done together or not at all, and keeps the places of the
// leases that follow.
func (b *modelBatch) ack(from, to int) {
	var held []*modelItem
	var lost, done []int

	for n := from; n < to; n++ {
		if item := b.holder(b.ops[n].Token); item == nil || slices.Contains(held, item) {
			lost = append(lost, n-from)
			if b.finishedBy(b.ops[n].Token) != nil {
				done = append(done, n-from)
				b.counts["done before"]++
			}
		} else {
			held = append(held, item)
		}
	}

	if lost != nil {
		b.counts["lost"]++
		for n := from; n < to; n++ {
			b.wantLost(&b.ops[n], &b.results[n], lost, done, to-from)
		}

		return
	}

	if !b.mayPush(b.ops[from:to]) {
		b.counts["no successor"]++
		for n := from; n < to; n++ {
			b.wantErr(&b.ops[n], &b.results[n], fdbpq.ErrOp)
		}
		return
	}

	ended := 0
	b.waits[from] = held[0].wait

	for n, item := range held {
		b.wantErr(&b.ops[from+n], &b.results[from+n], nil)
		if b.results[from+n].Freed != b.limitsLeased() {
			b.fail(&b.ops[from+n], &b.results[from+n], "a place")
		}

		if item.state == fdbpq.Leased {
			ended++
		}

		b.keep(&b.ops[from+n], &b.results[from+n], item)
	}

	for n := from; n < to; n++ {
		if said := b.ops[n].Report; said != nil {
			b.pushNext(said.Next, held)
		}
	}

	follows := func(n int) bool { return b.ops[n].Kind == fdbpq.OpLease && b.ops[n].Follows }
	for n := to; n < len(b.ops) && ended > 0 && follows(n); n++ {
		b.place[n] = true
		ended--
	}
}

// nextQueue is the queue to which acknowledgements push.
const nextQueue = "next"

// mayPush reports whether the settings allow what acknowledgements push.
func (q *modelQueue) mayPush(ops []fdbpq.Op) bool {
	pushes := slices.ContainsFunc(ops, func(o fdbpq.Op) bool {
		return o.Report != nil && len(o.Report.Next) > 0
	})
	return !pushes || slices.Contains(q.settings.Next, nextQueue)
}

// pushNext pushes the successors of an acknowledgement of some leases.
func (b *modelBatch) pushNext(next []fdbpq.Op, held []*modelItem) {
	to := b.queue(nextQueue, b.fifo)
	for i := range next {
		item := &modelItem{
			Item:  fdbpq.Item{Message: next[i].Message, PushedAt: b.now},
			state: fdbpq.Ready,
		}
		if !b.fifo {
			item.ID.Priority = next[i].Priority
		}
		if job := held[next[i].Parent].Job(); b.settings.Trail > 0 {
			parent := trail.Job{Queue: b.name, ID: job.String()}
			item.Headers = withHeader(item.Headers, trail.HeaderParent, []string{parent.String()})
			if f := b.finished[job]; f != nil {
				f.next++
			}
		}
		to.arrived = append(to.arrived, item)
		b.counts["successor"]++
		b.effects.Next++
	}
}

// useToken runs any other operation with a token.
func (b *modelBatch) useToken(o *fdbpq.Op, r *fdbpq.Result) {
	i := b.holder(o.Token)
	if i == nil {
		b.counts["lost"]++
		b.wantErr(o, r, fdbpq.ErrLeaseLost)
		return
	}

	b.wantErr(o, r, nil)

	switch {
	case o.Kind == fdbpq.OpExtend:
		i.wait = cmp.Or(o.Lease, i.wait)
		i.forgive()
		i.state, i.due = fdbpq.Leased, b.now.Add(i.wait)

		if !r.Lease.Until.Equal(i.due) {
			b.fail(o, r, i)
		}
	case o.Kind == fdbpq.OpTerm:
		reason := strings.NewReplacer("\n", " ", "\x00", " ").Replace(o.Reason)
		b.die(i, cmp.Or(reason[:min(len(reason), fdbpq.MaxTermReason)], fdbpq.ReasonTerminated),
			i.attempt(trail.Term, b.now, o.Reason))
	case b.expired(i):
		b.expire(i)
	default:
		i.reason = cmp.Or(o.Reason, i.reason)
		if !o.Uncounted && b.exhausted(i) {
			b.die(i, fdbpq.ReasonMaxDeliver, i.attempt(trail.Nak, b.now, o.Reason))
			return
		}

		b.giveBack(o, r, i)
	}
}

// giveBack ends a lease with a nak.
func (b *modelBatch) giveBack(o *fdbpq.Op, r *fdbpq.Result, i *modelItem) {
	if !o.Uncounted {
		b.note(i, i.attempt(trail.Nak, b.now, o.Reason))
	}

	delay := o.Delay
	switch {
	case o.Uncounted:
		i.forgive()
		i.deliveries--
		delay = max(delay, 0)
	case delay == fdbpq.Backoff && len(b.settings.Backoff) == 0:
		delay = min(o.RetryDelay<<min(i.deliveries-1, 16), max(o.RetryDelay, time.Minute))
		if delay > o.RetryDelay {
			b.counts["retried later"]++
		}
	case delay == fdbpq.Backoff:
		delay = b.backoff(i)
	}

	i.token, i.state, i.due, i.since = fdbpq.Token{}, fdbpq.Ready, time.Time{}, time.Time{}
	if delay > 0 {
		i.state, i.due = fdbpq.Delayed, b.now.Add(delay)
	}

	if !r.NextDue.Equal(i.due) {
		b.fail(o, r, i)
	}
}

// pop runs the pops and leases.
func (b *modelBatch) pop() {
	takes := func(o fdbpq.Op) bool { return o.Kind == fdbpq.OpPop || o.Kind == fdbpq.OpLease }
	if !slices.ContainsFunc(b.ops, takes) {
		return
	}

	before := b.nextDue()
	b.bringBackOnce()

	for i := range b.ops {
		if takes(b.ops[i]) {
			b.take(i)
			b.wantReady(i)
		}
	}

	// A pop that waits may be told of what others of its batch have popped or settled.
	next := time.Time{}
	for _, i := range b.items {
		if at := i.fallsDue(); i.state != fdbpq.Ready && at.After(b.now) {
			next = earlier(next, at)
		}
	}

	least := earlier(earlier(earlier(before, next), b.least), earlier(b.leastToken(), b.nextDue()))
	if b.settings.PauseUntil.After(b.now) {
		next, least = b.settings.PauseUntil, b.settings.PauseUntil
	}

	for i := range b.ops {
		o, r := &b.ops[i], &b.results[i]
		if !o.Waits || b.behind ||
			!errors.Is(r.Err, fdbpq.ErrEmpty) && !errors.Is(r.Err, fdbpq.ErrMaxLeased) {
			continue
		}

		next := earlier(next, b.nextToken(r.Err))
		late := !next.IsZero() && (r.NextDue.IsZero() || r.NextDue.After(next))

		if late || !r.NextDue.IsZero() && (least.IsZero() || r.NextDue.Before(least)) {
			b.fail(o, r, fmt.Sprint(least, " to ", next))
		}
	}
}

// take runs one pop or lease.
func (b *modelBatch) take(n int) {
	o, r := &b.ops[n], &b.results[n]
	if o.Follows && b.results[n-1].Err != nil {
		b.wantErr(o, r, b.results[n-1].Err)
		return
	}

	if !o.Follows || b.ops[n-1].Kind != o.Kind {
		for i := n; b.place[i]; i++ {
			delete(b.place, i)
		}
	}

	if b.settings.PauseUntil.After(b.now) {
		b.counts["paused"]++
		b.wantErr(o, r, fdbpq.ErrPaused)

		text := "paused until " + b.settings.PauseUntil.Format(time.RFC3339Nano)
		if !strings.Contains(r.Err.Error(), text) {
			b.fail(o, r, text)
		}

		return
	}

	if b.closed(o, r) {
		return
	}

	first := func() *modelItem {
		return b.end(o.End, func(i *modelItem) bool { return isReady(i) && b.may(i) })
	}
	i := first()

	for ; i != nil && b.expired(i); i = first() {
		if b.behind {
			b.wantErr(o, r, fdbpq.ErrNoRoom)
			return
		}
		b.expire(i) // this batch has pushed it
	}
	if most := b.settings.MaxLeased; i != nil && o.Kind == fdbpq.OpLease && most > 0 &&
		b.inState(fdbpq.Leased)+int64(len(b.place)) >= most {
		b.counts["max_leased"]++
		b.wantErr(o, r, fdbpq.ErrMaxLeased)
		return
	}

	if !b.wantItem(o, r, i) {
		b.wantGroupLimits(o, r)
		return
	}

	b.deliver(i)
	if o.Kind == fdbpq.OpPop {
		b.lose(i, "popped")
		b.popped = append(b.popped, modelPop{item: &r.Item, was: i})
		return
	}

	i.wait = o.Lease
	if o.Lease == 0 && o.Follows {
		before := n - 1
		for b.ops[before].Follows && b.ops[before].Kind == fdbpq.OpAck {
			before--
		}

		i.wait = b.waits[before]
	}

	i.wait = cmp.Or(max(i.wait, 0), b.settings.AckWait, fdbpq.DefaultLease)
	b.waits[n] = i.wait
	i.state, i.due, i.token = fdbpq.Leased, b.now.Add(i.wait), r.Lease.Token
	i.deliveries++
	if i.since = (time.Time{}); b.settings.Trail > 0 || b.settings.Keep > 0 || i.Keep > 0 {
		i.since = b.now
	}
	b.tokens = append(b.tokens, i.token)
	b.counts["leased"]++

	if r.Lease.Deliveries != i.deliveries || !r.Lease.Until.Equal(i.due) || i.token.ID != i.ID ||
		i.token.End != o.End {
		b.fail(o, r, i)
	}

	again, err := fdbpq.ParseToken(i.token.String())
	if err != nil || again != i.token || len(i.token.String()) > 80 {
		b.fail(o, r, again)
	}
}

func (b *modelBatch) peek(o *fdbpq.Op, r *fdbpq.Result) {
	// Unless there is more that is due, only what this batch has pushed can have expired.
	if i := b.end(o.End, isReady); i != nil && b.behind && b.expired(i) {
		b.wantErr(o, r, fdbpq.ErrNoRoom)
	} else {
		b.wantItem(o, r, i)
	}
}

// modelRates is the rates of a queue. The group "" is the queue itself.
type modelRates struct {
	full    map[string]time.Time // when a full burst is allowed again, by group
	entries map[modelEntry]bool  // of the time index
}

// modelEntry says when such a time is over.
type modelEntry struct {
	group string
	at    time.Time
}

// entryOf is the entry for a time: to the microsecond, and not before it.
func entryOf(group string, full time.Time) modelEntry {
	return modelEntry{group, full.Add(time.Microsecond - 1).Truncate(time.Microsecond)}
}

// compareEntries is the order of entries of the same time.
func compareEntries(a, b modelEntry) int {
	hash := func(e modelEntry) codec.GroupHash {
		if e.group == "" {
			return 0
		}
		return fixedHash(e.group)
	}
	return cmp.Compare(hash(a), hash(b))
}

func (q *modelQueue) rateOf(group string) settings.Rate {
	if group == "" {
		return must(settings.ParseRate(q.settings.Rate))
	}
	return must(settings.ParseRate(q.settings.RatePerGroup))
}

// token is when the next delivery is allowed; the zero time is now.
func (q *modelQueue) token(group string) time.Time {
	rate := q.rateOf(group)
	if rate.Count == 0 {
		return time.Time{}
	}

	if at := q.fullAt(group).Add(-time.Duration(rate.Count-1) * rate.Interval()); at.After(q.now) {
		return entryOf(group, at).at
	}

	return time.Time{}
}

// fullAt is when a full burst is allowed again. If that is further ahead than it can be, by more
// than a second, then the clock was set back, and one delivery is allowed.
func (q *modelQueue) fullAt(group string) time.Time {
	rate := q.rateOf(group)
	full, most := q.rates.full[group], q.now.Add(time.Duration(rate.Count)*rate.Interval())

	if full.After(most.Add(time.Second)) {
		return most.Add(-rate.Interval())
	}

	return full
}

// may reports whether the group of an item may be served.
func (q *modelQueue) may(i *modelItem) bool {
	group := i.Group()
	if group == "" {
		return true
	}

	if slices.Contains(q.settings.PausedGroups, group) {
		return false
	}

	leased := q.inOrder(func(other *modelItem) bool {
		return other.state == fdbpq.Leased && other.Group() == group
	})
	return q.token(group).IsZero() &&
		(q.settings.MaxLeasedPerGroup == 0 || int64(len(leased)) < q.settings.MaxLeasedPerGroup)
}

// deliver counts a delivery.
func (q *modelQueue) deliver(i *modelItem) {
	q.count("")
	if i.Group() != "" {
		q.count(i.Group())
	}
}

func (q *modelQueue) count(group string) {
	rate := q.rateOf(group)
	if rate.Count == 0 {
		return
	}

	before, stored := q.rates.full[group]
	if stored {
		delete(q.rates.entries, entryOf(group, before))
	}

	full := q.now.Add(rate.Interval())
	if at := q.fullAt(group); at.After(q.now) {
		full = at.Add(rate.Interval())
	}

	q.rates.full[group] = full
	q.rates.entries[entryOf(group, full)] = true
}

// end removes an entry that is due, with the time that it stands for.
func (r *modelRates) end(e modelEntry) {
	delete(r.entries, e)
	if full, there := r.full[e.group]; there && entryOf(e.group, full) == e {
		delete(r.full, e.group)
	}
}

// forgetStale removes the entries of times that no rate has any more, as a purge does.
func (r *modelRates) forgetStale() {
	maps.DeleteFunc(r.entries, func(e modelEntry, _ bool) bool {
		full, there := r.full[e.group]
		return !there || entryOf(e.group, full) != e
	})
}

// changeRates lets rates that have changed begin anew.
func (q *modelQueue) changeRates(to *fdbpq.Settings) {
	for group := range q.rates.full {
		if group == "" && to.Rate != q.settings.Rate ||
			group != "" && to.RatePerGroup != q.settings.RatePerGroup {
			delete(q.rates.full, group)
		}
	}
}

// closed checks a pop of a queue whose rate is used up.
func (b *modelBatch) closed(o *fdbpq.Op, r *fdbpq.Result) bool {
	at := b.token("")
	if at.IsZero() {
		return false
	}

	b.counts["rate"]++
	var used *fdbpq.RateError

	if b.wantErr(o, r, fdbpq.ErrRate); !errors.As(r.Err, &used) || !used.Until.Equal(at) ||
		!errors.Is(r.Err, fdbpq.ErrEmpty) {
		b.fail(o, r, at)
	}

	return true
}

// wantGroupLimits checks whether a pop that found nothing says that there are items that it may not
// have.
func (b *modelBatch) wantGroupLimits(o *fdbpq.Op, r *fdbpq.Result) {
	passed := b.end(o.End, func(i *modelItem) bool { return isReady(i) && !b.may(i) }) != nil
	if errors.Is(r.Err, fdbpq.ErrGroupLimits) != passed {
		b.fail(o, r, passed)
	}

	if passed {
		b.counts["group limits"]++
	}
}

// nextToken is when the rate that a pop with the error was refused for gives a token.
func (b *modelBatch) nextToken(err error) (next time.Time) {
	if errors.Is(err, fdbpq.ErrRate) {
		return b.token("")
	}

	if errors.Is(err, fdbpq.ErrGroupLimits) {
		for _, i := range b.inOrder(isReady) {
			if i.Group() != "" && !slices.Contains(b.settings.PausedGroups, i.Group()) {
				next = earlier(next, b.token(i.Group()))
			}
		}
	}

	return next
}

// leastToken is when anything gets a token.
func (q *modelQueue) leastToken() time.Time {
	next := q.token("")
	for group := range q.rates.full {
		if group != "" {
			next = earlier(next, q.token(group))
		}
	}

	return next
}

// countGroups counts the items of groups.
func (q *modelQueue) countGroups(info *fdbpq.Info) {
	groups, atLimit := map[string]fdbpq.GroupCount{}, map[string]bool{}
	for _, i := range q.items {
		count := groups[i.Group()]
		count.Group = i.Group()

		switch i.state {
		case fdbpq.Ready:
			count.Ready++
			atLimit[i.Group()] = !q.may(i)
		case fdbpq.Leased:
			count.Leased++
		}

		groups[i.Group()] = count
	}

	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if count := groups[name]; name != "" && count.Ready+count.Leased > 0 {
			info.Groups = append(info.Groups, count)
			if info.GroupCount++; atLimit[name] {
				info.GroupsAtLimit++
			}
		}
	}
}
