package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// manyGroups is among how many groups pushes with groups choose.
	manyGroups = 100
	// smallGroup is how many items each of them has beside a large group.
	smallGroup = 100
	// largeGroup is the name of the large one.
	largeGroup = "large"
)

// pushingGroups pushes to the subjects in turn, as asking does, with groups.
func (q *queue) pushingGroups(to ...string) load {
	return q.rig.requests(func(nc *nats.Conn, n int) error {
		m := &nats.Msg{Subject: to[n%len(to)], Data: q.value, Header: nats.Header{subjects.HeaderGroup: {groupName(rand.IntN(manyGroups))}}}
		reply, err := nc.RequestMsg(m, grace)
		if err == nil {
			err = replyError(reply)
		}
		return err
	})
}

func groupName(i int) string { return fmt.Sprint("group ", i) }

// fillGroup pushes n items of groups. It measures nothing.
func (q *queue) fillGroup(ctx context.Context, priority int64, n int, group func(i int) string) error {
	items := make([]client.PushItem, 0, n)
	for i := range n {
		m := client.Message{Value: q.value}
		if name := group(i); name != "" {
			m = m.With(client.Group(name))
		}
		items = append(items, client.PushItem{Priority: priority, Message: m})
	}

	if len(items) == 0 {
		return nil
	}
	if _, err := q.PushMany(ctx, items); err != nil {
		return fmt.Errorf("filling groups: %w", err)
	}
	return nil
}

// groups measures the turns of small groups beside a large one that was there before, and then pops
// past that one when it may not be served.
func (r *rig) groups(ctx context.Context, report *Report) (err error) {
	const rowTurns = "pop.min, 100 small groups"
	past := func(n int) string { return fmt.Sprintf("pop.min past 1 group, %d groups", n) }
	numbers := slices.DeleteFunc([]int{100, 1000, 10_000}, func(n int) bool { return n > r.Groups || !r.chosen(past(n)) })
	if r.Groups == 0 || len(numbers) == 0 && !r.chosen(rowTurns) {
		return nil
	}

	s, err := r.startService(ctx, "-groups")
	if err != nil {
		return err
	}
	defer s.end(&err)
	q := r.newQueue(s, queueName)

	r.Progress(0, 1, "filling groups")
	if err := q.fillGroup(ctx, 1, r.Groups, func(int) string { return largeGroup }); err != nil {
		return err
	}
	if r.chosen(rowTurns) {
		turns := &row{name: rowTurns, who: s.Process}
		if err := r.turns(ctx, turns, q); err != nil {
			return err
		}
		report.Rows = append(report.Rows, turns.result(report.rate(rowEcho)))
	}

	// One item of the large group is leased, so all others of it are passed over.
	if _, err := q.Configure(ctx, client.Settings{MaxLeasedPerGroup: 1}); err != nil {
		return err
	}
	if _, err := q.LeaseMin(ctx, client.AckWait(leaseTime*60)); err != nil {
		return err
	}
	for i, n := range numbers {
		r.Progress(i, len(numbers), past(n))
		w := &row{name: past(n), load: r.asking(nil, q.subject("pop.min")), who: s.Process}
		each := max(20_000/n, 2)
		if err := q.fillGroup(ctx, 2, n*each, func(i int) string { return groupName(i % n) }); err != nil {
			return err
		}
		if err := r.run(ctx, w, limit{steps: n * each / 2, duration: r.Duration}); err != nil {
			return err
		}
		report.Rows = append(report.Rows, w.result(report.rate(rowEcho)))
	}
	return nil
}

// turns pushes the items of small groups, and pops until all of these are done. That is the error if
// it takes more deliveries than when the groups take turns.
func (r *rig) turns(ctx context.Context, w *row, q *queue) error {
	small := func(i int) string { return groupName(i % manyGroups) }
	if err := q.fillGroup(ctx, 1, manyGroups*smallGroup, small); err != nil {
		return err
	}

	var popped []string // groups, in the order of their deliveries
	w.load = actors{{do: func(context.Context, int) (int, error) {
		item, err := ask(r.conn, q.subject("pop.min"), nil)
		if err != nil {
			return 0, err
		}
		popped = append(popped, item.Header.Get(subjects.HeaderGroup))
		return 1, nil
	}}}
	if err := r.run(ctx, w, limit{steps: (manyGroups + 1) * smallGroup}); err != nil {
		return err
	}

	first, done, err := turnsOf(popped)
	w.extra = append(w.extra,
		Figure{Name: "deliveries until each had one", Value: float64(first)},
		Figure{Name: "until all are done", Value: float64(done)},
		Figure{Name: "without groups", Value: float64(r.Groups + manyGroups*smallGroup)})
	return err
}

// turnsOf returns after how many deliveries the last of the small groups had its first one, and its
// last one. The error says that they did not take turns, with each other or with the large group.
func turnsOf(popped []string) (first, done int, err error) {
	served := map[string]int{}
	for i, group := range popped {
		if served[group]++; served[group] == 1 {
			first = i + 1
		}
		if group != largeGroup {
			done = i + 1
		}
	}

	all := (manyGroups + 1) * smallGroup
	if left := all - smallGroup - len(popped) + served[largeGroup]; left > 0 {
		return first, done, fmt.Errorf("after %d deliveries, %d items of small groups are left: want none", len(popped), left)
	}
	if first > manyGroups+1 {
		return first, done, fmt.Errorf("a small group had its first delivery after %d: want at most %d", first, manyGroups+1)
	}
	return first, done, nil
}
