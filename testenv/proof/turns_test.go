package proof_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// The load of TestTurns.
const (
	turnItems  = 70  // of a group that is at its limit: more than a pop passes over one by one
	turnServed = 250 // items of other groups
	turnPushes = 4   // of a client in a row, at most
	turnBatch  = 6   // items of a push, at most
	mostTurns  = 3   // by which two groups with weights must not differ
)

// weightsOf are the weights of the groups that each of several clients pushes.
var weightsOf = []map[string]int{{"a": 1, "b": 2}, {"c": 3, "d": 1}, {"e": 1, "f": 2}}

// Groups that never have more ready items than smallBacklog: they get one for each that is served.
// smallWeights are their weights.
const smallBacklog = 2

var smallWeights = map[string]int{"s": 3, "t": 10}

// While two groups have items, the numbers of turns they get differ by less than three, also behind
// a group that is at its limit. Clients push groups with weights through all bridges at once, some
// with large backlogs and some with fewer items than their weight. Then another client leases some
// items one by one, again and again.
func TestTurns(t *testing.T) {
	seed := flags.firstSeed(t)
	list := some(calmSystems(), "mem-calm")

	for _, s := range firstFDB() {
		list = append(list, system{s.name, calmly(s.start), 1})
	}

	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, seed, func(*rig) {}, func(r *rig) {
				f := &fair{rig: r, ready: map[string]int{}, turns: map[string]span{}}
				f.weights = map[string]float64{}
				f.run()
			})
		})
	}
}

// fair has the items pushed and served.
type fair struct {
	*rig
	mu    sync.Mutex
	ready map[string]int // items of each group

	weights map[string]float64
	turns   map[string]span // by the names of two groups
}

func (f *fair) run() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	jobs := func(n int) *client.Queue { return f.clients[n].client.PriorityQueue("turns") }
	_, err := jobs(0).Configure(ctx, client.Settings{MaxLeasedPerGroup: 1})
	must(f.t, err)
	must(f.t, f.push(ctx, jobs(0), "x", 1, turnItems))

	_, err = jobs(0).Lease(ctx, client.AckWait(5*patience)) // x is at its limit until the end
	must(f.t, err)

	for _, some := range append(slices.Clone(weightsOf), smallWeights) {
		for group, weight := range some {
			f.weights[group] = float64(weight)
		}
	}

	for group, weight := range smallWeights {
		must(f.t, f.push(ctx, jobs(0), group, weight, smallBacklog))
	}

	names := slices.Sorted(maps.Keys(f.weights))
	var lease *client.Delivery

	for served := 0; served < turnServed && !f.t.Failed(); {
		var pushing sync.WaitGroup
		for n, weights := range weightsOf {
			pushing.Go(func() { f.pushSome(ctx, jobs(1+n), weights) })
		}

		pushing.Wait()
		for range min(1+f.random.IntN(2*turnBatch*turnPushes), f.count(names)) {
			if lease == nil {
				lease, err = jobs(0).Lease(ctx, client.AckWait(5*patience))
			} else {
				lease, err = lease.Next(ctx)
			}
			must(f.t, err)
			served++

			f.compare(names, lease.Group)

			if weight := smallWeights[lease.Group]; weight > 0 {
				must(f.t, f.push(ctx, jobs(1+served%3), lease.Group, weight, 1))
			}
		}
	}
	must(f.t, lease.Ack(ctx))
	_, err = jobs(0).Purge(ctx, "")
	must(f.t, err)

	f.scan(ctx, f.stop(), 0)
}

// push pushes n items of a group.
func (f *fair) push(ctx context.Context, q *client.Queue, group string, weight, n int) error {
	items := make([]client.PushItem, n)
	for i := range items {
		items[i].Message = client.Message{}.With(client.Group(group), client.Weight(weight))
	}

	_, err := q.PushBatch(ctx, items)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready[group] += n

	return err
}

// pushSome pushes items of some groups.
func (f *fair) pushSome(ctx context.Context, q *client.Queue, weights map[string]int) {
	f.mu.Lock()
	random := rand.New(rand.NewPCG(f.random.Uint64(), 8))
	f.mu.Unlock()
	names := slices.Sorted(maps.Keys(weights))

	for range random.IntN(1 + turnPushes) {
		group := names[random.IntN(len(names))]
		if err := f.push(ctx, q, group, weights[group], 1+random.IntN(turnBatch)); err != nil {
			f.t.Error(err)
		}
	}
}

// count returns how many items some groups have.
func (f *fair) count(names []string) (n int) {
	for _, name := range names {
		n += f.ready[name]
	}
	return n
}

// span is by how many turns one group was ahead of another, was behind, and is ahead now.
type span struct{ most, least, now float64 }

// compare enters that an item of a group was served, and compares the groups that have items.
func (f *fair) compare(names []string, group string) {
	f.ready[group]--
	for i, a := range names {
		for _, b := range names[:i] {
			s := f.turns[a+b]
			switch {
			case f.ready[a] == 0 || f.ready[b] == 0:
				s = span{}
			case group == a:
				s.now += 1 / f.weights[a]
			case group == b:
				s.now -= 1 / f.weights[b]
			}

			s.most, s.least = max(s.most, s.now), min(s.least, s.now)
			if f.turns[a+b] = s; s.most-s.least > mostTurns-0.1 { // of sixths
				f.t.Errorf("%s and %s differ by %.2f turns\n%s", a, b, s.most-s.least, f.again())
			}
		}
	}
}
