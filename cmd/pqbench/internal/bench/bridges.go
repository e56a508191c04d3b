package bench

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// group is several processes that share the work.
type group []*process.Process

func (g group) Used() process.Usage {
	sum := process.Usage{Known: true}
	for _, p := range g {
		u := p.Used()
		sum.Known = sum.Known && u.Known
		sum.CPU += u.CPU
		sum.Peak += u.Peak
	}
	return sum
}

// bridges compares push and pop.min on one queue with different numbers of bridges. Each
// row has a queue of its own. FoundationDB is slower for a while after it has removed many
// items, so it is best to measure the numbers up and down again.
func (r *rig) bridges(ctx context.Context, report *Report) error {
	var rows []BridgesRow
	items := r.enough(r.Duration, report.Operations[0].Rate, report.Operations[1].Rate) // echo and push
	for i, n := range r.Bridges {
		r.Progress(i, len(r.Bridges), fmt.Sprintf("%d bridges", n))
		row, err := r.bridgesRow(ctx, i, n, items)
		if err != nil {
			return fmt.Errorf("%d bridges: %w", n, err)
		}
		rows = append(rows, row)
	}
	report.setBridges(rows)
	return nil
}

func (r *rig) bridgesRow(ctx context.Context, i, n, items int) (row BridgesRow, err error) {
	var g group
	var s *service
	for range n {
		if s, err = r.startService(ctx, "-bridges"); err != nil {
			return row, err
		}
		defer s.end(&err)
		g = append(g, s.Process)
	}
	w, err := r.emptyQueue(ctx, s, fmt.Sprintf("%s-%d", r.Queue, i))
	if err != nil {
		return row, err
	}
	row.Bridges = n
	push := r.newMeasured(phase{name: rowPush, load: r.load, steps: w.push, who: g})
	if err := push.run(ctx, limit{duration: r.Duration}); err != nil {
		return row, err
	}
	row.Push = newRow(push)
	if err := r.fill(ctx, w, items); err != nil {
		return row, err
	}
	before, err := r.cluster.transactions(ctx)
	if err != nil {
		return row, err
	}
	pop := r.newMeasured(phase{name: rowPopMin, load: r.load, steps: w.popMin, who: g})
	if err := pop.run(ctx, limit{duration: r.Duration}); err != nil {
		return row, err
	}
	row.Pop = newRow(pop)
	after, err := r.cluster.transactions(ctx)
	if err != nil {
		return row, err
	}
	row.Wasted = after.wasted(before)
	return row, r.tidy(ctx, w)
}
