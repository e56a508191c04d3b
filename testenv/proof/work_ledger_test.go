package proof_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// ledger knows what became of each job. Its problems are faults of the system, found by the work
// itself.
type ledger struct {
	room  chan struct{} // taken by jobs that wait for their first delivery
	short bool
	skew  time.Duration // between the clocks of bridges
	watch sync.WaitGroup

	mu       sync.Mutex
	jobs     []job
	problems []string
	count    map[string]int // of what happened
}

// job is one job. Its number is its value.
type job struct {
	id     string
	queue  string
	run    *run // the last one, until it has ended
	runs   int32
	put    int8 // how often it failed or was snoozed, as planned
	pushed bool
	effect bool // done, noted under its id
	dead   bool
	kept   bool // with its result
}

// run is one call of the work for a job.
type run struct {
	ctx   context.Context
	ended chan struct{}
}

// plan is what the work does with a job.
type plan int

const (
	doIt plan = iota
	failAlways
	drop
	failTwice
	panicOnce
	snoozeTwice
	takeLong // longer than a lease
	plans
)

// planOf returns the plan of a job: one in twenty is special.
func planOf(n int) plan {
	if n%20 != 7 {
		return doIt
	}
	return plan(n/20) % plans
}

// putOff is how often the jobs of a plan are put off, at most.
var putOff = map[plan]int8{failTwice: 2, panicOnce: 1, snoozeTwice: 2}

// lengthOf returns how long a job takes. In a long run the average is 30 ms, which leaves the
// machine time for others.
func (l *ledger) lengthOf(n int) time.Duration {
	switch {
	case planOf(n) == takeLong:
		return longestWork
	case l.short:
		return time.Duration(n%5) * time.Millisecond
	}
	return time.Duration(n*7919%61) * time.Millisecond
}

// add returns the number of a new job.
func (l *ledger) add() int {
	l.room <- struct{}{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, job{})

	return len(l.jobs) - 1
}

// numberOf returns the number of a job, -1 if nobody pushed it.
func (l *ledger) numberOf(value []byte) int {
	n, err := strconv.Atoi(string(value))
	if err != nil || n >= len(l.jobs) {
		l.problem("a job that nobody pushed: %q", value)
		return -1
	}

	return n
}

// pushed notes that a job is in the queue, with an id.
func (l *ledger) pushed(n int, queue string, ack client.PushAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[n].pushed, l.jobs[n].queue = true, queue

	l.sameID(n, ack.ID)

	if ack.Duplicate {
		l.count["pushes that had counted before"]++
	}
}

// sameID notes the id of a job. There must be one only, even if its push was repeated.
func (l *ledger) sameID(n int, id string) {
	switch j := &l.jobs[n]; j.id {
	case "":
		j.id = id
	case id:
	default:
		l.problem("job %d has two ids, %s and %s", n, j.id, id)
	}
}

// violation notes a problem.
func (l *ledger) violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem(format, args...)
}

func (l *ledger) problem(format string, args ...any) {
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// tell counts what happened.
func (l *ledger) tell(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[what]++
}

// work is the work of all workers.
func (l *ledger) work(ctx context.Context, item *client.Job) error {
	r := &run{ctx: ctx, ended: make(chan struct{})}
	n, what := l.begin(item, r)

	if n < 0 {
		return nil
	}
	defer l.end(n, r)
	select {
	case <-time.After(l.lengthOf(n)):
	case <-ctx.Done():
	}

	if ctx.Err() != nil {
		l.tell("runs interrupted")
		return ctx.Err()
	}

	switch what {
	case failAlways, failTwice:
		return fmt.Errorf("job %d fails", n)
	case panicOnce:
		panic(fmt.Sprintf("job %d", n))
	case snoozeTwice:
		return client.Snooze(20 * time.Millisecond)
	case drop:
		return client.Drop("no use for it")
	}

	l.done(n)
	item.SetResult(resultOf(n), "text/plain")
	return nil
}

// begin notes the beginning of a run, and returns the job and this run's part of it.
func (l *ledger) begin(item *client.Job, r *run) (n int, what plan) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if n = l.numberOf(item.Value); n < 0 {
		return n, doIt
	}

	j := &l.jobs[n]
	l.sameID(n, item.ID)

	if j.runs++; j.runs == 1 {
		<-l.room
	}

	if j.run != nil {
		l.apart(n, j.run, r)
	}

	j.run = r
	if j.effect {
		l.count["runs of jobs that were done"]++
	}

	what = planOf(n)
	if most := putOff[what]; most > 0 {
		if j.put == most {
			return n, doIt
		}

		j.put++
		l.count["failures, panics and snoozes"]++
	}

	return n, what
}

// end notes the end of a run.
func (l *ledger) end(n int, r *run) {
	close(r.ended)
	l.mu.Lock()
	defer l.mu.Unlock()

	if j := &l.jobs[n]; j.run == r {
		j.run = nil
	}
}

// broken reports whether there is a problem.
func (l *ledger) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.problems) > 0
}

// apart checks that the run before is over, or knows that its lease is lost, when another one
// begins.
func (l *ledger) apart(n int, before, r *run) {
	over := func(wait time.Duration) bool {
		select {
		case <-before.ended:
			return true
		case <-before.ctx.Done():
			return true
		case <-time.After(wait):
			return false
		}
	}

	l.count["runs that began while one that had lost its lease was ending"]++
	if l.short {
		return // the machine may be so busy that a worker notices the end of a lease any time later
	}

	l.watch.Go(func() { // twice, in case that this process was suspended
		if !over(l.skew+overlap) && !over(overlap) && r.ctx.Err() == nil {
			l.violation("job %d is done by two at once", n)
		}
	})
}

// overlap is how much later than the store a worker may notice that a lease is over, on a busy
// machine.
const overlap = 500 * time.Millisecond

// done has the effect of a job, once for each id.
func (l *ledger) done(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if j := &l.jobs[n]; j.effect {
		l.count["effects suppressed by the id"]++
	} else {
		j.effect = true
		l.count["done"]++
	}
}

// dead notes a dead letter.
func (l *ledger) dead(item *fdbpq.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.numberOf(item.Message.Value)

	if n < 0 {
		return
	}

	j, letter := &l.jobs[n], item.Message.DeadLetter
	want := map[plan]string{failAlways: "max_deliver", drop: "no use for it"}[planOf(n)]

	if j.dead || want == "" || letter == nil || letter.Reason != want {
		l.problem("job %d, after %d runs, is a dead letter: %+v, %+v", n, j.runs, *j, letter)
	}

	j.dead = true
	l.count["dead letters"]++
}

// balance checks that every job was done, or is a dead letter, and returns all problems.
func (l *ledger) balance() []string {
	l.watch.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()

	for n := range l.jobs {
		j, what := &l.jobs[n], planOf(n)
		dies := what == failAlways || what == drop

		if !j.pushed || j.effect == dies || j.dead != dies || j.kept == dies {
			l.problem("job %d: %+v, with plan %d", n, *j, what)
		}
	}

	return l.problems
}

// String is what happened.
func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d jobs", len(l.jobs))

	for _, what := range slices.Sorted(maps.Keys(l.count)) {
		fmt.Fprintf(&b, "; %s: %d", what, l.count[what])
	}

	return b.String()
}
