package proof_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// The load of TestTurns.
const (
	turnItems   = 70  // of a group that is at its limit, in front of all others: more than a pop passes over one by one
	turnServed  = 250 // items of other groups
	turnBacklog = 60  // items of other groups that wait, at most
	turnBatch   = 6   // items of a push, at most
)

// weightsOf are the weights of the groups that each of several clients pushes.
var weightsOf = []map[string]int{{"a": 1, "b": 2}, {"c": 3, "d": 1}, {"e": 1, "f": 2}}

// TestTurns has clients push groups with weights through all bridges, while another leases the items one by one, behind a
// group that is at its limit. No two groups may differ by more than two turns in what they get.
func TestTurns(t *testing.T) {
	seed := flags.firstSeed(t)
	list := some(calmSystems(), "mem-calm")
	for _, s := range fdbSystems()[:min(1, len(fdbSystems()))] {
		list = append(list, system{s.name, calmly(s.start), 1})
	}
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, seed, func(*rig) {}, func(r *rig) {
				f := &fair{rig: r, room: make(chan struct{}, turnBacklog), ended: make(chan struct{})}
				f.run()
			})
		})
	}
}

// fair is what was pushed and served.
type fair struct {
	*rig
	room  chan struct{} // has one for each item that may be pushed
	ended chan struct{} // closed when enough was served

	mu     sync.Mutex
	pushes []turn
	served []turn // in order
}

// turn is items of a group that were pushed or served at a time between these.
type turn struct {
	group    string
	n        int
	from, to time.Duration
}

func (f *fair) run() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	jobs := func(n int) *client.PriorityQueue { return f.clients[n].client.PriorityQueue("turns") }
	_, err := jobs(0).Configure(ctx, client.Settings{MaxLeasedPerGroup: 1})
	must(f.t, err)
	must(f.t, f.push(ctx, jobs(0), "x", 1, turnItems))
	_, err = jobs(0).LeaseMin(ctx, client.AckWait(patience))
	must(f.t, err)

	for range turnBacklog {
		f.room <- struct{}{}
	}
	var pushing sync.WaitGroup
	for n, weights := range weightsOf {
		random := rand.New(rand.NewPCG(f.seed, uint64(n)))
		pushing.Go(func() { f.pushAll(ctx, jobs(1+n), random, weights) })
	}
	f.serve(ctx, jobs(0), turnServed)
	pushing.Wait()
	f.check()

	_, err = jobs(0).Purge(ctx, "")
	must(f.t, err)
	f.scan(ctx, f.stop(), 0)
}

// push pushes n items of a group.
func (f *fair) push(ctx context.Context, q *client.PriorityQueue, group string, weight, n int) error {
	items := make([]client.PushItem, n)
	for i := range items {
		items[i].Message = client.Message{}.With(client.Group(group), client.Weight(weight))
	}
	begin := time.Since(f.zero)
	_, err := q.PushBatch(ctx, items)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes = append(f.pushes, turn{group, n, begin, time.Since(f.zero)})
	return err
}

// pushAll pushes items of some groups, mostly many of one before the next, while there is room.
func (f *fair) pushAll(ctx context.Context, q *client.PriorityQueue, random *rand.Rand, weights map[string]int) {
	names := slices.Sorted(maps.Keys(weights))
	for group := names[0]; ; {
		if random.IntN(3) == 0 {
			group = names[random.IntN(len(names))]
		}
		n := 1 + random.IntN(turnBatch)
		for range n {
			select {
			case <-f.room:
			case <-f.ended:
				return
			}
		}
		if err := f.push(ctx, q, group, weights[group], n); err != nil {
			f.t.Error(err)
			return
		}
	}
}

// serve leases items one by one, each with the acknowledgement of the one before it.
func (f *fair) serve(ctx context.Context, q *client.PriorityQueue, n int) {
	var lease *client.Delivery
	for more := true; more; {
		if len(f.served) == n {
			close(f.ended)
		}
		begin := time.Since(f.zero)
		next, err := (*client.Delivery)(nil), error(nil)
		if lease == nil {
			next, err = q.LeaseMin(ctx, client.AckWait(patience))
		} else {
			next, err = lease.Next(ctx)
		}
		switch lease = next; {
		case err == nil:
			f.served = append(f.served, turn{next.Group, 1, begin, time.Since(f.zero)})
			if len(f.served) < n {
				f.room <- struct{}{}
			}
		case !errors.Is(err, client.ErrEmpty):
			f.t.Error(err)
			more = false
		default:
			more = len(f.served) < n
		}
	}
	if len(f.served) < n {
		close(f.ended)
	}
}

// check compares each pair of groups, over all times in which both had items for certain. A group that comes new begins where
// its push saw the others, so it may be ahead by what was served while that was under way.
func (f *fair) check() {
	weights, stays := map[string]float64{}, map[string][]stay{}
	for _, some := range weightsOf {
		for group, weight := range some {
			weights[group], stays[group] = float64(weight), f.staysOf(group)
		}
	}

	compared, most, names := 0, 0.0, slices.Sorted(maps.Keys(weights))
	for i, a := range names {
		for _, b := range names[:i] {
			sum, low, high, slack := 0.0, 0.0, 0.0, 0.0
			for n, s := range f.served {
				first, second := stays[a][n], stays[b][n]
				if !first.certain || !second.certain {
					sum, low, high, slack = 0, 0, 0, first.late+second.late
					continue
				}
				compared++
				switch slack += first.late + second.late; s.group {
				case a:
					sum += 1 / weights[a]
				case b:
					sum -= 1 / weights[b]
				}
				low, high = min(low, sum), max(high, sum)
				if most = max(most, high-low-slack); most > 2+1e-9 { // of thirds
					f.t.Errorf("%s and %s differ by %.2f turns at delivery %d, %v; %.0f were made while one of them came new\nmake a similar run: %s",
						a, b, high-low, n, s.to, slack, f.againTurns())
					return
				}
			}
		}
	}
	f.t.Logf("%d deliveries, %d pushes, clocks are wrong by up to %v; compared %d times, %.2f turns at most",
		len(f.served), len(f.pushes), f.skew, compared, most)
	if compared == 0 {
		f.t.Errorf("nothing was compared")
	}
}

// stay says whether items of a group were ready for certain at a delivery.
type stay struct {
	certain bool
	late    float64 // since the delivery before, or before the group was there: how many were made while it may have come new
}

func (f *fair) staysOf(group string) []stay {
	list := make([]stay, len(f.served))
	pushed := 0
	var late float64
	pushes := slices.DeleteFunc(slices.Clone(f.pushes), func(p turn) bool { return p.group != group })
	for n := range f.served {
		taken := f.takenBefore(group, f.served[n].from)
		for ; len(pushes) > 0 && pushes[0].to <= f.served[n].from; pushes = pushes[1:] {
			p := pushes[0]
			if pushed <= f.takenBefore(group, p.to) { // there may have been none
				late += f.servedDuring(p)
			}
			pushed += p.n
		}
		if list[n] = (stay{pushed > taken, late}); list[n].certain {
			late = 0
		}
	}
	return list
}

// takenBefore returns how many items of a group may have been served by a time.
func (f *fair) takenBefore(group string, at time.Duration) (n int) {
	for _, s := range f.served {
		if s.group == group && s.from < at {
			n++
		}
	}
	return n
}

// servedDuring returns how many items may have been served while a push was under way.
func (f *fair) servedDuring(p turn) (n float64) {
	for _, s := range f.served {
		if s.from < p.to && p.from < s.to {
			n++
		}
	}
	return n
}

// againTurns returns the command that reproduces the run.
func (f *fair) againTurns() string {
	return fmt.Sprintf("go test %s-count=1 -run '^TestTurns$/^%s$' ./testenv/proof -seed %d", tagFlags, f.name, f.seed)
}
