package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Run measures what the options ask for. By the time it returns it has stopped every
// process it started and removed their data.
//
// Errors: those of Options.Validate, processes that fail to start or exit early, error
// replies of the service, and the context's error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(int, int, string) {}
	}
	r, ctx, err := newRig(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	report := newReport(o)
	if o.Pqbridge != "" {
		if report.Sync, err = syncTime(r.dir); err != nil {
			return nil, err
		}
	}
	if err := r.operations(ctx, report); err != nil {
		return nil, err
	}
	if len(o.Backlogs) > 0 {
		if err := r.backlogs(ctx, report); err != nil {
			return nil, err
		}
	}
	if len(o.Bridges) > 0 {
		if err := r.bridges(ctx, report); err != nil {
			return nil, err
		}
	}
	if o.Queues > 0 {
		if err := r.manyQueues(ctx, report); err != nil {
			return nil, err
		}
	}
	if o.IdleQueues > 0 {
		if err := r.idleQueues(ctx, report); err != nil {
			return nil, err
		}
	}
	if err := r.waiters(ctx, report); err != nil {
		return nil, err
	}
	if o.Leased > 0 {
		if err := r.leased(ctx, report); err != nil {
			return nil, err
		}
	}
	if o.Delayed > 0 {
		if err := r.delayed(ctx, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// operations measures the operations on one queue and the echo service. They take turns,
// a round each.
func (r *rig) operations(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "")
	if err != nil {
		return err
	}
	defer s.end(&err)
	w, err := r.emptyQueue(ctx, s, r.Queue)
	if err != nil {
		return err
	}
	limited, err := r.emptyQueue(ctx, s, r.Queue+"-limited")
	if err != nil {
		return err
	}
	once, err := r.emptyQueue(ctx, s, r.Queue+"-once")
	if err != nil {
		return err
	}
	if err := r.limitItems(ctx, s, limited, settings.MaxCount); err != nil {
		return err
	}
	for _, w := range []*work{limited, once} {
		if err := r.fill(ctx, w, r.Stock); err != nil {
			return fmt.Errorf("filling a queue: %w", err)
		}
	}
	library, err := r.newLibraryClients(s, r.Queue)
	if err != nil {
		return err
	}
	defer library.close()
	workers, err := r.newWorkerLoad(s, r.Queue)
	if err != nil {
		return err
	}
	defer workers.close()
	produced := peerLoads(library.clients, r.Payload, r.Priorities)[rowPush]
	var all []*measured
	for _, phase := range r.phases(s, w, limited, once, produced, workers) {
		all = append(all, r.newMeasured(phase))
	}
	turn := r.Duration / time.Duration(r.Rounds)
	for done := range r.Rounds * len(all) {
		m := all[done%len(all)]
		r.Progress(done, r.Rounds*len(all), m.name)
		lim := limit{duration: turn}
		items := r.enough(turn, all[0].out.rate(), all[1].out.rate())
		if m.batch > 0 {
			lim.steps = max(items/m.batch, 1)
		}
		if m.backlog {
			if err := r.fill(ctx, w, items); err != nil {
				return fmt.Errorf("filling the queue: %w", err)
			}
		}
		if err := m.run(ctx, lim); err != nil {
			return err
		}
	}
	r.Progress(1, 1, "done")
	report.setOperations(all)
	if err := errors.Join(r.tidy(ctx, once), r.tidy(ctx, limited), r.limitItems(ctx, s, limited, 0)); err != nil {
		return err
	}
	return r.tidy(ctx, w)
}

// limitItems sets max_items of a queue; 0 resets it.
func (r *rig) limitItems(ctx context.Context, s *service, w *work, most int64) error {
	q := client.New(r.conn, client.WithGrammar(s.grammar)).PriorityQueue(w.queue)
	_, err := q.Configure(ctx, client.Settings{MaxItems: most}, "max_items")
	return err
}

// phases returns the operations in the order of their turns: echo and push first, and
// operations to be compared next to each other.
func (r *rig) phases(s *service, w, limited, once *work, produced, workers *load) []phase {
	echo := phase{name: rowEcho, load: r.load, steps: []step{{subject: EchoSubject, payload: w.push[0].payload}}, who: r.echo}
	push := phase{name: rowPush, load: r.load, steps: w.push, who: s.Process}
	peek := phase{name: "peek.min", load: r.load, steps: w.peekMin, who: s.Process}
	popMin := phase{name: rowPopMin, load: r.load, steps: w.popMin, who: s.Process, backlog: true}
	popMax := phase{name: "pop.max", load: r.load, steps: w.popMax, who: s.Process, backlog: true}
	mixed := phase{name: "mixed", load: r.load, steps: w.mixed, who: s.Process}
	pushLimited := phase{name: "push max_items", load: r.load, steps: limited.push, who: s.Process}
	pushOnce := phase{name: "push Nats-Msg-Id", load: r.load, steps: once.pushOnce, who: s.Process}
	pushBatch := phase{name: "push.batch 100", load: r.load, steps: w.pushBatch, who: s.Process, batch: batchItems}
	pushProduced := phase{name: "producer", load: produced, steps: []step{{}}, who: s.Process}
	all := []phase{echo, push, pushLimited, pushOnce, pushProduced, pushBatch, peek, popMin, popMax, mixed}
	if r.cluster != nil {
		naivePush, naivePop := r.cluster.naive(r.Clients, r.Priorities)
		all = []phase{
			echo, push, {name: rowNaivePush, load: naivePush, steps: w.push, who: self{}},
			pushLimited, pushOnce, pushProduced, pushBatch, peek, popMin, {name: rowNaivePop, load: naivePop, steps: w.popMin, who: self{}},
			popMax, mixed,
		}
	}
	all = append(all,
		phase{name: "lease+ack", load: r.load, steps: w.lease, who: s.Process, backlog: true},
		phase{name: "next", load: r.load, steps: w.next, who: s.Process, backlog: true},
		phase{name: "worker", load: workers, steps: []step{{}}, who: s.Process, backlog: true},
		phase{name: "pop.min 100", load: r.load, steps: w.popBatch, who: s.Process, backlog: true, batch: batchItems},
		phase{name: "lease+ack 100", load: r.load, steps: w.leaseBatch, who: s.Process, backlog: true, batch: batchItems},
	)
	return slices.DeleteFunc(all, func(p phase) bool {
		return r.Only != nil && p.name != rowEcho && p.name != rowPush && !r.Only.MatchString(p.name)
	})
}

// enough is a number of items that cannot be popped in time d. Nothing is faster than the
// echo service. On a cluster the queue is so much slower that filling it by that measure
// would take most of the benchmark, so twice the rate of push has to do.
func (r *rig) enough(d time.Duration, echo, push float64) int {
	rate := echo
	if r.cluster != nil {
		rate = min(rate, 2*push)
	}
	return int(rate*d.Seconds()) + r.Clients
}

// emptyQueue returns the requests for a queue, which must be empty: the benchmark must not
// pop anybody's items.
func (r *rig) emptyQueue(ctx context.Context, s *service, queue string) (*work, error) {
	w, err := newWork(s, queue, r.Payload, r.Priorities)
	if err != nil {
		return nil, err
	}
	n, err := r.count(ctx, w)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		return nil, fmt.Errorf("queue %s has %d items: name one that is empty", queue, n)
	}
	return w, nil
}

// backlogs compares pop.min with different numbers of items queued, each in a service of
// its own, and times a restart of each with its items. A turn pops half of the smallest
// backlog, which is refilled before the next.
func (r *rig) backlogs(ctx context.Context, report *Report) (err error) {
	var services []*service
	var works []*work
	var jobs []job
	for i, n := range r.Backlogs {
		r.Progress(i, len(r.Backlogs)+1, fmt.Sprintf("backlog %d", n))
		s, err := r.startService(ctx, fmt.Sprintf("-%d", i))
		if err != nil {
			return err
		}
		defer s.end(&err)
		services = append(services, s)
		w, err := newWork(s, r.Queue, r.Payload, r.Priorities)
		if err != nil {
			return err
		}
		refill := func(ctx context.Context) error { return r.fill(ctx, w, n) }
		if err := refill(ctx); err != nil {
			return err
		}
		works = append(works, w)
		jobs = append(jobs, job{prepare: refill, steps: w.popMin})
	}
	r.Progress(len(r.Backlogs), len(r.Backlogs)+1, "pop.min")
	outs, err := r.takeTurns(ctx, slices.Min(r.Backlogs)/2, jobs)
	if err != nil {
		return err
	}
	for i, s := range services {
		row := BacklogRow{Items: r.Backlogs[i], Rate: outs[i].rate(), Peak: s.Used().Peak}
		if err := jobs[i].prepare(ctx); err != nil {
			return err
		}
		if row.Restart, err = r.restart(ctx, s); err != nil {
			return err
		}
		report.addBacklog(row)
		if err := r.tidy(ctx, works[i]); err != nil {
			return err
		}
	}
	return nil
}

// manyQueues compares one queue with many queues of one item each. A turn is one push or
// pop per queue; the single queue gets the same number of requests.
func (r *rig) manyQueues(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "-queues")
	if err != nil {
		return err
	}
	defer s.end(&err)
	single, err := r.emptyQueue(ctx, s, r.Queue)
	if err != nil {
		return err
	}
	var push, pop []step
	for i := range r.Queues {
		queue := fmt.Sprintf("%s-%d", r.Queue, i)
		pushSubject, err1 := s.subject(queue, subjects.Push)
		popSubject, err2 := s.subject(queue, subjects.PopMin)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		push = append(push, step{subject: pushSubject, payload: single.push[0].payload})
		pop = append(pop, step{subject: popSubject})
	}
	r.Progress(0, 1, fmt.Sprintf("%d queues", r.Queues))
	ready := func(context.Context) error { return nil }
	outs, err := r.takeTurns(ctx, r.Queues, []job{
		{ready, single.push}, {ready, single.popMin}, {ready, push}, {ready, pop},
	})
	if err != nil {
		return err
	}
	for _, out := range outs {
		if out.dry {
			return errors.New("a queue that should have one item was empty")
		}
	}
	report.setQueues(r.Queues, outs)
	return nil
}
