package bench

import (
	"context"
	"fmt"
)

// group is processes that share the work.
type group []*process

func (g group) used() usage {
	sum := usage{known: true}
	for _, p := range g {
		u := p.used()
		sum.known = sum.known && u.known
		sum.cpu += u.cpu
		sum.peak += u.peak
	}
	return sum
}

// bridges compares push and pop.min on one queue with different numbers of
// bridges, all of which take requests.
func (r *rig) bridges(ctx context.Context, report *Report) error {
	for i, n := range r.Bridges {
		r.Progress(i, len(r.Bridges), fmt.Sprintf("%d bridges", n))
		row, err := r.bridgesRow(ctx, n, report.Operations[0])
		if err != nil {
			return fmt.Errorf("%d bridges: %w", n, err)
		}
		report.addBridges(row)
	}
	return nil
}

func (r *rig) bridgesRow(ctx context.Context, n int, echo Row) (row BridgesRow, err error) {
	var g group
	var s *service
	for range n {
		if s, err = r.startService(ctx, "-bridges"); err != nil {
			return row, err
		}
		defer s.end(&err)
		g = append(g, s.process)
	}
	w, err := r.emptyQueue(ctx, s)
	if err != nil {
		return row, err
	}
	push, err := r.measure(ctx, phase{name: rowPush, load: r.load, steps: w.push, who: g})
	if err != nil {
		return row, err
	}
	if err := r.fill(ctx, w, r.enough(echo, push)); err != nil {
		return row, err
	}
	before, err := r.cluster.transactions(ctx)
	if err != nil {
		return row, err
	}
	pop, err := r.measure(ctx, phase{name: rowPopMin, load: r.load, steps: w.popMin, who: g})
	if err != nil {
		return row, err
	}
	after, err := r.cluster.transactions(ctx)
	if err != nil {
		return row, err
	}
	return BridgesRow{Bridges: n, Push: push, Pop: pop, Wasted: after.wasted(before)}, r.tidy(ctx, w)
}
