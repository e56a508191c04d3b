package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Sweeper does what falls due in queues that nobody asks: it removes items that have expired and
// message ids whose window is over, brings items back, and takes dead letters where they belong.
// Whoever asks a queue does a share of that first. Where more is due than that, the Sweeper does the rest.
//
// What it does is an operation like any other, fdbpq.OpSweep, which it submits to the lane of the queue. A lane does not
// conflict with itself, so the Sweeper gets in nobody's way.
//
// # When it looks
//
// It keeps an agenda of queues with the time at which to look at each, and begins no transaction
// before that. It learns the times from the batches of this process, from its own looks, and from
// passes through the list of queues: one at the start, and one whenever the owners of queues
// change, because what a dead process knew is nowhere else. In a store that other programs use, it
// also makes a pass every foreignEvery, as long as there are requests or the last pass has found
// something ahead. So it settles: with nothing ahead, nothing runs.
//
// # Who sweeps
//
// The owner of a queue, ownerLag after something falls due, so that whoever asks may do it first; or at once, if
// a batch has found more due than its share. A
// process that is not the owner but knows of something, because it has run the request, looks some
// time later, and does what the owner has not done. Two processes that sweep the same conflict, which costs time
// and nothing else.
//
// # How fast
//
// One page of queues at a time, with a pause after each that is as long as it took, so that requests
// have half of the store at least. Queues take turns.
//
// # Damaged queues
//
// Several queues share a transaction. If it fails because of what is stored, and not because the store is away,
// each of them has one of its own, so that only the damaged queue is left alone, for damagedPause.
type Sweeper struct {
	d      *Dispatcher
	woken  chan struct{} // has an element when the times below may have changed
	active atomic.Bool   // there were requests since the last pass began
	sweeps atomic.Int64

	next  time.Time // when to look at the agenda again; only Run uses it
	pause time.Time // until when not to begin anything; only Run uses it

	mu struct {
		sync.Mutex
		agenda agenda
		pass   listPass
		behind bool // a batch has found more due than its share: not to wait for next
	}
}

// listPass is a pass through the list of queues.
type listPass struct {
	at    time.Time // when to go on, or to begin the next; zero if there is no reason for one
	fifo  bool      // how far it has come
	after string
	under bool      // it has begun
	found bool      // something is ahead in one of the queues
	full  bool      // the agenda had no room
	began time.Time // the last one
}

const (
	// sweepEvery is how often the sweeper looks at its agenda at most, so that queues share
	// transactions.
	sweepEvery = 5 * time.Second
	// ownerLag is how long it leaves what is due to those who ask for it, and otherLag how much longer to the owner
	// of the queue. With sweepEvery they keep dead letters within the 30 s that the protocol
	// promises.
	ownerLag = 5 * time.Second
	otherLag = 8 * time.Second
	// msgIDLag is the same for message ids. Pushes remove them as well.
	msgIDLag = time.Minute
	// sweepPage is how many queues it sweeps at a time.
	sweepPage = 32
	// ownersPause is how long it waits after a change of owners, since changes often come together.
	ownersPause = time.Second
	// foreignEvery is how often it looks for what other programs have written.
	foreignEvery = 10 * time.Minute
	// damagedPause is how long it leaves a queue alone whose data it cannot read.
	damagedPause = 10 * time.Minute
)

func newSweeper(d *Dispatcher) *Sweeper {
	s := &Sweeper{d: d, woken: make(chan struct{}, 1)}
	s.mu.agenda = newAgenda(maxTasks)
	return s
}

// Sweeps returns how many times it has swept a queue so far.
func (s *Sweeper) Sweeps() int64 { return s.sweeps.Load() }

// Run sweeps until ctx ends. The store must be open.
func (s *Sweeper) Run(ctx context.Context) {
	s.mu.Lock()
	s.mu.pass = listPass{at: time.Now()}
	s.mu.Unlock()
	s.next = time.Now()
	watch := newClockWatch(s.d.now)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.woken:
		}
		timer.Stop()
		if watch.parted() {
			s.next = time.Now() // what is on the agenda may be due
		}
		if wait, any := s.step(ctx); any {
			timer.Reset(min(wait, watchEvery))
		}
	}
}

// Round makes a pass through the list and does what is to be done by now, without waiting for the next time at
// which Run would, or in between. It may be called while Run runs.
func (s *Sweeper) Round(ctx context.Context) {
	s.mu.Lock()
	s.mu.pass = listPass{at: time.Now()}
	s.mu.Unlock()
	for ctx.Err() == nil && s.stepPass(ctx, time.Now()) {
	}
	for tasks := s.take(); len(tasks) > 0 && ctx.Err() == nil; tasks = s.take() {
		s.sweep(ctx, tasks)
	}
}

// step does a small part of the work, and returns how long to wait before the next; false if there is
// none until something changes.
func (s *Sweeper) step(ctx context.Context) (wait time.Duration, any bool) {
	began := time.Now()
	if wait := s.pause.Sub(began); wait > 0 {
		return wait, true
	}
	s.mu.Lock()
	if s.mu.behind {
		s.mu.behind, s.next = false, began
	}
	s.mu.Unlock()
	worked := s.stepPass(ctx, began)
	if !began.Before(s.next) {
		tasks := s.take()
		if len(tasks) > 0 {
			worked = true
			if !s.sweep(ctx, tasks) {
				s.next = time.Now().Add(sweepEvery)
			}
		} else {
			s.next = began.Add(sweepEvery)
		}
	}
	if worked {
		pause := max(retirePause, time.Since(began))
		s.pause = time.Now().Add(pause)
		return pause, true
	}
	return s.untilNext()
}

// untilNext returns how long nothing has to be done.
func (s *Sweeper) untilNext() (wait time.Duration, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.mu.pass.at
	// The clock of the agenda may be set, so the next time is not that of its first task.
	if len(s.mu.agenda.heap) > 0 && (next.IsZero() || s.next.Before(next)) {
		next = s.next
	}
	return max(0, time.Until(next)), !next.IsZero()
}

func (s *Sweeper) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// noteBatch notes that there was a batch, and what falls due of what it has written.
func (s *Sweeper) noteBatch(ahead []fdbpq.QueueAhead) {
	s.note(ahead)
	if !s.active.Load() && s.d.options.DB.Traits().Shared && !s.active.Swap(true) {
		s.mu.Lock()
		s.planPassLocked()
		s.mu.Unlock()
		s.wake()
	}
}

// note notes what falls due of what this process has written.
func (s *Sweeper) note(ahead []fdbpq.QueueAhead) {
	if len(ahead) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range ahead {
		s.addLocked(a.Queue, a.Ahead, false)
	}
}

// noteBehind notes queues where a batch of this process has found more due than its share, so that their owner goes
// on at once.
func (s *Sweeper) noteBehind(queues []fdbpq.QueueName) {
	if len(queues) == 0 {
		return
	}
	owns, now := s.d.options.Owns, s.d.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range queues {
		s.addTaskLocked(task{queue: queue, at: now})
		s.mu.behind = s.mu.behind || owns == nil || owns(kindOf(queue), queue.Name)
	}
	if s.mu.behind {
		s.wake()
	}
}

// addLocked adds a task for what is ahead.
func (s *Sweeper) addLocked(queue fdbpq.QueueName, a fdbpq.Ahead, found bool) {
	var at time.Time
	if !a.Due.IsZero() {
		at = a.Due.Add(ownerLag)
	}
	if over := a.Over.Add(msgIDLag); !a.Over.IsZero() && (at.IsZero() || over.Before(at)) {
		at = over
	}
	if !at.IsZero() {
		s.addTaskLocked(task{queue: queue, at: at, found: found})
	}
}

func (s *Sweeper) addTaskLocked(t task) {
	first := len(s.mu.agenda.heap) == 0
	if !s.mu.agenda.add(t) {
		s.mu.pass.full = true
		s.planPassLocked()
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

// ownersChanged plans a pass through the list.
func (s *Sweeper) ownersChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pass = listPass{at: time.Now().Add(ownersPause)}
	s.wake()
}

// planPassLocked plans the next pass, if none is planned and there is a reason for one.
func (s *Sweeper) planPassLocked() {
	p := &s.mu.pass
	foreign := s.d.options.DB.Traits().Shared && (p.found || s.active.Load())
	if p.at.IsZero() && (foreign || p.full) {
		p.at = p.began.Add(foreignEvery)
	}
}

// take returns the tasks to be done now, and moves those that others are to do first.
func (s *Sweeper) take() (tasks []task) {
	owns := s.d.options.Owns
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.mu.agenda.take(s.d.now(), sweepPage) {
		switch {
		case owns == nil || t.late || owns(kindOf(t.queue), t.queue.Name):
			tasks = append(tasks, t)
		case !t.found:
			t.late, t.at = true, t.at.Add(otherLag)
			s.addTaskLocked(t)
		}
	}
	return tasks
}

// sweep looks at the queues of tasks and sweeps those where something is due. It reports whether there may be
// more to do at once.
func (s *Sweeper) sweep(outer context.Context, tasks []task) (more bool) {
	ctx, cancel := context.WithTimeout(outer, s.d.options.RequestTimeout)
	defer cancel()
	err := s.look(ctx, &tasks)
	now := s.d.now()
	if err == nil && len(tasks) > 0 {
		s.plan(ctx, tasks, s.run(ctx, tasks), now)
		return true
	}
	switch {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.agenda.isDue(now)
	case isDamage(err) && len(tasks) > 1:
		return s.sweepSingly(outer, tasks)
	case isDamage(err):
		s.planDamaged(tasks[0], err, now)
	default:
		s.warn(ctx, err)
		for _, t := range tasks {
			t.at = now.Add(sweepEvery)
			s.addTask(t)
		}
	}
	return false
}

// sweepSingly sweeps the queues of tasks each by itself.
func (s *Sweeper) sweepSingly(ctx context.Context, tasks []task) (more bool) {
	for i := range tasks {
		if s.sweep(ctx, tasks[i:i+1:i+1]) {
			more = true
		}
	}
	return more
}

// isDamage reports whether an error is about what is stored, which others need not share.
func isDamage(err error) bool {
	return errors.Is(err, kv.ErrCorrupt) || errors.Is(err, fdbpq.ErrCorrupt) || errors.Is(err, kv.ErrTooLarge)
}

// planDamaged puts a task back whose queue cannot be swept.
func (s *Sweeper) planDamaged(t task, err error, now time.Time) {
	s.d.options.Warn("a queue cannot be swept", "queue", t.queue.Name, "error", err)
	t.at = now.Add(damagedPause)
	s.addTask(t)
}

// Sweep sweeps queues once, so that whoever reads then finds what is due there, unless that is very much.
func (s *Sweeper) Sweep(ctx context.Context, queues []fdbpq.QueueName) error {
	tasks := make([]task, len(queues))
	for i, queue := range queues {
		tasks[i].queue = queue
	}
	var err error
	for _, r := range s.run(ctx, tasks) {
		err = cmp.Or(err, r.Err)
	}
	return err
}

// run has the lanes sweep the queues of tasks, and returns how that ended.
func (s *Sweeper) run(ctx context.Context, tasks []task) []fdbpq.Result {
	results := make([]fdbpq.Result, len(tasks))
	ended := make(sweepReplier, len(tasks))
	running := 0
	for i, t := range tasks {
		q, err := s.d.Queue(kindOf(t.queue), t.queue.Name)
		if err == nil {
			r := &Request{Queue: q, Replier: ended, Number: uint64(i), Received: time.Now(), alone: t.alone}
			err = q.lane.requeue(r, []fdbpq.Op{{Kind: fdbpq.OpSweep, Queue: q.Target}})
		}
		if results[i].Err = err; err == nil {
			running++
		}
	}
	s.sweeps.Add(int64(running))

	for ; running > 0; running-- {
		select {
		case end := <-ended:
			results[end.number] = end.result
		case <-ctx.Done():
			for i := range results {
				if results[i].Swept == (fdbpq.Swept{}) {
					results[i].Err = cmp.Or(results[i].Err, ctx.Err())
				}
			}
			return results
		}
	}
	return results
}

// sweepReplier receives the results of sweeps. It has room for all of them.
type sweepReplier chan sweepEnd

type sweepEnd struct {
	number uint64
	result fdbpq.Result
}

// Answer implements Replier.
func (e sweepReplier) Answer(r *Request, _ []fdbpq.Op, results []fdbpq.Result) {
	e <- sweepEnd{r.Number, results[0]}
}

// Deliver implements Replier.
func (e sweepReplier) Deliver(*Request, []fdbpq.Op, []fdbpq.Result) bool { return true }

// Heartbeat implements Replier.
func (e sweepReplier) Heartbeat(*Request, int) {}

// Fail implements Replier.
func (e sweepReplier) Fail(r *Request, _ []fdbpq.Op, err error) {
	e <- sweepEnd{r.Number, fdbpq.Result{Err: err}}
}

func (s *Sweeper) warn(ctx context.Context, err error) {
	if ctx.Err() == nil || ctx.Err() == context.DeadlineExceeded {
		s.d.options.Warn("what has fallen due could not be swept; trying again", "error", err)
	}
}

// look keeps the tasks whose queues have something due. It puts the others back for when something falls due.
func (s *Sweeper) look(ctx context.Context, tasks *[]task) error {
	var queues []fdbpq.Target
	for _, t := range *tasks {
		q, err := s.target(t.queue)
		if err != nil {
			return fmt.Errorf("%w: %w", fdbpq.ErrCorrupt, err) // not of a queue that was listed or written
		}
		queues = append(queues, q)
	}
	aheads, err := kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]fdbpq.Ahead, error) {
		return fdbpq.ReadAhead(r, queues)
	})
	if err != nil {
		return err
	}
	now := s.d.now()
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	var left []task
	for i, t := range *tasks {
		a := aheads[i]
		switch {
		case due(a.Due) || due(a.Over):
			left = append(left, t)
		case a == fdbpq.Ahead{}:
			if t.swept {
				_, _ = s.d.Queue(kindOf(t.queue), t.queue.Name) // the retirer looks whether it is empty
			}
		default:
			s.mu.Lock()
			s.addLocked(t.queue, a, t.found)
			s.mu.Unlock()
		}
	}
	*tasks = left
	return nil
}

// plan puts tasks back after a sweep.
func (s *Sweeper) plan(ctx context.Context, tasks []task, swept []fdbpq.Result, now time.Time) {
	var failed error
	for i, t := range tasks {
		r := &swept[i]
		t.swept, t.alone = true, false
		switch {
		case isDamage(r.Err) && !(errors.Is(r.Err, kv.ErrTooLarge) && !tasks[i].alone):
			s.planDamaged(t, r.Err, now)
			continue
		case errors.Is(r.Err, kv.ErrTooLarge):
			t.alone = true
		case r.Err != nil:
			failed = cmp.Or(failed, r.Err)
			t.at = now.Add(sweepEvery)
		case r.Swept.More && r.Swept.Done:
			t.at = now // behind those that have been due for longer
		case r.Swept.More: // there was no room beside others
			t.alone = true
		default:
			t.at = now.Add(sweepEvery) // to find out what comes next
		}
		s.addTask(t)
	}
	if failed != nil {
		s.warn(ctx, failed)
	}
}

func (s *Sweeper) target(name fdbpq.QueueName) (fdbpq.Target, error) {
	if name.FIFO {
		return s.d.options.Keyspace.Queue(name.Name)
	}
	return s.d.options.Keyspace.PriorityQueue(name.Name)
}

// stepPass reads the next page of a pass, if it is time, and reports whether it did.
func (s *Sweeper) stepPass(ctx context.Context, now time.Time) bool {
	s.mu.Lock()
	p := s.mu.pass
	if p.at.IsZero() || now.Before(p.at) {
		s.mu.Unlock()
		return false
	}
	if !p.under {
		p = listPass{at: p.at, under: true, began: now}
		s.active.Store(false)
	}
	s.mu.pass = p
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, s.d.options.RequestTimeout)
	defer cancel()
	names, aheads, err := s.readPage(ctx, p.fifo, p.after)
	if err != nil {
		s.warn(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pass.began != p.began || !s.mu.pass.under { // the owners have changed meanwhile
		return true
	}
	if err != nil {
		s.mu.pass.at = time.Now().Add(sweepEvery)
		if errors.Is(err, fdbpq.ErrCorrupt) {
			s.mu.pass.at = time.Now().Add(damagedPause)
		}
		return true
	}
	s.notePageLocked(p.fifo, names, aheads)
	return true
}

// notePageLocked adds tasks for a page of the list.
func (s *Sweeper) notePageLocked(fifo bool, names []string, aheads []fdbpq.Ahead) {
	p, owns := &s.mu.pass, s.d.options.Owns
	for i, name := range names {
		p.after = name
		queue := fdbpq.QueueName{FIFO: fifo, Name: name}
		if (aheads[i] == fdbpq.Ahead{}) {
			continue
		}
		p.found = true
		if owns == nil || owns(kindOf(queue), name) {
			s.addLocked(queue, aheads[i], true)
		}
	}
	switch {
	case len(names) == retirePage:
	case !fifo:
		p.fifo, p.after = true, ""
	default:
		p.under, p.at = false, time.Time{}
		s.planPassLocked()
	}
}

// readPage returns the next names of a list, and what is ahead of their queues: nothing of those that are
// damaged.
func (s *Sweeper) readPage(ctx context.Context, fifo bool, after string) (names []string, aheads []fdbpq.Ahead, err error) {
	k := s.d.options.Keyspace
	list := k.PriorityQueues
	if fifo {
		list = k.Queues
	}
	names, err = kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]string, error) {
		return list(r, after, retirePage).Get()
	})
	if err != nil {
		return nil, nil, err
	}

	aheads = make([]fdbpq.Ahead, len(names))
	var queues []fdbpq.Target
	var places []int // in names
	for i, name := range names {
		q, err := s.target(fdbpq.QueueName{FIFO: fifo, Name: name})
		if err != nil {
			s.d.options.Warn("the list of queues has a name that no queue can have", "name", name, "error", err)
			continue
		}
		queues, places = append(queues, q), append(places, i)
	}
	err = s.readAheads(ctx, queues, func(n int, a fdbpq.Ahead) { aheads[places[n]] = a })
	return names, aheads, err
}

// readAheads calls note with what is ahead of each queue that can be read.
func (s *Sweeper) readAheads(ctx context.Context, queues []fdbpq.Target, note func(n int, a fdbpq.Ahead)) error {
	read := func(queues []fdbpq.Target) ([]fdbpq.Ahead, error) {
		return kv.ReadTransact(ctx, s.d.options.DB, func(r kv.Reader) ([]fdbpq.Ahead, error) { return fdbpq.ReadAhead(r, queues) })
	}
	aheads, err := read(queues)
	if err != nil && !isDamage(err) {
		return err
	}
	for n := range queues {
		if err == nil {
			note(n, aheads[n])
			continue
		}
		switch a, err := read(queues[n : n+1]); {
		case err == nil:
			note(n, a[0])
		case isDamage(err):
			s.d.options.Warn("a queue cannot be swept", "error", err)
		default:
			return err
		}
	}
	return nil
}
