package books

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// In queues whose names begin with o- or fifo-o-, all jobs that are acknowledged are kept. The test
// that runs the operations must configure them so, for longer than it runs. Nothing is popped there
// without a lease, or expires.
//
// So every job is at exactly one place at any time, and each operation on it says where. The books
// keep all operations until the end. Then there must be one order in which each takes place between
// its request and its answer: see job. The last one finds the job in the store, unless the items
// are Named: then clients ask in the end. What they find besides:
//
//   - a result of an acknowledgement that did not count;
//   - an acknowledgement of several leases, or with successors, that counted only in part;
//   - a wait that ends early, and an answer about another job.

// IsTraced reports whether a queue, or the queue of a dead-letter queue, is one of these.
func IsTraced(queue string) bool {
	return strings.HasPrefix(strings.TrimPrefix(queue, "fifo-"), "o-")
}

// outcomes has the jobs of these queues.
type outcomes struct {
	mu     sync.Mutex
	jobs   map[string]*job   // by value
	values map[string]string // by the ids and places of items
	groups []group
	// leasesFrom has by queue when the first lease of unknown outcome was sent. Any item may have
	// been leased since.
	leasesFrom map[string]int64
}

// group is an acknowledgement of several leases, or with successors.
type group struct {
	text string
	uses []use
	next []string // values
}

// use is what an acknowledgement did to one job.
type use struct {
	job   *job
	event *event
}

func (o *outcomes) job(value string) *job {
	j := o.jobs[value]
	if j == nil {
		j = &job{}
		o.jobs[value] = j
	}
	return j
}

// identify checks that all answers that name a job do it by one id.
func (o *outcomes) identify(b *Books, value, id string, by *Operation) {
	if id == "" {
		return
	}
	j := o.job(value)
	if j.id = cmp.Or(j.id, id); j.id != id {
		b.problem("a job has two ids: %q, %s and, by %s, %s", value, j.id, by, id)
	}
	o.values[id] = value
}

// push adds the push of a job, which is its first operation.
func (o *outcomes) push(b *Books, queue, value string, e *event) {
	j := o.job(value)
	j.queue, j.events = queue, slices.Insert(j.events, 0, e)
	if !e.counts() {
		b.mayPushes.Add(1)
	}
}

// endTraced records an operation on one of these queues.
func (b *Books) endTraced(op *Operation) {
	o := &b.outcomes
	o.mu.Lock()
	defer o.mu.Unlock()

	switch {
	case op.Kind == Push:
		for n, value := range op.pushes() {
			e := eventOf(op, b.tolerance)
			e.delayed = e.delayed || op.Join > 0 && n == 0
			o.push(b, op.Queue, value, e)
		}
		if op.Outcome == Done && op.Batch == 0 {
			o.identify(b, op.Value, op.ID, op)
		}
		return
	case op.Kind.Settles():
		b.settleTraced(op)
	case op.Kind == Result || op.Kind == Move || op.Kind == Remove || op.Kind == Rerun:
		b.checkWait(op)
		o.job(op.Value).add(eventOf(op, b.tolerance))
		o.identify(b, op.Value, op.Job, op)
		if op.Kind == Rerun && op.Outcome == Done {
			b.ended.Add(-1)
		}
	}

	if !op.Kind.Leases() {
		return
	}
	if op.Untold()+op.returned() > 0 || op.JetStream && op.Outcome == Refused {
		if from, known := o.leasesFrom[op.Queue]; !known || op.Call < from {
			o.leasesFrom[op.Queue] = op.Call
		}
	}
	for _, item := range op.Got() {
		e := &event{
			kind: LeaseMin, outcome: Done, dead: isDead(op.Queue), call: op.Call, ret: op.Return,
			place: hash(item.ID), fence: uint16(item.Fence),
			until: item.Until - int64(b.tolerance)*1e6,
		}
		o.job(item.Value).add(e)
		o.values[item.ID] = item.Value // which is the id of a job that never moved
		o.identify(b, item.Value, item.Job, op)
	}
}

// settleTraced records an operation with tokens, and the items that it pushes.
func (b *Books) settleTraced(op *Operation) {
	o := &b.outcomes
	g := group{text: op.String()}
	for n, part := range op.Parts() {
		e := eventOf(part, b.tolerance)
		if e.counts() && op.Kind.Acks() {
			b.ended.Add(1)
			notKept := slices.Contains(op.NotKept, n)
			untold := op.Open() && e.dead // perhaps: the message that says so may be lost
			if part.Result != "" && notKept != e.dead && !untold {
				b.problem("kept is %t, want %t: the result of %s", !notKept, !e.dead, op)
			}
		}
		o.job(part.Value).add(e)
		g.uses = append(g.uses, use{o.job(part.Value), e})
	}

	for _, next := range op.Next {
		push := eventOf(op, b.tolerance)
		push.kind, push.place, push.until, push.delayed = Push, 0, 0, next.Join > 0
		switch {
		case len(op.Items) > 0:
			push.outcome = Done // else there would be no next items
		case op.Outcome == Stale:
			push.outcome = Refused
		}
		g.next = append(g.next, next.Value)
		o.push(b, next.Queue, next.Value, push)
	}
	if op.Open() && len(op.Items) == 0 && len(g.uses)+len(g.next) > 1 {
		o.groups = append(o.groups, g)
	}
}

// checkWait checks that a wait for an outcome lasted as long as the request says.
func (b *Books) checkWait(op *Operation) {
	early := op.Return-op.Call < op.Expires-ClockSlack
	if op.Outcome == Done && op.State != StateDone && op.State != StateDead && early {
		b.problem("told %s after %d ms of %d ms: %s of %q", op.State, millis(op.Return-op.Call),
			millis(op.Expires), op.Kind, op.Value)
	}
}

// leftTraced records where a job was found in the store, after all had ended.
func (b *Books) leftTraced(value, job string, state State, result string) {
	b.outcomes.mu.Lock()
	defer b.outcomes.mu.Unlock()
	value = cmp.Or(value, b.outcomes.values[job])
	j := b.outcomes.jobs[value]
	if j == nil {
		b.problem("invented: %q, %s, which nobody pushed, is %s", value, job, state)
		return
	}
	b.outcomes.identify(b, value, job, &Operation{Kind: left})
	j.add(&event{kind: left, outcome: Done, state: state, result: result,
		call: atEnd, ret: atEnd})
	if state != StateDone {
		b.ended.Add(1)
	}
}

// LeftDone records a finished job that was found in the store after all had ended. Its value is ""
// if that was not kept.
func (b *Books) LeftDone(value, job, result string) {
	b.leftTraced(value, job, StateDone, result)
}

// closeOutcomes checks every job, once all that was left has been entered. It returns how many were
// found to be done, and how many there were.
func (b *Books) closeOutcomes() (done, all int64) {
	o := &b.outcomes
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, j := range o.jobs {
		if last := j.events[len(j.events)-1]; b.names == nil && last.kind != left {
			j.add(&event{kind: left, outcome: Empty, call: atEnd, ret: atEnd})
		} else if last.kind == left && last.state == StateDone {
			done++
		}
		if _, unsure := o.leasesFrom[j.queue]; b.names != nil && !unsure && j.isUnseen() {
			b.problem("lost: a job, pushed, and never seen: %s", j)
		}
		for _, e := range j.events {
			queue := j.queue
			if e.dead {
				queue += "-dead"
			}
			from, some := o.leasesFrom[queue]
			e.unsure = some && from <= e.ret
		}
	}

	for i := range o.groups {
		o.decide(b, &o.groups[i])
	}
	for _, value := range slices.Sorted(maps.Keys(o.jobs)) {
		if j := o.jobs[value]; !j.isPossible() {
			b.problem("no order of what became of job %q explains this: %s", value, j)
		}
	}
	return done, int64(len(o.jobs))
}

// decide finds out whether an acknowledgement of unknown outcome counted. Its successors show that,
// or else one of the jobs.
func (o *outcomes) decide(b *Books, g *group) {
	exist := 0
	for _, value := range g.next {
		if o.jobs[value].isSeen() {
			exist++
		}
	}
	if exist != 0 && exist != len(g.next) {
		b.problem("%d of %d successors are there: %s", exist, len(g.next), g.text)
	}

	if len(g.next) > 0 {
		outcome := Refused
		if exist > 0 {
			outcome = Done
		}
		g.set(outcome)
		for _, value := range g.next {
			o.jobs[value].events[0].decide(outcome)
		}
		return
	}

	if !g.isPossible(Done) && !g.isPossible(Refused) {
		b.problem("counted for some of the leases: %s", g.text)
	}
}

// set says whether the acknowledgement counted.
func (g *group) set(outcome Outcome) {
	for _, u := range g.uses {
		u.event.decide(outcome)
	}
}

// isPossible reports whether each of the jobs can have had that outcome of the acknowledgement.
func (g *group) isPossible(outcome Outcome) bool {
	before := cmp.Or(g.uses[0].event.outcome, Lost)
	g.set(outcome)
	defer g.set(before)
	return !slices.ContainsFunc(g.uses, func(u use) bool { return !u.job.isPossible() })
}
