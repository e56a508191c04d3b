package fdbpq_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

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
		return codec.HashGroup(e.group)
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
	if at := q.rates.full[group].Add(-time.Duration(rate.Count-1) * rate.Interval()); at.After(q.now) {
		return entryOf(group, at).at
	}
	return time.Time{}
}

// may reports whether the group of an item may be served.
func (q *modelQueue) may(i *modelItem) bool {
	group := i.Group()
	if group == "" {
		return true
	}
	leased := q.inOrder(func(other *modelItem) bool { return other.state == fdbpq.Leased && other.Group() == group })
	return q.token(group).IsZero() && (q.settings.MaxLeasedPerGroup == 0 || int64(len(leased)) < q.settings.MaxLeasedPerGroup)
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
	if before.After(q.now) {
		full = before.Add(rate.Interval())
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

// changeRates lets rates that have changed begin anew.
func (q *modelQueue) changeRates(to *fdbpq.Settings) {
	for group := range q.rates.full {
		if group == "" && to.Rate != q.settings.Rate || group != "" && to.RatePerGroup != q.settings.RatePerGroup {
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
	if b.wantErr(o, r, fdbpq.ErrRate); !errors.As(r.Err, &used) || !used.Until.Equal(at) || !errors.Is(r.Err, fdbpq.ErrEmpty) {
		b.fail(o, r, at)
	}
	return true
}

// wantGroupLimits checks whether a pop that found nothing says that there are items that it may not have.
func (b *modelBatch) wantGroupLimits(o *fdbpq.Op, r *fdbpq.Result) {
	passed := b.end(o.End, func(i *modelItem) bool { return isReady(i) && !b.may(i) }) != nil
	if errors.Is(r.Err, fdbpq.ErrGroupLimits) != passed {
		b.fail(o, r, passed)
	}
	if passed {
		b.counts["group limits"]++
	}
}

// nextToken is when the first of those gets a token that a pop with the error was refused for.
func (b *modelBatch) nextToken(err error) (next time.Time) {
	if errors.Is(err, fdbpq.ErrRate) {
		return b.token("")
	}
	if errors.Is(err, fdbpq.ErrGroupLimits) {
		for _, i := range b.inOrder(isReady) {
			if i.Group() != "" {
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
