package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	// With thousands of queues, each second between two lists costs listsPerSecond queues at most.
	listsPerSecond = 500
	// Each viewTime, the monitor asks about the queues that a page shows in a table. The others
	// take turns, othersPerTick at each tick. The page of a queue asks by itself.
	viewTime      = 5 * time.Second
	othersPerTick = 10
	maxQueues     = 50_000
	// tick is the time between two looks while somebody looks at pages.
	tick = time.Second
)

// monitor knows what the queues and bridges do now. All pages share it: it asks as often for 20
// pages as for one, and not at all while nobody looks.
type monitor struct {
	g       *gateway
	answers *nats.Subscription
	wake    chan struct{}
	asked   ttlCache[queueRef, *client.QueueInfo] // for their pages

	mu      sync.Mutex
	queues  map[queueRef]*queueState
	bridges bridges
	total   history
	listed  time.Time // when the list was last complete
	listErr error
	refused time.Time     // when the server last did not let a question about a queue pass
	looked  time.Time     // when the bridges were last asked
	watched time.Time     // when somebody last looked
	ended   chan struct{} // closed when the next look ends
}

// queueState has the figures of a queue.
type queueState struct {
	subjects.QueueCounts
	listed  bool // it has items or settings
	history history
	asked   time.Time // when it was last asked for
	shown   time.Time // when a page last showed it in a table

	// The rest is a part of its info, which can be a thousand times as large.
	knownAt      time.Time // zero until it was asked for
	oldest       *time.Duration
	least        *int64 // the smallest priority of a ready item
	deadLetter   string
	pauseUntil   time.Time
	pausedGroups int
}

// record adds counts to the histories. m.mu is held.
func (m *monitor) record(now time.Time, found map[queueRef]subjects.QueueCounts) {
	all := newPoint(now, subjects.QueueCounts{}, m.bridges.traffic(allQueues))
	for ref := range found {
		m.queue(ref)
	}

	dead := m.deadNames()
	for ref, home := range dead {
		n, isFound := found[ref]
		if _, isListed := found[home]; isFound && !isListed && n.Ready+n.Leased+n.Delayed > 0 {
			found[home] = subjects.QueueCounts{} // its dead letters are all that it has
		}
	}

	for ref, n := range found {
		q := m.queue(ref)
		q.QueueCounts, q.listed = n, true
		p := newPoint(now, n, m.bridges.traffic(ref))
		q.history.add(p)
		if _, isDead := dead[ref]; isDead {
			continue
		}

		for line := range countLines {
			all.figures[line] += p.figures[line]
		}
	}

	m.total.add(all)
}

// queue returns the state of a queue, which is not kept if there are too many. m.mu is held.
func (m *monitor) queue(ref queueRef) *queueState {
	q := m.queues[ref]
	if q == nil {
		q = &queueState{}
		if len(m.queues) < maxQueues {
			m.queues[ref] = q
		}
	}
	return q
}

// note takes in the info of a queue. m.mu is held.
func (m *monitor) note(now time.Time, ref queueRef, info *client.QueueInfo) {
	q, set := m.queue(ref), &info.Settings
	q.knownAt, q.oldest, q.least, q.deadLetter = now, info.OldestAge, nil, set.DeadLetter
	q.pauseUntil, q.pausedGroups = set.PauseUntil, len(set.PausedGroups)
	if len(info.Priorities) > 0 {
		least := info.Priorities[0].Priority // a pointer would keep all of them
		q.least = &least
	}
	q.Ready, q.Leased, q.Delayed = info.Ready, info.Leased, info.Delayed
	q.history.add(newPoint(now, q.QueueCounts, m.bridges.traffic(ref)))
}

func (m *monitor) isListDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	every := max(time.Duration(len(m.queues))*time.Second/listsPerSecond, tick)
	return m.listErr != nil || now.Sub(m.listed) >= every-tick/4
}

// due returns the queues to ask about: queues on pages, and some of the others. The queues asked
// longest ago come first.
func (m *monitor) due(now time.Time) []queueRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	var shown, others []queueRef
	for ref, q := range m.queues {
		switch age := now.Sub(q.asked); {
		case !q.listed:
		case now.Sub(q.shown) < viewTime && age >= viewTime-tick/4:
			shown = append(shown, ref)
		case age >= 2*viewTime && now.Sub(m.refused) > rightTime: // servers log what they refuse
			others = append(others, ref)
		}
	}

	byAge := func(a, b queueRef) int { return m.queues[a].asked.Compare(m.queues[b].asked) }
	slices.SortFunc(shown, byAge)
	slices.SortFunc(others, byAge)
	return append(shown, others[:min(len(others), othersPerTick)]...)
}

// knownQueue has the figures of a queue as of a time, and its history.
type knownQueue struct {
	queueRow
	least  *int64
	asOf   time.Time
	points []point
	past   past
}

// one returns the figures of a queue.
func (m *monitor) one(ref queueRef) knownQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[ref]
	if q == nil {
		return knownQueue{queueRow: queueRow{queueRef: ref}}
	}

	now := time.Now()
	q.shown = now
	k := knownQueue{
		m.row(now, ref, q), q.least, q.knownAt, slices.Clone(q.history.points), m.bridges.past(ref),
	}
	if k.asOf.IsZero() && q.listed {
		k.asOf = m.listed
	}

	k.Line = q.history.line(now, readyLine)
	return k
}

// queueList has all queues at one time.
type queueList struct {
	rows    []queueRow // in no order and without their lines
	known   bool       // all queues were listed at least once; a part of them has no total
	traffic traffic    // of all queues together
	err     error      // of the last list
}

// all returns all queues.
func (m *monitor) all() queueList {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := queueList{
		rows: make([]queueRow, 0, len(m.queues)), known: !m.listed.IsZero(),
		traffic: m.bridges.traffic(allQueues), err: m.listErr,
	}

	dead := m.deadNames()
	for ref, q := range m.queues {
		if q.listed || q.Ready+q.Leased+q.Delayed > 0 {
			row := m.row(now, ref, q)
			_, row.IsDead = dead[ref]
			list.rows = append(list.rows, row)
		}
	}

	return list
}

// sum returns the total. Dead-letter queues do not count: their items are the Dead of the queues
// they came from.
func (l *queueList) sum() counts {
	sum := counts{Known: l.known, traffic: l.traffic}
	var letters int64
	for i := range l.rows {
		row := &l.rows[i]
		if row.IsDead {
			letters += row.All()
			continue
		}
		sum.Ready += row.Ready
		sum.Leased += row.Leased
		sum.Delayed += row.Delayed
	}

	sum.Dead = sum.IfKnown(letters)
	return sum
}

// deadNames returns the dead-letter queues and the queues they belong to, by the usual names and by
// the settings as far as they are known. m.mu is held.
func (m *monitor) deadNames() map[queueRef]queueRef {
	dead := map[queueRef]queueRef{}
	for ref := range m.queues {
		if home, ok := strings.CutSuffix(ref.Name, settings.DeadSuffix); ok && home != "" {
			dead[ref] = ref.Named(home)
		}
	}

	for ref, q := range m.queues {
		if q.deadLetter != "" {
			dead[ref.Named(q.deadLetter)] = ref
		}
	}

	return dead
}

// row returns a queue without its line. m.mu is held.
func (m *monitor) row(now time.Time, ref queueRef, q *queueState) queueRow {
	row := queueRow{queueRef: ref}
	row.Ready, row.Leased, row.Delayed = q.Ready, q.Leased, q.Delayed
	row.Known = q.listed || !q.knownAt.IsZero()
	row.traffic = m.bridges.traffic(ref)

	if q.oldest != nil && q.Ready > 0 {
		age := *q.oldest + now.Sub(q.knownAt)
		row.Oldest = &age
	}

	row.Paused, row.PausedGroups = q.pauseUntil.After(now), q.pausedGroups
	if !q.pauseUntil.Equal(target.Forever) {
		row.PausedUntil = q.pauseUntil
	}

	set := client.Settings{DeadLetter: q.deadLetter}
	dead := ref.Named(set.DeadLetterQueue(ref.Name))
	if q.listed && !m.listed.IsZero() { // then a queue that is not in the list has no items
		row.Dead = new(int64)
	}
	if other := m.queues[dead]; other != nil {
		if n := other.Ready + other.Leased + other.Delayed; n > 0 {
			row.Dead, row.DeadQueue = &n, &dead
		}
	}

	return row
}

// show adds the lines of rows that somebody looks at now, and those of all queues, with their
// counters and as of when they are.
func (m *monitor) show(v *queuesView) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range v.Rows {
		if q := m.queues[v.Rows[i].queueRef]; q != nil {
			q.shown = now
			v.Rows[i].Line = q.history.line(now, readyLine)
		}
	}

	v.Sum.Line, v.InLine = m.total.line(now, readyLine), m.total.line(now, pushedLine)
	v.OutLine, v.FailedLine = m.total.line(now, poppedLine), m.total.line(now, failedLine)
	v.Past, v.asOf = m.bridges.past(allQueues), m.listed
	v.Hour, v.Most = m.hour()
}

// hour returns the queues of which most has failed in the last hour, and the largest of their
// numbers. m.mu is held.
func (m *monitor) hour() (rows []hourRow, most subjects.Traffic) {
	for ref := range m.queues {
		counted := m.bridges.past(ref).Counted
		if counted != nil && counted.Hour.Failed+counted.Hour.Dead > 0 {
			rows = append(rows, hourRow{ref, counted.Hour})
		}
	}

	slices.SortFunc(rows, func(a, b hourRow) int {
		return cmp.Or(cmp.Compare(b.Failed+b.Dead, a.Failed+a.Dead), cmp.Compare(a.Name, b.Name))
	})
	rows = rows[:min(len(rows), slowRows)]
	for _, row := range rows {
		most.Failed, most.Out = max(most.Failed, row.Failed), max(most.Out, row.Out)
		most.Dead = max(most.Dead, row.Dead)
	}
	return rows, most
}

// waiting is how many pops wait.
func (m *monitor) waiting() *int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bridges.traffic(allQueues).Waiting
}

func byName(a, b queueRow) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
}
