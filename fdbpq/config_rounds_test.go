package fdbpq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
)

// Settings are read only by operations that depend on them, and together with what these read
// anyway. Items of many queues are buried together.
func TestRoundsOfSettings(t *testing.T) {
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
	for _, test := range []struct {
		name          string
		max           int64 // max_deliver
		headers       bool
		leased        bool
		late          time.Duration
		op            fdbpq.Op
		reads, rounds int
		many          int // rounds for 100 queues, if others
	}{
		{name: "lease with a length", op: lease, reads: 4, rounds: 1},
		{name: "lease without", op: fdbpq.Op{Kind: fdbpq.OpLease}, reads: 4, rounds: 1},
		{name: "config", op: fdbpq.Op{Kind: fdbpq.OpSettings}, reads: 1, rounds: 1},
		{name: "ack", leased: true, op: fdbpq.Op{Kind: fdbpq.OpAck}, reads: 2, rounds: 1},
		{name: "snooze", leased: true, op: fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}, reads: 1, rounds: 1},
		{name: "nak", leased: true, op: fdbpq.Op{Kind: fdbpq.OpNak}, reads: 2, rounds: 1},
		{name: "last nak", max: 1, leased: true, op: fdbpq.Op{Kind: fdbpq.OpNak}, reads: 5, rounds: 2},
		{name: "term", leased: true, op: fdbpq.Op{Kind: fdbpq.OpTerm}, reads: 5, rounds: 2},
		{name: "term of an item with headers", headers: true, leased: true, op: fdbpq.Op{Kind: fdbpq.OpTerm}, reads: 6, rounds: 2},
		{name: "pop beside a lease", leased: true, op: opPopMin, reads: 4, rounds: 1},
		{name: "pop when a lease is over", leased: true, late: time.Hour, op: opPopMin, reads: 8, rounds: 4,
			many: 105}, // a pop reads the history of its item when it gets there
		{name: "pop when the last lease is over", max: 1, headers: true, leased: true, late: time.Hour, op: opPopMin, reads: 9, rounds: 3,
			many: 7}, // in steps of growing size
	} {
		for _, queues := range []int{1, 100} {
			t.Run(fmt.Sprint(test.name, "/", queues), func(t *testing.T) {
				f := newRoundsFixture(t, queues, false)
				clock := newClock(time.Now())
				f.batcher.SetNow(clock.now)
				if test.max > 0 {
					f.batch([]fdbpq.Op{{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = test.max }}})
				}
				f.batch(pushOp(1, test.headers))
				f.batch(pushOp(2, false))
				var ops []fdbpq.Op
				if test.leased {
					for i, r := range f.batch([]fdbpq.Op{lease}) {
						test.op.Queue, test.op.Token = f.queues[i], r.Lease.Token
						ops = append(ops, test.op)
					}
				} else {
					for _, q := range f.queues {
						ops = append(ops, op(test.op, q))
					}
				}
				clock.advance(test.late)
				f.store.Take()
				for _, r := range f.apply(ops...) {
					wantError(t, r.Err, nil)
				}
				rounds := test.rounds
				if queues > 1 && test.many > 0 {
					rounds = test.many
				}
				wantEqual(t, "costs", f.store.Take(), []countkv.Cost{{Reads: test.reads * queues, Rounds: rounds}})
			})
		}
	}
}
