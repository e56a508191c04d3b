package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// untilDone is for rows whose turns are a number of steps: until each has run for Duration.
func (r *rig) untilDone(rows []*row) func(round int) bool {
	return func(round int) bool {
		return round == 0 || slices.ContainsFunc(rows, func(w *row) bool {
			return w.out.elapsed < r.Duration
		})
	}
}

// backlogs compares pop.min with different numbers of items queued, each in a service of
// its own, and times a restart of each with its items. A turn pops half of the smallest
// backlog, which is refilled before the next.
func (r *rig) backlogs(ctx context.Context, report *Report) (err error) {
	if len(r.Backlogs) == 0 {
		return nil
	}
	var services []*service
	var rows []*row
	steps := slices.Min(r.Backlogs) / 2
	for i, n := range r.Backlogs {
		r.Progress(i, len(r.Backlogs), fmt.Sprintf("backlog %d", n))
		s, err := r.startService(ctx, fmt.Sprintf("-%d", i))
		if err != nil {
			return err
		}
		defer s.end(&err)
		q := r.newQueue(s, queueName)
		w := &row{name: fmt.Sprintf("pop.min of %d", n), load: r.asking(nil, q.subject("pop.min")), who: s.Process}
		w.prepare = func(ctx context.Context) (limit, error) { return limit{steps: steps}, q.fill(ctx, n) }
		services, rows = append(services, s), append(rows, w)
	}
	if err := r.takeTurns(ctx, rows, r.untilDone(rows)); err != nil {
		return err
	}

	for i, w := range rows {
		w.extra = append(w.extra, times(w.out.rate(), "the first", rows[0].out.rate()),
			inMegabytes("peak", services[i].Used().Peak))
		if _, err := w.prepare(ctx); err != nil {
			return err
		}
		restart, err := r.restart(ctx, services[i])
		if err != nil {
			return err
		}
		w.extra = append(w.extra, inMillis("ready after kill -9", restart))
		report.Rows = append(report.Rows, w.result(report.rate(rowEcho)))
	}
	return nil
}

// manyQueues compares one queue with many queues of one item each. A turn is one push or
// pop per queue; the single queue gets the same number of requests.
func (r *rig) manyQueues(ctx context.Context, report *Report) (err error) {
	if r.Queues == 0 {
		return nil
	}
	s, err := r.startService(ctx, "-queues")
	if err != nil {
		return err
	}
	defer s.end(&err)
	single := r.newQueue(s, queueName)
	var pushes, pops []string
	for i := range r.Queues {
		name := fmt.Sprintf("%s-%d", queueName, i)
		pushes, pops = append(pushes, s.subject(name, "push")), append(pops, s.subject(name, "pop.min"))
	}

	one := func(name string, l load) *row {
		return &row{name: name, load: l, who: s.Process, prepare: func(context.Context) (limit, error) {
			return limit{steps: r.Queues}, nil
		}}
	}
	rows := []*row{
		one("push, one queue", single.pushing()),
		one("pop.min, one queue", r.asking(nil, single.subject("pop.min"))),
		one(fmt.Sprintf("push, %d queues", r.Queues), r.asking(single.value, pushes...)),
		one(fmt.Sprintf("pop.min, %d queues", r.Queues), r.asking(nil, pops...)),
	}
	if err := r.takeTurns(ctx, rows, r.untilDone(rows)); err != nil {
		return err
	}
	for i, w := range rows {
		if w.out.dry {
			return errors.New("a queue that should have one item was empty")
		}
		w.extra = append(w.extra, times(w.out.rate(), "one", rows[i%2].out.rate()))
		report.Rows = append(report.Rows, w.result(report.rate(rowEcho)))
	}
	return nil
}

// bridges compares push and pop.min on one queue with different numbers of bridges. Each
// number has a queue of its own. FoundationDB is slower for a while after it has removed many
// items, so it is best to measure the numbers up and down again: each is compared with the mean
// of those that have as many bridges as the first.
func (r *rig) bridges(ctx context.Context, report *Report) error {
	var pushes, pops []*row
	var firstPushes, firstPops, first float64
	for i, n := range r.Bridges {
		r.Progress(i, len(r.Bridges), fmt.Sprintf("%d bridges", n))
		push, pop, err := r.bridgesRows(ctx, i, n, report)
		if err != nil {
			return fmt.Errorf("%d bridges: %w", n, err)
		}
		pushes, pops = append(pushes, push), append(pops, pop)
		if n == r.Bridges[0] {
			firstPushes, firstPops, first = firstPushes+push.out.rate(), firstPops+pop.out.rate(), first+1
		}
	}

	for i := range pushes {
		for w, rates := range map[*row]float64{pushes[i]: firstPushes, pops[i]: firstPops} {
			w.extra = append(w.extra, times(w.out.rate(), fmt.Sprint(r.Bridges[0]), rates/first))
		}
		report.Rows = append(report.Rows,
			pushes[i].result(report.rate(rowEcho)), pops[i].result(report.rate(rowEcho)))
	}
	return nil
}

func (r *rig) bridgesRows(ctx context.Context, i, n int, report *Report) (push, pop *row, err error) {
	var g group
	var s *service
	for range n {
		if s, err = r.startService(ctx, "-bridges"); err != nil {
			return nil, nil, err
		}
		defer s.end(&err)
		g = append(g, s.Process)
	}
	q := r.newQueue(s, fmt.Sprintf("%s-%d", queueName, i))

	push = &row{name: fmt.Sprintf("push, bridges: %d", n), load: q.pushing(), who: g}
	if err := r.run(ctx, push, limit{duration: r.Duration}); err != nil {
		return nil, nil, err
	}
	rate := min(report.rate(rowEcho), 2*report.rate(rowPush)) // as in enough
	if err := q.fill(ctx, int(rate*r.Duration.Seconds())+r.Clients); err != nil {
		return nil, nil, err
	}

	before, err := r.cluster.transactions(ctx)
	if err != nil {
		return nil, nil, err
	}
	pop = &row{name: fmt.Sprintf("pop.min, bridges: %d", n), load: r.asking(nil, q.subject("pop.min")), who: g}
	if err := r.run(ctx, pop, limit{duration: r.Duration}); err != nil {
		return nil, nil, err
	}
	after, err := r.cluster.transactions(ctx)
	if err != nil {
		return nil, nil, err
	}
	pop.extra = append(pop.extra, inPercent("wasted", after.wasted(before)))
	return push, pop, nil
}
