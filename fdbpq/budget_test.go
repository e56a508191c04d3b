package fdbpq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// A batch leases what it has room for, and at least one item.
func TestLimitMoved(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.batcher.LimitMoved(25_000) // bytes: two items
		q := f.queue("jobs")

		for range 5 {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(10_000)})
		}

		lease := leaseOf(q, fdbpq.Front)
		results := f.apply(lease, lease, lease)
		wantErrors(t, results, nil, nil, fdbpq.ErrNoRoom)

		text := results[2].Err.Error()
		if errors.Is(results[2].Err, fdbpq.ErrMaxBytes) || strings.Contains(text, "asked") {
			t.Errorf("nobody asked for few bytes: %q", text)
		}

		// A push takes the room of all but the first.
		results = f.apply(lease, lease,
			fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(30_000)})
		wantErrors(t, results, nil, fdbpq.ErrNoRoom, nil)
	})
}

// A batch returns what it has room for, and at least one item, and reads nothing of the rest but
// what shows its size.
func TestLimitReturned(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.batcher.LimitReturned(500_000) // bytes: two items, or the largest alone
		q := f.queue("jobs")

		for range 4 {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: largeMessage(240_000)})
		}

		largest := largeMessage(2_000_000)
		f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 1, Message: largest})
		pop := op(opPopMin, q)
		lease := leaseOf(q, fdbpq.Front)
		peek := fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q, End: fdbpq.Back}

		results := f.apply(pop, lease, pop, lease)
		wantErrors(t, results, nil, nil, fdbpq.ErrNoRoom, fdbpq.ErrNoRoom)

		results = f.apply(pop, peek)
		wantErrors(t, results, nil, fdbpq.ErrNoRoom)

		// One in a transaction that only reads, the other in one that writes.
		for _, alone := range []fdbpq.Op{peek, pop} {
			results = f.apply(alone)
			wantError(t, results[0].Err, nil)
		}

		get := fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: f.apply(peek)[0].Item.ID}
		results = f.apply(get, get)
		wantError(t, results[0].Err, nil)
		wantEqual(t, "bytes", len(results[0].Item.Value), len(largest.Value))
		wantError(t, results[1].Err, fdbpq.ErrNoRoom)

		results = f.apply(pop, pop)
		wantError(t, results[0].Err, nil)
		wantEqual(t, "bytes", len(results[0].Item.Value), len(largest.Value))
		wantError(t, results[1].Err, fdbpq.ErrEmpty)
	})
}

// Items that operations give back or give up keep their values beside more acknowledgements than
// memory has room for.
func TestManyAcknowledgementsKeepOtherValues(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.batcher.LimitReturned(100_000) // as few values at once as there can be
		q := f.queue("jobs")
		const given, acked = 3, 40
		var leases []fdbpq.Op

		for i := range given + acked {
			f.apply(fdbpq.Op{
				Kind:    fdbpq.OpPush,
				Queue:   q,
				Message: fdbpq.Message{Value: fmt.Append(nil, "value ", i)},
			})
			leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		}

		var ops []fdbpq.Op
		for i, result := range f.apply(leases...) {
			wantError(t, result.Err, nil)

			kind := fdbpq.OpAck
			if i < given {
				kind = fdbpq.OpNak
			}

			ops = append(ops,
				fdbpq.Op{Kind: kind, Queue: q, Token: result.Lease.Token, Follows: i > given})
		}
		for _, result := range f.apply(ops...) {
			wantError(t, result.Err, nil)
		}

		for i := range given {
			result := f.apply(op(opPopMin, q))[0]
			wantError(t, result.Err, nil)
			wantEqual(t, "value", string(result.Item.Value), fmt.Sprint("value ", i))
		}
		wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
	})
}

// The bytes of a queue are right after acknowledgements of more leases than are read at once, late
// ones included.
func TestBytesAfterManyAcknowledgements(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for name, later := range map[string]time.Duration{"held": 0, "ready": time.Hour} {
			q, now := f.queue(name), time.Now()
			f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
			var leases, acks []fdbpq.Op

			for i := range 40 {
				f.one(now, fdbpq.Op{
					Kind:    fdbpq.OpPush,
					Queue:   q,
					Message: fdbpq.Message{Value: fmt.Append(nil, "value ", i)},
				})
				leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})
			}

			for i, result := range f.applyAt(now, leases...) {
				wantError(t, result.Err, nil)
				acks = append(acks, fdbpq.Op{
					Kind:    fdbpq.OpAck,
					Queue:   q,
					Token:   result.Lease.Token,
					Follows: i > 0,
				})
			}

			now = now.Add(later)
			f.one(now, op(opLen, q)) // brings back what is due

			// It knows none of the leases, and reads as few values at once as possible.
			other := fdbpq.NewBatcher(f.db, f.Keyspace)
			other.LimitReturned(100_000)

			for _, result := range must(other.Apply(f.ctx, acks)) {
				wantError(t, result.Err, nil)
			}
			f.check() // counts the bytes
		}
	})
}

// sizeStore counts the bytes of values that are read.
type sizeStore struct {
	spy
	bytes int
}

func newSizeStore() *sizeStore {
	s := &sizeStore{spy: spy{Database: memkv.New(memkv.Options{})}}
	s.found = func(pairs ...kv.KeyValue) {
		for _, pair := range pairs {
			s.bytes += len(pair.Value)
		}
	}

	return s
}

// A batch reads only a few times as many bytes as it may return, whatever it asks for, of one
// queue or of many.
func TestReadsAreBounded(t *testing.T) {
	const most, items, size = 400_000, 100, 80_000
	many := func(n int, o fdbpq.Op) []fdbpq.Op {
		return many(n, func(i int) fdbpq.Op {
			o.Follows = i > 0 && o.Kind != fdbpq.OpPeek && o.Kind != fdbpq.OpRank
			return o
		})
	}

	for name, message := range map[string]fdbpq.Message{
		"values":  {Value: make([]byte, size)},
		"headers": {Headers: map[string][]string{"H": {strings.Repeat("h", size)}}},
		"both":    {Value: make([]byte, 3*size), Headers: map[string][]string{"H": {"h"}}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newSizeStore()
			f := newFixture(t, store, fdbpq.RawValues)
			f.batcher.LimitReturned(most)
			q := f.queue("jobs")
			var last fdbpq.ID

			for i := range items {
				push := fdbpq.Op{
					Kind:     fdbpq.OpPush,
					Queue:    q,
					Priority: int64(i / 2),
					Message:  message,
				}

				last = f.apply(push)[0].Item.ID
				push.Queue = f.queue(fmt.Sprintf("queue-%d", i))
				f.apply(push)
			}

			var everywhere []fdbpq.Op
			for i := range items {
				everywhere = append(everywhere, op(opPopMin, f.queue(fmt.Sprintf("queue-%d", i))))
			}

			limited := op(opPopMin, q)
			limited.MaxBytes = 1

			// Each has the bytes that it may read at most. Before sizes are known, that is about 8
			// times as many as fit.
			for _, test := range []struct {
				name  string
				ops   []fdbpq.Op
				least int // of them that are done
				most  int
			}{
				// A rank is done without the item, so all of them are.
				{"peek", many(1, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q}), 1, most},
				{"pop with MaxBytes", many(items, limited), 0, 8 * most},
				{"pops", many(items, op(opPopMin, q)), 1, 10 * most},
				{"leases", many(items, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}), 1, 10 * most},
				{"pops of many queues", everywhere, 1, 15 * most},
				{"rank", many(1, fdbpq.Op{Kind: fdbpq.OpRank, Queue: q, ID: last}), 1, 2 * most},
				{"purge", many(1, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}), 1, 64}, // counters
			} {
				before := store.bytes
				results := f.apply(test.ops...)
				if read := store.bytes - before; read > test.most {
					t.Errorf("%s: %d bytes were read, want at most %d", test.name, read, test.most)
				}

				n := 0
				for i := range results {
					if results[i].Err == nil {
						n++
					} else if !errors.Is(results[i].Err, fdbpq.ErrItemTooLarge) {
						t.Errorf("%s: %v", test.name, results[i].Err)
					}
				}
				if least := test.least; n < least || n > 5 && test.ops[0].Kind != fdbpq.OpRank {
					t.Errorf("%s: %d of %d operations were done", test.name, n, len(test.ops))
				}
			}
		})
	}
}
