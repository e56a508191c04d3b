package fdbpq_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

var errThere = errors.New("there is one")

// consumer draws an operation on consumers.
func (r *modelRun) consumer() fdbpq.Op {
	value, what := fmt.Sprint("record ", r.random.IntN(3)), r.random.IntN(6)
	if what == 0 {
		return fdbpq.Op{Kind: fdbpq.OpConsumers}
	}
	return fdbpq.Op{Kind: fdbpq.OpSetConsumer, Record: fmt.Sprint("c", r.random.IntN(3)), Change: func(old []byte, _ time.Time) ([]byte, error) {
		switch {
		case what == 1:
			return nil, nil
		case what == 2:
			return []byte(strings.Repeat("x", fdbpq.MaxConsumerValue+1)), nil
		case what == 3 && old != nil:
			return nil, errThere
		case len(old) < 100:
			return append(slices.Clone(old), value...), nil
		}
		return []byte(value), nil
	}}
}

// consumer runs an operation on consumers.
func (b *modelBatch) consumer(o *fdbpq.Op, r *fdbpq.Result) {
	if o.Kind == fdbpq.OpSetConsumer {
		var old []byte
		if value, there := b.consumers[o.Record]; there {
			old = []byte(value)
		}
		value, err := o.Change(old, b.now)
		switch {
		case len(value) > fdbpq.MaxConsumerValue:
			b.wantErr(o, r, fdbpq.ErrOp)
			return
		case !b.wantErr(o, r, err):
			return
		case len(value) == 0:
			delete(b.consumers, o.Record)
			return
		}
		b.counts["set"]++
		b.consumers[o.Record] = string(value)
		return
	}

	b.wantErr(o, r, nil)
	var want []fdbpq.Record
	for _, name := range slices.Sorted(maps.Keys(b.consumers)) {
		want = append(want, fdbpq.Record{Name: name, Value: []byte(b.consumers[name])})
	}
	if fmt.Sprint(r.Records) != fmt.Sprint(want) {
		b.fail(o, r, fmt.Sprintf("%v, not %v", want, r.Records))
	}
}

// removeConsumers removes those that are left.
func (r *modelRun) removeConsumers() {
	for _, q := range r.m.queues {
		for name := range q.consumers {
			r.applyBy(r.main, []modelPart{{q, r.on(q, opSetConsumer(nil, name, ""))}})
		}
	}
}

// wantReady checks how many items are ready after a pop or lease.
func (b *modelBatch) wantReady(n int) {
	o, r := &b.ops[n], &b.results[n]
	want := b.inState(fdbpq.Ready) + int64(len(b.arrived))
	if !o.Count || o.Follows && b.results[n-1].Err != nil {
		want = 0
	} else {
		b.counts["counted"]++
	}
	if r.Ready != want {
		b.fail(o, r, fmt.Sprintf("%d ready items, not %d", want, r.Ready))
	}
}
