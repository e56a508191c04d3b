package bench

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Run measures what the options ask for. By the time it returns it has stopped every
// process it started and removed their data.
//
// Errors: those of Options.Validate, processes that fail to start or exit early, error
// replies of the service, and the context's error.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, ctx, report, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.close()

	// The others compare with echo and push, which operations measures first.
	parts := []func(context.Context, *Report) error{
		r.operations, r.backlogs, r.bridges, r.manyQueues, r.waiters, r.delayed,
	}
	for _, part := range parts {
		if err := part(ctx, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// begin starts the rig, and a report with the time of a sync.
func begin(ctx context.Context, o Options) (*rig, context.Context, *Report, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, nil, err
	}
	if o.Progress == nil {
		o.Progress = func(int, int, string) {}
	}
	r, ctx, err := newRig(ctx, o)
	if err != nil {
		return nil, nil, nil, err
	}

	report := newReport(o)
	sync, err := syncTime(r.dir)
	if err != nil {
		r.close()
		return nil, nil, nil, err
	}
	report.Sync = float64(sync) / float64(time.Microsecond)
	return r, ctx, report, nil
}

// operations measures the operations on one queue and the echo service. They take turns,
// a round each.
func (r *rig) operations(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "")
	if err != nil {
		return err
	}
	defer s.end(&err)

	var queues []*queue
	for _, suffix := range []string{"", "-limited", "-once"} {
		q, err := r.newQueue(s, queueName+suffix)
		if err != nil {
			return err
		}
		queues = append(queues, q)
	}
	limited := queues[1]
	if err := limited.limitItems(ctx, settings.MaxCount); err != nil {
		return err
	}
	library, err := r.newLibraryClients(ctx, s, queueName)
	if err != nil {
		return err
	}
	defer library.close()
	workers, err := r.newWorkers(ctx, s, queueName)
	if err != nil {
		return err
	}

	producer := peerLoads(library.clients, r.Payload, r.Priorities)[rowPush]
	rows := slices.DeleteFunc(r.operationRows(s, queues, producer, workers), func(w *row) bool {
		return r.Only != nil && w.name != rowEcho && w.name != rowPush && !r.Only.MatchString(w.name)
	})
	if err := r.takeTurns(ctx, rows, r.rounds); err != nil {
		return err
	}
	report.addOperations(rows)
	return nil
}

// operationRows returns the operations in the order of their turns: echo and push first, and
// operations to be compared next to each other.
func (r *rig) operationRows(s *service, queues []*queue, producer, workers load) []*row {
	q, limited, once := queues[0], queues[1], queues[2]
	echo := &row{name: rowEcho, load: r.asking(q.value, EchoSubject), who: r.echo, prepare: r.part}
	push := &row{name: rowPush, load: q.pushing(), who: s.Process, prepare: r.part}
	rows := []*row{echo, push}

	add := func(name string, l load) *row {
		w := &row{name: name, load: l, who: s.Process, prepare: r.part}
		rows = append(rows, w)
		return w
	}
	// Batches are so fast that their turns also end after a number of items.
	batch := func(w *row) *row {
		w.prepare = func(ctx context.Context) (limit, error) {
			lim, err := r.part(ctx)
			lim.steps = max(r.enough(lim.duration, echo, push)/batchItems, 1)
			return lim, err
		}
		return w
	}
	pops := func(w *row) {
		prepare := w.prepare
		w.prepare = func(ctx context.Context) (limit, error) {
			lim, err := prepare(ctx)
			if err == nil {
				err = q.fill(ctx, r.enough(lim.duration, echo, push))
			}
			return lim, err
		}
	}
	var naivePush, naivePop load
	if r.cluster != nil {
		naivePush, naivePop = r.cluster.naive(r.Clients, r.Priorities, q.value)
		add(rowNaivePush, naivePush).who = nil
	}

	add("push max_items", limited.pushing())
	add("push Nats-Msg-Id", once.pushingOnce())
	add("producer", producer)
	batch(add("push.batch 100", q.pushingBatches()))
	add("peek.min", r.asking(nil, q.peekMin))
	pops(add(rowPopMin, r.asking(nil, q.popMin)))
	if naivePop != nil {
		add(rowNaivePop, naivePop).who = nil
	}
	pops(add("pop.max", r.asking(nil, q.popMax)))
	add("mixed", q.mixed())
	pops(add("lease+ack", q.leasing()))
	pops(add("next", q.chaining()))
	pops(add("worker", workers))
	pops(batch(add("pop.min 100", q.poppingBatches())))
	pops(batch(add("lease+ack 100", q.leasingBatches())))
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
	}
}
