package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// besidePriority is the priority of all items of the queues that are popped beside pushes.
const besidePriority = 1

// contention compares pops beside pushes, without groups and with, for each number of bridges. Pops
// of a queue all run on one bridge, and pushes on any. A push with a group goes among the first items
// if its group has none, where the next batch of pops reads, and a push without goes behind all.
func (r *rig) contention(ctx context.Context, report *Report) error {
	numbers := slices.Compact(slices.Sorted(slices.Values(r.Bridges)))
	for i, n := range numbers {
		r.Progress(i, len(numbers), fmt.Sprintf("pops beside pushes, %d bridges", n))
		if err := r.besideRows(ctx, n, report); err != nil {
			return fmt.Errorf("pops beside pushes, %d bridges: %w", n, err)
		}
	}
	return nil
}

// beside is a row of pops beside pushes.
type beside struct {
	*row
	pushed    outcome
	conflicts int64 // of the bridges that popped
	batches   int64 // that they completed
}

func (r *rig) besideRows(ctx context.Context, n int, report *Report) (err error) {
	var all []*service
	for range n {
		s, err := r.startService(ctx, "-beside")
		if err != nil {
			return err
		}
		defer s.end(&err)
		all = append(all, s)
	}

	queue := func(suffix string) (q *queue, to string) {
		q = r.newQueue(all[0], queueName+suffix)
		return q, q.subject("push." + strconv.Itoa(besidePriority))
	}
	plain, plainTo := queue("")
	grouped, groupedTo := queue("-groups")
	pushed, pushedTo := queue("-pushed")

	push := &row{name: fmt.Sprintf("push Pq-Group, bridges: %d", n), load: pushed.pushingGroups(pushedTo), who: processes(all)}
	push.prepare = func(context.Context) (limit, error) { return r.part(), nil }
	without := r.besideRow("push", all, plain, r.asking(plain.value, plainTo), "")
	with := r.besideRow("push Pq-Group", all, grouped, grouped.pushingGroups(groupedTo), largeGroup)
	if err := r.takeTurns(ctx, []*row{push, without.row, with.row}, r.rounds); err != nil {
		return err
	}

	report.Rows = append(report.Rows, push.result(report.rate(rowEcho)))
	for _, b := range []*beside{without, with} {
		batches := float64(max(b.batches, 1))
		b.extra = append(b.extra,
			times(b.out.rate(), "without groups", without.out.rate()),
			Figure{Name: "pushes", Value: b.pushed.rate(), Unit: "/s"},
			Figure{Name: "items in a transaction", Value: float64(b.out.items) / batches},
			Figure{Name: "conflicts for each", Value: float64(b.conflicts) / batches})
		report.Rows = append(report.Rows, b.result(report.rate(rowEcho)))
	}
	return nil
}

func processes(all []*service) (g group) {
	for _, s := range all {
		g = append(g, s.Process)
	}
	return g
}

// besideRow is a row whose clients are half of all. The others push meanwhile. The queue has items of
// one group from the start, so that there is something behind what is pushed.
func (r *rig) besideRow(what string, all []*service, q *queue, pushing load, backlog string) *beside {
	few := max(r.Clients/8, 1)
	pops, pushes := r.asking(nil, q.subject("pop.min")).(actors), pushing.(actors)
	pops, pushes = pops[:max(len(pops)-few, 1)], pushes[:few]
	b := &beside{row: &row{name: fmt.Sprintf("pop.min beside %s, bridges: %d", what, len(all)), who: processes(all)}, pushed: newOutcome()}

	var before []popStat
	b.prepare = func(ctx context.Context) (limit, error) {
		lim := r.part()
		have, err := q.Len(ctx)
		if err != nil {
			return lim, err
		}
		missing := max(int(besideRate*lim.duration.Seconds())+r.Clients-int(have), 0)
		if err := q.fillGroup(ctx, besidePriority, missing, func(int) string { return backlog }); err != nil {
			return lim, err
		}
		before, err = popStats(ctx, all)
		return lim, err
	}
	b.load = loadFunc(func(ctx context.Context, t *turn) {
		var running sync.WaitGroup
		running.Go(func() {
			out, err := runLoad(ctx, pushes, t.limit)
			if t.good(err) {
				b.pushed.append(out)
			}
		})
		pops.run(ctx, t)
		running.Wait()

		after, err := popStats(ctx, all)
		t.good(err)
		for i := range after {
			if after[i].pops > before[i].pops {
				b.conflicts += after[i].conflicts - before[i].conflicts
				b.batches += after[i].batches - before[i].batches
			}
		}
	})
	return b
}

// besideRate is more items a second than can be popped beside pushes.
const besideRate = 30_000

// loadFunc is a load that is a function.
type loadFunc func(ctx context.Context, t *turn)

func (f loadFunc) run(ctx context.Context, t *turn) { f(ctx, t) }

// popStat is what a bridge says of its transactions so far.
type popStat struct{ pops, batches, conflicts int64 }

func popStats(ctx context.Context, all []*service) (stats []popStat, err error) {
	for _, s := range all {
		stat, err := s.popStat(ctx)
		if err != nil {
			return nil, err
		}
		stats = append(stats, stat)
	}
	return stats, nil
}

// popStat reads the bridge's metrics.
func (s *service) popStat(ctx context.Context) (stat popStat, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return stat, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return stat, err
	}
	defer func() { _ = response.Body.Close() }()

	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value := map[string]*int64{
			`pq_requests_total{operation="pop-min"}`: &stat.pops,
			"pq_batch_requests_count":                &stat.batches,
			"pq_conflicts_total":                     &stat.conflicts,
		}[name]
		if value == nil {
			continue
		}
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return stat, fmt.Errorf("metric %s: %w", name, err)
		}
		*value = int64(number)
	}
	return stat, lines.Err()
}
