package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// With thousands of queues, each second between two lists costs listsPerSecond queues at most.
	listsPerSecond = 500
	// Each viewTime, live asks about the queues that a page shows in a table. The others take
	// turns, othersPerTick at each tick. The page of a queue asks by itself.
	viewTime      = 5 * time.Second
	othersPerTick = 10
	maxQueues     = 50_000
	// tick is the time between two looks while somebody looks at pages.
	tick = time.Second
)

// queueState is what is known of a queue.
type queueState struct {
	subjects.QueueCounts
	listed  bool // it has items or settings
	history history
	info    *client.QueueInfo // nil until it was asked for
	infoAt  time.Time
	asked   time.Time // when it was last asked for
	shown   time.Time // when a page last showed it in a table
}

// figures are what is known of the queues and bridges. All pages show them.
type figures struct {
	mu      sync.Mutex
	queues  map[queueRef]*queueState
	bridges bridges
	total   history
	listed  time.Time // when the list was last complete
	listErr error
	refused time.Time // when the server last did not let a question about a queue pass
	looked  time.Time // when the bridges were last asked
}

// record adds what was found to the histories. f.mu is held.
func (f *figures) record(now time.Time, found map[queueRef]subjects.QueueCounts) {
	all := point{at: now, in: -1, out: -1}
	for ref := range found {
		f.queue(ref)
	}

	dead := f.deadNames()
	for ref, home := range dead {
		n, isFound := found[ref]
		if _, isListed := found[home]; isFound && !isListed && n.Ready+n.Leased+n.Delayed > 0 {
			found[home] = subjects.QueueCounts{} // its dead letters are all that it has
		}
	}

	for ref, n := range found {
		q := f.queue(ref)
		q.QueueCounts, q.listed = n, true
		p := f.pointOf(now, ref, q)
		q.history.add(p)
		if _, isDead := dead[ref]; isDead {
			continue
		}

		all.ready += p.ready
		all.leased += p.leased
		all.delayed += p.delayed
		if p.in >= 0 {
			all.in, all.out = max(all.in, 0)+p.in, max(all.out, 0)+p.out
		}
	}

	f.total.add(all)
}

// queue returns what is known of a queue. If there are too many, it is not kept. f.mu is held.
func (f *figures) queue(ref queueRef) *queueState {
	q := f.queues[ref]
	if q == nil {
		q = &queueState{}
		if len(f.queues) < maxQueues {
			f.queues[ref] = q
		}
	}
	return q
}

func (f *figures) pointOf(now time.Time, ref queueRef, q *queueState) point {
	p := point{at: now, ready: q.Ready, leased: q.Leased, delayed: q.Delayed, in: -1, out: -1}
	if in, out := f.bridges.ratesOf(ref); in != nil {
		p.in, p.out = float32(*in), float32(*out)
	}
	return p
}

func (f *figures) isListDue(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	every := max(time.Duration(len(f.queues))*time.Second/listsPerSecond, tick)
	return f.listErr != nil || now.Sub(f.listed) >= every-tick/4
}

// due returns the queues to ask about: those that pages show, and some of the others. The queues
// asked longest ago come first.
func (f *figures) due(now time.Time) []queueRef {
	f.mu.Lock()
	defer f.mu.Unlock()
	var shown, others []queueRef
	for ref, q := range f.queues {
		switch age := now.Sub(q.asked); {
		case !q.listed:
		case now.Sub(q.shown) < viewTime && age >= viewTime-tick/4:
			shown = append(shown, ref)
		case age >= 2*viewTime && now.Sub(f.refused) > rightTime: // servers log what they refuse
			others = append(others, ref)
		}
	}

	byAge := func(a, b queueRef) int { return f.queues[a].asked.Compare(f.queues[b].asked) }
	slices.SortFunc(shown, byAge)
	slices.SortFunc(others, byAge)
	return append(shown, others[:min(len(others), othersPerTick)]...)
}

// listedAt is when all queues were last listed.
func (f *figures) listedAt() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}

// knownQueue is what is known of a queue as of a time, and its history.
type knownQueue struct {
	queueRow
	info   *client.QueueInfo // nil if it is not known
	asOf   time.Time
	points []point
}

// one returns what is known of a queue.
func (f *figures) one(ref queueRef) knownQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[ref]
	if q == nil {
		return knownQueue{queueRow: queueRow{queueRef: ref}}
	}

	now := time.Now()
	q.shown = now
	k := knownQueue{f.row(now, ref, q), q.info, q.infoAt, slices.Clone(q.history.points)}
	if k.asOf.IsZero() && q.listed {
		k.asOf = f.listed
	}

	k.Line = q.history.line(now, readyOf)
	return k
}

// all returns all queues, in no order and without their lines, and the total of them. Dead-letter
// queues do not count: their items are the Dead of the queues they came from.
func (f *figures) all() (rows []queueRow, sum counts, err error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	dead := f.deadNames()
	rows = make([]queueRow, 0, len(f.queues))
	sum.Dead = new(int64)
	var in, out float64
	for ref, q := range f.queues {
		if !q.listed && q.Ready+q.Leased+q.Delayed == 0 {
			continue
		}
		row := f.row(now, ref, q)
		_, row.IsDead = dead[ref]
		rows = append(rows, row)
		if row.IsDead {
			*sum.Dead += row.All()
			continue
		}
		sum.Ready += row.Ready
		sum.Leased += row.Leased
		sum.Delayed += row.Delayed
		if row.In != nil {
			in, out = in+*row.In, out+*row.Out
			sum.In, sum.Out = &in, &out
		}
	}

	return rows, sum, f.listErr
}

// deadNames returns the dead-letter queues and the queues they belong to: those that the settings
// of others name, as far as they are known, and those with the usual name. f.mu is held.
func (f *figures) deadNames() map[queueRef]queueRef {
	dead := map[queueRef]queueRef{}
	for ref := range f.queues {
		if home, ok := strings.CutSuffix(ref.Name, settings.DeadSuffix); ok && home != "" {
			dead[ref] = ref.Named(home)
		}
	}

	for ref, q := range f.queues {
		if q.info != nil && q.info.Settings.DeadLetter != "" {
			dead[ref.Named(q.info.Settings.DeadLetter)] = ref
		}
	}

	return dead
}

// row returns a queue without its line. f.mu is held.
func (f *figures) row(now time.Time, ref queueRef, q *queueState) queueRow {
	row := queueRow{queueRef: ref}
	row.Ready, row.Leased, row.Delayed = q.Ready, q.Leased, q.Delayed
	row.In, row.Out = f.bridges.ratesOf(ref)

	var set client.Settings
	if q.info != nil {
		set = q.info.Settings
		if q.info.OldestAge != nil && q.Ready > 0 {
			age := *q.info.OldestAge + now.Sub(q.infoAt)
			row.Oldest = &age
		}
	}

	row.Paused, row.PausedGroups = set.PauseUntil.After(now), set.PausedGroups
	if !set.PauseUntil.Equal(target.Forever) {
		row.PausedUntil = set.PauseUntil
	}

	dead := ref.Named(set.DeadLetterQueue(ref.Name))
	if other := f.queues[dead]; other != nil {
		if n := other.Ready + other.Leased + other.Delayed; n > 0 {
			row.Dead, row.DeadQueue = &n, &dead
		}
	}

	return row
}

// show sets the lines of rows that somebody looks at now.
func (f *figures) show(rows []queueRow) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range rows {
		if q := f.queues[rows[i].queueRef]; q != nil {
			q.shown = now
			rows[i].Line = q.history.line(now, readyOf)
		}
	}
}

// sumLines returns the rates of all queues lately, and how many items were ready.
func (f *figures) sumLines() (ready, in, out []int64) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total.line(now, readyOf), f.total.line(now, inOf), f.total.line(now, outOf)
}

func byName(a, b queueRow) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
}
