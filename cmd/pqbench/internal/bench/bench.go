package bench

import (
	"context"
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
	if o.JetStream {
		return measure(ctx, o, (*rig).jetStream)
	}
	// The others compare with echo and push, which operations measures first.
	return measure(ctx, o, (*rig).operations, (*rig).backlogs, (*rig).bridges, (*rig).contention, (*rig).manyQueues, (*rig).groups, (*rig).memory)
}

// measure starts the rig and a report with the time of a sync, to which each part adds rows.
func measure(ctx context.Context, o Options, parts ...func(*rig, context.Context, *Report) error) (*Report, error) {
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
	sync, err := syncTime(r.dir)
	if err != nil {
		return nil, err
	}
	report.Sync = float64(sync) / float64(time.Microsecond)

	for _, part := range parts {
		if err := part(r, ctx, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// operation is a row of the operations on one queue.
type operation struct {
	name string
	load load
	pops bool // the queue must have enough items
	many bool // a step is batchItems

	fill func(ctx context.Context, n int) error // how it gets them; nil, as others do
}

// operations measures the operations on one queue and the echo service. They take turns,
// a round each.
func (r *rig) operations(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "")
	if err != nil {
		return err
	}
	defer s.end(&err)
	loads, stop, err := r.serviceLoads(ctx, s)
	if err != nil {
		return err
	}
	defer stop()

	q, limited, once := r.newQueue(s, queueName), r.newQueue(s, queueName+"-limited"), r.newQueue(s, queueName+"-once")
	grouped, headed := r.newQueue(s, queueName+"-groups"), r.newQueue(s, queueName+"-headers")
	if _, err := limited.Configure(ctx, client.Settings{MaxItems: settings.MaxCount}); err != nil {
		return err
	}
	var naivePush, naivePop load
	if r.cluster != nil {
		naivePush, naivePop = r.cluster.naive(r.Clients, r.Priorities, q.value)
	}

	// In the order of their turns, those to be compared next to each other.
	rows := r.operationRows(s, q, []operation{
		{name: rowEcho, load: r.asking(q.value, EchoSubject)},
		{name: rowPush, load: loads[rowPushEach]},
		{name: rowNaivePush, load: naivePush},
		{name: "push max_items", load: limited.pushing()},
		{name: "push Nats-Msg-Id", load: once.pushingOnce()},
		{name: rowPushHeader, load: headed.pushingWith(otherHeader, headed.pushes()...)},
		{name: rowPushGroups, load: grouped.pushingWith(subjects.HeaderGroup, grouped.pushes()...)},
		{name: "producer", load: loads[rowPush]},
		{name: "push.batch 100", load: loads[rowPushMany], many: true},
		{name: "peek.min", load: r.asking(nil, q.subject("peek.min"))},
		{name: rowPopMin, load: loads[rowPopEach], pops: true},
		{name: rowPopHeader, load: r.asking(nil, headed.subject("pop.min")), pops: true, fill: headed.fillWith(otherHeader)},
		{name: rowPopGroups, load: r.asking(nil, grouped.subject("pop.min")), pops: true, fill: grouped.fillWith(subjects.HeaderGroup)},
		{name: rowNaivePop, load: naivePop},
		{name: "pop.max", load: r.asking(nil, q.subject("pop.max")), pops: true},
		{name: "mixed", load: q.mixed()},
		{name: "lease+ack", load: loads[rowWorkEach], pops: true},
		{name: "next", load: loads[rowWorkNext], pops: true},
		{name: "worker", load: loads[rowWork], pops: true},
		{name: "pop.min 100", load: loads[rowPopMany], pops: true, many: true},
		{name: "lease+ack 100", load: loads[rowWorkMany], pops: true, many: true},
	})
	if err := r.takeTurns(ctx, rows, r.rounds); err != nil {
		return err
	}
	report.addOperations(rows)
	return nil
}

// chosen reports whether a row is to be measured.
func (r *rig) chosen(name string) bool { return r.Only == nil || r.Only.MatchString(name) }

// operationRows returns the rows of the operations that are there and chosen. The first two are
// echo and push.
func (r *rig) operationRows(s *service, q *queue, all []operation) []*row {
	all = slices.DeleteFunc(all, func(o operation) bool {
		always := o.name == rowEcho || o.name == rowPush
		return o.load == nil || !always && !r.chosen(o.name)
	})

	rows := make([]*row, len(all))
	for i, o := range all {
		rows[i] = &row{name: o.name, load: o.load, who: s.Process}
		rows[i].prepare = func(ctx context.Context) (limit, error) {
			lim := r.part()
			enough := r.enough(lim.duration, rows[0], rows[1])
			if o.many { // so fast that its turns also end after a number of items
				lim.steps = max(enough/batchItems, 1)
			}
			if !o.pops {
				return lim, nil
			}
			if o.fill != nil {
				return lim, o.fill(ctx, enough)
			}
			return lim, q.fill(ctx, enough)
		}
		switch o.name {
		case rowEcho:
			rows[i].who = r.echo
		case rowNaivePush, rowNaivePop:
			rows[i].who = nil
		}
	}
	return rows
}

// enough is a number of items that cannot be popped in time d. Nothing is faster than the
// echo service. On a cluster the queue is so much slower that filling it by that measure
// would take most of the benchmark, so twice the rate of push has to do.
func (r *rig) enough(d time.Duration, echo, push *row) int {
	rate := echo.out.rate()
	if r.cluster != nil {
		rate = min(rate, 2*push.out.rate())
	}
	return int(rate*d.Seconds()) + r.Clients
}

// addOperations adds rows of which the first is the echo service.
func (r *Report) addOperations(rows []*row) {
	for _, w := range rows {
		r.Rows = append(r.Rows, w.result(rows[0].out.rate()))
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		naive := map[string]string{rowPush: rowNaivePush, rowPopMin: rowNaivePop}[row.Name]
		if rate := r.rate(naive); rate > 0 {
			row.Extra = append(row.Extra, times(row.Rate, naive, rate))
		}
		for _, plain := range map[string][]string{
			rowPushHeader: {rowPush}, rowPushGroups: {rowPush, rowPushHeader},
			rowPopHeader: {rowPopMin}, rowPopGroups: {rowPopMin, rowPopHeader},
		}[row.Name] {
			if rate := r.rate(plain); rate > 0 {
				row.Extra = append(row.Extra, times(row.Rate, plain, rate))
			}
		}
	}
}
