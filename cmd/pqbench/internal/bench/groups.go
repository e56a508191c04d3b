package bench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// manyGroups is among how many groups pushes with groups choose.
	manyGroups = 100
	// smallGroup is how many items each of them has beside a large group.
	smallGroup = 100
)

// pushingGroups is pushing with groups, and without priorities.
func (q *queue) pushingGroups() load {
	to := q.subject("push")
	return q.rig.requests(func(nc *nats.Conn, _ int) error {
		m := &nats.Msg{Subject: to, Data: q.value, Header: nats.Header{subjects.HeaderGroup: {groupName(rand.IntN(manyGroups))}}}
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
		m := client.Message{Value: q.value}.With(client.Group(group(i)))
		items = append(items, client.PushItem{Priority: priority, Message: m})
	}

	if _, err := q.PushMany(ctx, items); err != nil {
		return fmt.Errorf("filling groups: %w", err)
	}
	return nil
}

// groups measures the turns of small groups beside a large one that was there before, and then pops
// past that one when it may not be served.
func (r *rig) groups(ctx context.Context, report *Report) (err error) {
	if r.Groups == 0 {
		return nil
	}
	s, err := r.startService(ctx, "-groups")
	if err != nil {
		return err
	}
	defer s.end(&err)
	q := r.newQueue(s, queueName)

	r.Progress(0, 1, "filling groups")
	if err := q.fillGroup(ctx, 1, r.Groups, func(int) string { return "large" }); err != nil {
		return err
	}
	turns, err := r.turnsRow(ctx, s, q)
	if err != nil {
		return err
	}
	report.Rows = append(report.Rows, turns.result(report.rate(rowEcho)))

	// One item of the large group is leased, so all others of it are passed over.
	if _, err := q.Configure(ctx, client.Settings{MaxLeasedPerGroup: 1}); err != nil {
		return err
	}
	if _, err := q.LeaseMin(ctx, client.AckWait(leaseTime*60)); err != nil {
		return err
	}
	for _, n := range []int{100, 1000, 10_000} {
		if n > r.Groups {
			break
		}
		w := &row{name: fmt.Sprintf("pop.min past 1 group, %d groups", n), load: r.asking(nil, q.subject("pop.min")), who: s.Process}
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

// turnsRow pushes the items of small groups, and pops until all of these are done.
func (r *rig) turnsRow(ctx context.Context, s *service, q *queue) (*row, error) {
	small := func(i int) string { return groupName(i % manyGroups) }
	if err := q.fillGroup(ctx, 1, manyGroups*smallGroup, small); err != nil {
		return nil, err
	}

	served, popped, done, first := map[string]int{}, 0, 0, 0
	pop := func(context.Context, int) (int, error) {
		item, err := ask(r.conn, q.subject("pop.min"), nil)
		if err != nil {
			return 0, err
		}
		popped++
		group := item.Header.Get(subjects.HeaderGroup)
		if served[group]++; served[group] == 1 {
			first = popped
		}
		if group != "large" {
			done = popped
		}
		return 1, nil
	}

	w := &row{name: fmt.Sprintf("pop.min, %d small groups", manyGroups), load: actors{{do: pop}}, who: s.Process}
	if err := r.run(ctx, w, limit{steps: (manyGroups + 1) * smallGroup}); err != nil {
		return nil, err
	}
	if got := popped - served["large"]; got < manyGroups*smallGroup {
		return nil, fmt.Errorf("after %d pops only %d were of the small groups", popped, got)
	}
	w.extra = append(w.extra,
		Figure{Name: "deliveries to each", Value: float64(first)},
		Figure{Name: "until all are done", Value: float64(done)})
	return w, nil
}
