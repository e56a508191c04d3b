package proof_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// ledger knows what became of each job. Its problems are those of the system, found by the work itself.
type ledger struct {
	room  chan struct{}
	calm  bool
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
	id         string
	run        *run            // the last one, until it has ended
	before     context.Context // of the last one that has ended, if the job is not done
	deliveries int64
	counts     bool // that delivery
	failed     int8 // times
	snoozed    int8
	returned   int8 // runs that a worker that was stopped gave back
	runs       int32
	pushed     bool
	effect     bool // done, noted under its id
	dead       bool
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
	panicAlways
	drop
	failTwice
	panicOnce
	snoozeTwice
	takeLong // longer than a lease
)

// dies reports whether the job ends as a dead letter.
func (p plan) dies() bool { return p == failAlways || p == panicAlways || p == drop }

// planOf returns the plan of a job: one in twenty is special.
func planOf(n int, calm bool) plan {
	p := plan(n / 20 % 8)
	if n%20 != 7 || calm && p == takeLong {
		return doIt
	}
	return p
}

// lengthOf returns how long a job takes. In a long run the average is 30 ms, which leaves the machine time for others.
func (l *ledger) lengthOf(n int, what plan) time.Duration {
	switch {
	case what == takeLong:
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

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.jobs)
}

// pushed notes that a job is in the queue, with an id.
func (l *ledger) pushed(n int, ack client.PushAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := &l.jobs[n]
	j.pushed = true
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

var errFails = errors.New("this one fails")

// work is the work of all workers.
func (l *ledger) work(ctx context.Context, item *client.Job) error {
	n, err := strconv.Atoi(string(item.Value))
	if err != nil || n >= l.size() {
		l.violation("a job that nobody pushed: %q", item.Value)
		return nil
	}
	r := &run{ctx: ctx, ended: make(chan struct{})}
	defer l.end(n, r)
	what := l.begin(n, item, r)
	select {
	case <-time.After(l.lengthOf(n, what)):
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return l.interrupted(ctx)
	}
	switch what {
	case failAlways, failTwice:
		return fmt.Errorf("job %d: %w", n, errFails)
	case panicAlways, panicOnce:
		explode(n)
	case snoozeTwice:
		return client.Snooze(20 * time.Millisecond)
	case drop:
		return client.Drop("no use for it")
	}
	l.note(n)
	return nil
}

// explode panics. Its name must be in the reason of the dead letter.
func explode(n int) { panic(fmt.Sprintf("job %d", n)) }

// begin notes the beginning of a run, and returns what is to be done this time. It checks that nobody else is at it, and how
// often it was delivered.
func (l *ledger) begin(n int, item *client.Job, r *run) plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := &l.jobs[n]
	l.sameID(n, item.ID)
	if j.runs++; j.runs == 1 {
		<-l.room
	}
	least := j.deliveries
	if j.counts || j.runs == 1 {
		least++
	}
	if j.counts && item.Deliveries < least && j.before != nil && errors.Is(context.Cause(j.before), client.ErrStopped) {
		j.returned++ // after all: the worker was stopped between the end of the run and its acknowledgement
		least--
	}
	switch more := item.Deliveries - least; {
	case more < 0:
		l.problem("job %d: delivery %d, want at least %d", n, item.Deliveries, least)
	case more > 0:
		l.count["deliveries that reached nobody, or settled late"] += int(more)
	}
	j.deliveries, j.counts = item.Deliveries, true
	if j.run != nil {
		l.apart(n, j.run, r)
	}
	j.run = r
	if j.effect {
		l.count["runs of jobs that were done"]++
	}
	switch what := planOf(n, l.calm); {
	case what == failTwice && j.failed < 2, what == panicOnce && j.failed < 1, what == failAlways, what == panicAlways:
		j.failed++
		l.count["failures and panics"]++
		return what
	case what == snoozeTwice && j.snoozed < 2:
		j.snoozed++
		j.counts = false
		l.count["snoozed"]++
		return what
	case what == drop, what == takeLong:
		return what
	}
	return doIt
}

// end notes the end of a run.
func (l *ledger) end(n int, r *run) {
	close(r.ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	j := &l.jobs[n]
	if j.run == r {
		j.run = nil
		if j.before = nil; !j.effect {
			j.before = r.ctx
		}
	}
	if errors.Is(context.Cause(r.ctx), client.ErrStopped) { // given back, whatever it returns but nil
		j.returned++
		if j.run == nil {
			j.counts = false
		}
	}
}

// broken reports whether there is a problem.
func (l *ledger) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.problems) > 0
}

// apart checks that the run before is over, or knows that its lease is lost, when another one begins.
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

// overlap is how much later than the store a worker may notice that a lease is over, on a busy machine.
const overlap = 500 * time.Millisecond

// interrupted notes that a run was ended, and returns its error.
func (l *ledger) interrupted(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count["runs interrupted"]++
	return ctx.Err()
}

// note has the effect of a job, once for each id.
func (l *ledger) note(n int) {
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
func (l *ledger) dead(item *client.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := strconv.Atoi(string(item.Value))
	if err != nil || n >= len(l.jobs) || item.DeadLetter == nil {
		l.problem("a dead letter that nobody pushed: %+v", item)
		return
	}
	j, d, what := &l.jobs[n], item.DeadLetter, planOf(n, l.calm)
	if j.dead {
		l.problem("job %d: two dead letters", n)
	}
	j.dead = true
	l.count["dead letters"]++
	reason, text := "max_deliver", ""
	switch what {
	case failAlways:
		text = fmt.Sprintf("job %d: %v", n, errFails)
	case panicAlways:
		text = "explode (work_ledger_test.go:"
	case drop:
		reason = "no use for it"
	default:
		l.problem("job %d, which should be done, is a dead letter after %d runs: %+v", n, j.runs, *d)
		return
	}
	most := int64(maxDeliver)
	if what == drop {
		most = int64(j.runs) + d.Deliveries // any number
	}
	if d.Reason != reason || !strings.Contains(d.Error, text) || what != drop && d.Deliveries != most || int64(j.runs-int32(j.returned)) > most {
		l.problem("job %d: %d runs, dead letter %+v, want reason %q with %q", n, j.runs, *d, reason, text)
	}
	if l.calm && (what == drop && j.runs != 1 || what != drop && j.runs != maxDeliver) {
		l.problem("job %d: %d runs before it was a dead letter", n, j.runs)
	}
}

// balance checks that every job was done, or is a dead letter, and returns all problems.
func (l *ledger) balance() []string {
	l.watch.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.jobs {
		j, what := &l.jobs[n], planOf(n, l.calm)
		if !j.pushed || j.effect == what.dies() || j.dead != what.dies() {
			l.problem("job %d: %+v, with plan %d", n, *j, what)
		}
		want := map[plan]int32{doIt: 1, failTwice: 3, panicOnce: 2, snoozeTwice: 3}[what]
		if l.calm && want > 0 && j.runs != want {
			l.problem("job %d, with plan %d: %d runs, want %d", n, what, j.runs, want)
		}
	}
	if l.calm && l.count["deliveries that reached nobody, or settled late"] > 0 {
		l.problem("nothing broke, and yet: %v", l.count)
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
