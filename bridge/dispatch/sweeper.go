package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Sweeper handles what falls due in idle queues: it removes expired items and message ids whose
// window is over, brings items back, and moves dead letters to their queues. Requests to a queue do
// a share of that first. If more is due than their share, the Sweeper does the rest. It uses an
// operation like any other, fdbpq.OpSweep, in the lane of the queue. Its methods are safe for
// concurrent use.
//
// # When it looks
//
// It keeps an agenda of queues, each with the time at which to look. It learns the times from the
// batches of this process, from its own looks, and from passes through the list of queues. It makes
// a pass at the start, and when the owners of queues change, because what a dead process knew is
// nowhere else. In a store that other programs may use, it also makes a pass every passEvery, as
// long as there are requests or the last pass has found something ahead. So it settles: with
// nothing ahead, nothing runs.
//
// # Who sweeps
//
// Each process sweeps what its own batches know of, and what its passes find in queues that it
// owns. It leaves sweepLag to requests, unless a batch has found more due than its share. Before it
// sweeps, it reads whether another process has. Two that sweep the same queue at the same time
// conflict, which costs only time.
//
// # How fast
//
// It sweeps one page of queues at a time, with a pause after each that is as long as the page took,
// so requests have at least half of the store. Queues take turns. Several share a transaction. If
// that fails because of stored data, each queue gets its own, and only the damaged queue is left
// alone, for damagedPause.
type Sweeper struct {
	d      *shared
	woken  chan struct{} // holds an element when the times below may have changed
	active atomic.Bool   // there were requests since the last pass began
	sweeps atomic.Int64

	// Only Run uses these.
	next  time.Time // when to look at the agenda again
	pause time.Time // before then it begins nothing

	mu struct {
		sync.Mutex
		agenda agenda
		pass   listPass
		behind bool // a batch found more due than its share, so look before next
	}
}

// listPass is a pass through the list of queues.
type listPass struct {
	at    time.Time // when to go on, or to begin the next pass; zero if none is planned
	fifo  bool      // it has come to the FIFO queues
	after string    // it has come to this name
	began time.Time // zero if it has not
	last  time.Time // when the pass before it began
	found bool      // something is ahead in one of the queues
	full  bool      // the agenda had no room for a queue
}

const (
	// sweepEvery is the pause between looks at the agenda, so that queues share transactions.
	sweepEvery = 5 * time.Second
	// sweepLag is how long it leaves due items to requests. With sweepEvery it keeps dead letters
	// within the 30 s that the protocol promises.
	sweepLag = 5 * time.Second
	// msgIDLag is sweepLag for message ids, which pushes remove as well.
	msgIDLag = time.Minute
	// ownersPause is how long it waits after a change of owners. Changes often come together.
	ownersPause = time.Second
	// passEvery is how often it goes through the list, for what other programs have written and for
	// queues that the agenda has no room for.
	passEvery = 10 * time.Minute
	// damagedPause is how long it leaves a queue with unreadable data alone.
	damagedPause = 10 * time.Minute
)

// Sweeps returns how many times it has swept a queue so far.
func (s *Sweeper) Sweeps() int64 { return s.sweeps.Load() }

// now returns the time by the clock by which items fall due, without the monotonic reading that
// comparisons would prefer.
func (s *Sweeper) now() time.Time { return s.d.options.Now().Round(0) }

// wake makes Run look for something to do.
func (s *Sweeper) wake() { signal.To(s.woken) }

// noteBatch records that there was a batch of requests, and what falls due after it.
func (s *Sweeper) noteBatch(p *fdbpq.Pending) {
	// In a shared store, requests are a reason for a pass: other programs may write too.
	if s.d.options.DB.Traits().Shared && !s.active.Load() && !s.active.Swap(true) {
		s.mu.Lock()
		s.planNextLocked()
		s.mu.Unlock()
		s.wake()
	}

	if upcoming := p.Upcoming(); len(upcoming) > 0 {
		s.noteUpcoming(upcoming)
	}
	if behind := p.Behind(); len(behind) > 0 {
		s.noteBehind(behind)
	}
}

// noteUpcoming records when something falls due that this process has written.
func (s *Sweeper) noteUpcoming(upcoming []fdbpq.QueueUpcoming) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, a := range upcoming {
		s.tellSource(a.Queue, a.Upcoming, true)
		s.addLocked(a.Queue, a.Upcoming)
	}
}

// noteBehind goes on at once with queues where a batch found more due than its share.
func (s *Sweeper) noteBehind(queues []fdbpq.QueueName) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, queue := range queues {
		s.addTaskLocked(task{queue: queue, at: s.now()})
	}
	s.mu.behind = true
	s.wake()
}

// tellSource calls Options.Source if the queue has a source, or its source has changed.
func (s *Sweeper) tellSource(queue fdbpq.QueueName, a fdbpq.Upcoming, changed bool) {
	if a.Source && s.d.options.Source != nil {
		s.d.options.Source(queue, changed)
	}
}

// addLocked adds a task for the next time at which a queue has something due.
func (s *Sweeper) addLocked(queue fdbpq.QueueName, a fdbpq.Upcoming) {
	var at time.Time
	if !a.Due.IsZero() {
		at = a.Due.Add(sweepLag)
	}
	if over := a.Over.Add(msgIDLag); !a.Over.IsZero() && (at.IsZero() || over.Before(at)) {
		at = over
	}
	if !at.IsZero() {
		s.addTaskLocked(task{queue: queue, at: at})
	}
}

// addTaskLocked adds a task. If the agenda has no room, a pass will find the queue.
func (s *Sweeper) addTaskLocked(t task) {
	first := len(s.mu.agenda.heap) == 0
	if !s.mu.agenda.add(t) {
		s.mu.pass.full = true
		s.planNextLocked()
	}
	if first {
		s.wake()
	}
}

func (s *Sweeper) addTask(t task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addTaskLocked(t)
}

// planPass plans a pass through the list from its beginning.
func (s *Sweeper) planPass(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pass = listPass{at: at}
	s.wake()
}

// planNextLocked plans the next pass if none is planned and there is a reason for one.
func (s *Sweeper) planNextLocked() {
	p := &s.mu.pass
	foreign := s.d.options.DB.Traits().Shared && (p.found || s.active.Load())
	if p.at.IsZero() && (foreign || p.full) {
		p.at = p.last.Add(passEvery)
	}
}

func (s *Sweeper) warn(ctx context.Context, err error) {
	if ctx.Err() == nil || ctx.Err() == context.DeadlineExceeded {
		s.d.options.Warn("what has fallen due could not be swept; trying again", "error", err)
	}
}

// task is a queue that the sweeper looks at, at a certain time.
type task struct {
	queue     fdbpq.QueueName
	at        time.Time // by the clock by which items fall due
	exclusive bool      // gets a batch for itself: beside others there was no room
	alarm     alarm
}

// agenda holds the tasks, at most one for each queue.
type agenda struct {
	byQueue map[fdbpq.QueueName]*task
	heap    alarms
	limit   int
}

// maxTasks limits the tasks, to about 70 MB. Beyond it, the sweeper goes through the list of queues
// every passEvery.
const maxTasks = 1 << 18

func newAgenda(limit int) agenda {
	return agenda{byQueue: map[fdbpq.QueueName]*task{}, limit: limit}
}

// add adds a task, or merges it with the task of the queue. It returns false if there is no room.
func (a *agenda) add(t task) bool {
	known := a.byQueue[t.queue]
	if known == nil {
		if len(a.heap) >= a.limit {
			return false
		}
		known = &task{queue: t.queue, at: t.at}
		known.alarm.of = known
		a.byQueue[t.queue] = known
	}

	if t.at.Before(known.at) {
		known.at = t.at
	}
	known.exclusive = known.exclusive || t.exclusive
	a.heap.set(&known.alarm, time.Duration(known.at.UnixMicro()))
	return true
}

// takeDue takes up to limit tasks whose time has come, the earliest first.
func (a *agenda) takeDue(now time.Time, limit int) (tasks []task) {
	for len(tasks) < limit && a.isDue(now) {
		t := a.heap[0].of.(*task)
		a.heap.clear(&t.alarm)
		delete(a.byQueue, t.queue)
		tasks = append(tasks, *t)
	}

	if len(a.heap) == 0 {
		*a = newAgenda(a.limit) // neither shrinks
	}
	return tasks
}

// isDue reports whether there is a task whose time has come.
func (a *agenda) isDue(now time.Time) bool {
	return len(a.heap) > 0 && !a.heap[0].of.(*task).at.After(now)
}
