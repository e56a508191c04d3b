package books

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// limits is what Books know of queues that limit the leases of groups, or how often items are
// delivered. Unlike the rest of the books, it keeps all deliveries of these queues to the end,
// because it takes several to see that there are too many.
type limits struct {
	queues map[string]queueLimits

	consumers map[line]int // how many items each may have outstanding

	mu         sync.Mutex
	deliveries map[line][]span // of rates; those of a whole queue have the group ""
	leases     map[line][]*leaseSpan
	held       map[heldLease][]*leaseSpan // that of its group, and that of its consumer
	removes    map[string]int32           // by value: when the first remove of an item was sent
}

type queueLimits struct {
	maxLeased          int // of each group
	rate, ratePerGroup settings.Rate
}

// heldLease names a lease. They may be recorded in any order.
type heldLease struct {
	id    string
	fence int64
}

// line is a group of a queue, or what a consumer has outstanding there.
type line struct{ queue, group, consumer string }

// leaseSpan says how long an item certainly was leased: since a client had it, until its lease may
// have been over, or an operation was sent that may have ended it.
type leaseSpan struct {
	value string
	span
	ofConsumer bool // it counts for a consumer, and not for a group
}

// maxWindow limits how many deliveries the check of a rate looks at together.
const maxWindow = 256

// Limit says what limits a queue, before any operation.
func (b *Books) Limit(queue string, s settings.Settings) error {
	rate, err := settings.ParseRate(s.Rate)
	perGroup, errPerGroup := settings.ParseRate(s.RatePerGroup)
	b.limits.queues[queue] = queueLimits{int(s.MaxLeasedPerGroup), rate, perGroup}
	return errors.Join(err, errPerGroup)
}

// out records an item that was popped or leased.
func (l *limits) out(op *Operation, item Item, tolerance int32) {
	limits, limited := l.queues[op.Queue]
	by := line{queue: op.Queue, consumer: op.Consumer}
	_, limitedThere := l.consumers[by]
	if !limited && !limitedThere {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	until := millis(item.Until) - tolerance
	at := span{millis(op.Call), millis(op.Return) + 1} // it was delivered at some time in between
	if limitedThere {
		l.lease(by, item, at.to, until)
	}
	if !limited {
		return
	}

	if limits.rate.Count > 0 {
		whole := line{queue: op.Queue}
		l.deliveries[whole] = append(l.deliveries[whole], at)
	}
	if item.Group == "" {
		return
	}

	group := line{queue: op.Queue, group: item.Group}
	if limits.ratePerGroup.Count > 0 {
		l.deliveries[group] = append(l.deliveries[group], at)
	}
	if limits.maxLeased > 0 && op.Kind.Leases() {
		l.lease(group, item, at.to, until)
	}
}

// lease records a lease of a line from one time to another.
func (l *limits) lease(at line, item Item, from, to int32) {
	lease := &leaseSpan{item.Value, span{from, to}, at.consumer != ""}
	l.leases[at] = append(l.leases[at], lease)
	key := heldLease{item.ID, item.Fence}
	l.held[key] = append(l.held[key], lease)
}

// use records that an operation with a token is sent.
func (l *limits) use(op *Operation) {
	if !l.limitsLeases(op.Queue) || op.Kind == Extend {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, span := range l.held[heldLease{op.ID, op.Fence}] {
		span.to = min(span.to, millis(op.Call))
	}
}

// extend records that a lease was extended. If it was over before, the item may have been leased
// beyond the limit.
func (l *limits) extend(op *Operation, tolerance int32) {
	if l.queues[op.Queue].maxLeased == 0 || op.Until == 0 {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, span := range l.held[heldLease{op.ID, op.Fence}] {
		if !span.ofConsumer && millis(op.Return) < span.to {
			span.to = millis(op.Until) - tolerance
		}
	}
}

// remove records that a remove of an item is sent.
func (l *limits) remove(op *Operation) {
	if !l.limitsLeases(op.Queue) || op.Kind != Remove {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.removes[op.Value]; !again {
		l.removes[op.Value] = millis(op.Call)
	}
}

// checkLimits adds a problem for each group that had too many items leased at a time, and for too
// many deliveries.
func (b *Books) checkLimits(sum *Balance) {
	l := b.limits
	for group, spans := range l.leases {
		most := l.queues[group.queue].maxLeased
		if group.consumer != "" {
			most = l.consumers[group]
		}
		b.checkLeased(group, spans, most, sum)
	}

	for group, times := range l.deliveries {
		rate := l.queues[group.queue].ratePerGroup
		if group.group == "" {
			rate = l.queues[group.queue].rate
		}
		b.checkRate(group, times, rate, sum)
	}
}

// checkLeased checks the leases of a group.
func (b *Books) checkLeased(group line, spans []*leaseSpan, limit int, sum *Balance) {
	type event struct {
		at     int32
		begins int // 1 if the lease begins then, 0 if it ends
		span   *leaseSpan
	}

	var events []event
	for _, s := range spans {
		if removed, ok := b.limits.removes[s.value]; ok {
			s.to = min(s.to, removed)
		}
		if s.from < s.to {
			events = append(events, event{s.from, 1, s}, event{s.to, 0, s})
		}
	}

	slices.SortFunc(events, func(x, y event) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.begins, y.begins)) // ends first
	})

	var at []string // leased
	for _, e := range events {
		if e.begins == 0 {
			n := slices.Index(at, e.span.value)
			at = slices.Delete(at, n, n+1)
			continue
		}
		if at = append(at, e.span.value); len(at) == limit {
			sum.AtLimit++
		}
		if len(at) > limit {
			b.problem("too many leased: %q of %q at %d ms, limit %d", at, group, e.at, limit)
		}
	}
}

// checkRate checks deliveries over all times that begin with one, up to maxWindow of them. Clocks
// of bridges differ: that may let through more once, and again each time that a clock which is
// ahead finds that a full burst may be delivered.
func (b *Books) checkRate(group line, times []span, rate settings.Rate, sum *Balance) {
	slices.SortFunc(times, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	apart := 2 * time.Duration(b.tolerance) * time.Millisecond
	var ends []int32
	for i, first := range times {
		ends = ends[:0]
		for _, d := range times[i:min(i+maxWindow, len(times))] {
			ends = append(ends, d.to)
		}

		slices.Sort(ends)
		for n, end := range ends {
			took := time.Duration(end-first.from) * time.Millisecond
			bursts := time.Duration(int64(n)/rate.Count) + 1
			if most := rate.Count + int64((took+bursts*apart)/rate.Interval()); int64(n) >= most {
				b.problem("too many deliveries: %d of %q within %v from %d ms on, limit %d",
					n+1, group, took, first.from, most)
				return
			}
			if int64(n) >= rate.Count && took < rate.Per {
				sum.AtRate++
			}
		}
	}
}
