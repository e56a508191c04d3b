package fdbpq_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// joinDrawer draws operations on two queues with joiners and members.
type joinDrawer struct {
	random *rand.Rand
	queues []fdbpq.Target

	mu      sync.Mutex
	joiners []fdbpq.Joiner
	ids     map[string][]fdbpq.ID // of items that were pushed, by queue
	leases  map[string][]fdbpq.Token
}

// draw returns some operations, which are one batch.
func (d *joinDrawer) draw() (ops []fdbpq.Op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range 1 + d.random.IntN(4) {
		q := d.queues[d.random.IntN(len(d.queues))]
		name := q.Layout().Name()
		named := func(kind fdbpq.OpKind) fdbpq.Op {
			o := fdbpq.Op{Kind: kind, Queue: q, Priority: int64(d.random.IntN(3))}
			if ids := d.ids[name]; len(ids) > 0 {
				o.ID = ids[d.random.IntN(len(ids))]
			}
			return o
		}
		settle := func(kind fdbpq.OpKind) fdbpq.Op {
			o := fdbpq.Op{Kind: kind, Queue: q, Token: fdbpq.Token{Fence: 1}}
			if held := d.leases[name]; len(held) > 0 {
				o.Token = held[d.random.IntN(len(held))]
			}
			return o
		}

		switch d.random.IntN(18) {
		case 0, 1, 2:
			ops = append(ops, d.fan(q)...)
		case 3, 4, 5:
			ops = append(ops, d.member(q))
		case 6, 7:
			end := fdbpq.End(d.random.IntN(2))
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, End: end})
		case 8, 9, 10:
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
		case 11, 12:
			ack := settle(fdbpq.OpAck)
			ack.Report = &fdbpq.Report{Next: append(d.fan(q), d.member(q))}
			for n := range ack.Report.Next {
				ack.Report.Next[n].Follows = false
			}
			ops = append(ops, ack)
		case 13:
			ops = append(ops, settle(fdbpq.OpNak))
		case 14:
			ops = append(ops, settle(fdbpq.OpTerm))
		case 15:
			ops = append(ops, named(fdbpq.OpMove))
		case 16:
			ops = append(ops, named(fdbpq.OpRemove))
		case 17:
			if d.random.IntN(20) == 0 {
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
			} else {
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q})
			}
		}
	}
	return ops
}

// fan draws a joiner and a few members, in one chain.
func (d *joinDrawer) fan(q fdbpq.Target) (ops []fdbpq.Op) {
	joiner := opPush(q, int64(d.random.IntN(3)), "joiner")
	joiner.Message.Join = time.Duration(1+d.random.IntN(20)) * time.Second
	ops = append(ops, joiner)
	for n := range d.random.IntN(4) {
		member := opPush(q, int64(d.random.IntN(3)), "member")
		member.MemberOf, member.Follows = n+1, true
		if d.random.IntN(3) == 0 {
			member.TTL = 2 * time.Second
		}
		ops = append(ops, member)
	}
	return ops
}

// member draws a push to a joiner that may wait.
func (d *joinDrawer) member(q fdbpq.Target) fdbpq.Op {
	push := opPush(q, int64(d.random.IntN(3)), "late")
	if len(d.joiners) > 0 {
		push.Message.Joiner = &d.joiners[d.random.IntN(len(d.joiners))]
	}
	if d.random.IntN(3) == 0 {
		push.Delay = time.Second
	}
	return push
}

// note remembers what later operations can name.
func (d *joinDrawer) note(ops []fdbpq.Op, results []fdbpq.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range results {
		name := ops[i].Queue.Layout().Name()
		switch {
		case r.Err != nil:
		case ops[i].Kind == fdbpq.OpPush:
			d.ids[name] = append(d.ids[name], r.Item.ID)
			if ops[i].Message.Join > 0 {
				d.joiners = append(d.joiners, fdbpq.Joiner{Queue: name, ID: r.Item.ID})
			}
		case ops[i].Kind == fdbpq.OpLease:
			d.leases[name] = append(d.leases[name], r.Lease.Token)
		}
	}
}

// Whatever happens to joiners and members, in whichever order and beside whichever faults: the
// counters of joins are those of the items, no joiner waits without open members, and once all
// items have left nothing of a join or of an attempt is left.
func TestRandomJoins(t *testing.T) {
	random, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	d := &joinDrawer{
		random: random, ids: map[string][]fdbpq.ID{}, leases: map[string][]fdbpq.Token{},
		queues: []fdbpq.Target{f.queue("a"), f.queue("b"), f.fifoQueue("a"), f.fifoQueue("b")},
	}
	for _, q := range d.queues {
		f.configure(q, func(s *fdbpq.Settings) {
			s.Next, s.MaxDeliver, s.Trail = []string{"a", "b"}, 2, 8
			if q.Layout().Name() == "b" {
				s.MaxItems, s.Discard = 10, fdbpq.DiscardOld
			}
		})
	}
	clock := newClock(time.Now())

	for round := range f.steps(40) {
		f.run(seed+uint64(round), 3, func(w *worker) {
			w.batcher.SetNow(clock.now)
			for range 10 {
				ops := d.draw()
				results, err := w.batcher.Apply(f.ctx, ops)
				if err == nil {
					d.note(ops, results)
				}
			}
			wantError(t, w.batcher.Settle(f.ctx), nil)
		})
		clock.advance(time.Second)
		f.check()
	}

	f.calm()
	f.batcher.SetNow(clock.now)
	f.sweepJoins(d.queues)
	for _, counter := range f.joinCounters(codec.JoinOpen) {
		if counter == 0 {
			t.Error("a joiner waits without open members")
		}
	}
	clock.advance(time.Minute)
	f.sweepJoins(d.queues)
	wantEqual(t, "joiners that wait", len(f.joinCounters(codec.JoinAll)), 0)
	for _, q := range d.queues {
		f.sweepJoins(d.queues)
		for f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0].Err == nil {
		}
	}
	wantEqual(t, "keys of joins", f.keysOf("a", codec.KindJoin)+f.keysOf("b", codec.KindJoin), 0)
	for _, q := range d.queues {
		wantEqual(t, "attempts", f.attemptKeys(q), 0)
	}
}

// sweepJoins does all that is due.
func (f *fixture) sweepJoins(queues []fdbpq.Target) {
	for _, q := range slices.Concat(queues, queues) {
		for f.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q})[0].Swept.More {
		}
	}
}

// joinCounters returns the counters of joiners that have a number.
func (f *fixture) joinCounters(number int64) (counters []uint64) {
	for _, root := range []string{f.priority, f.fifo} {
		for _, pair := range f.stored(root) {
			key := must(tuple.Unpack(pair.Key))
			if key[2] == codec.KindJoin && key[3] != "m" && key[len(key)-1] == any(number) {
				counters = append(counters, binary.LittleEndian.Uint64(pair.Value))
			}
		}
	}
	return counters
}
