package fdbpq_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// mustUnderstand is the flag of an item with a property that a version has to understand.
const mustUnderstand = 0x20

// newer adds an item as a newer version would, with a property that this one does not know, in a
// state other than Done. A leased one has the fence 1.
func (f *fixture) newer(q fdbpq.Target, in fdbpq.ItemState, m fdbpq.Message) fdbpq.ID {
	f.Helper()
	now, l := time.Now(), q.Layout()
	m.Headers = map[string][]string{"A": {"b"}}
	id := codec.NewID(0, 5, now, codec.UniqueBytes(1), l.Flags(&m))
	id.Random[10] |= mustUnderstand
	write(f, func(tx kv.Transaction) {
		g := state.NewLedger(tx, l, now, nil)
		g.AddToList()
		switch value := g.AddRest(&id, &m); in {
		case fdbpq.Ready:
			g.Attach(&id, value)
			g.SetExpiry(&id, codec.LastingOf(&m))
		case fdbpq.Delayed:
			g.Hold(codec.NewDelayed(&id, &m, now.Add(time.Hour), value))
		case fdbpq.Leased:
			h := codec.NewDelayed(&id, &m, now.Add(time.Hour), value)
			h.State, h.Deliveries, h.Fence, h.Wait = fdbpq.Leased, 1, 1, time.Hour
			g.Hold(h)
		}
		wantError(f.T, g.Flush(), nil)
		tx.Set(l.MetaKey(&id, 0), withNewProperty(must(tx.Get(l.MetaKey(&id, 0)).Get())))
	})
	return id
}

// withNewProperty returns the first ("m") key of an item with a property that no version has.
func withNewProperty(blob []byte) []byte {
	n, used := binary.Uvarint(blob)
	head := must(tuple.Unpack(blob[used : used+int(n)]))
	head[1] = append(head[1].(tuple.Tuple), "new", int64(1))
	packed := head.Pack()
	return slices.Concat(binary.AppendUvarint(nil, uint64(len(packed))), packed, blob[used+int(n):])
}

// A version that does not understand a property of an item neither serves nor ends it: every
// operation that would fails, and leaves it as it is. A lease of it may end, and a purge removes
// it.
func TestPropertyThatMustBeUnderstood(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		token := func(id fdbpq.ID) fdbpq.Token { return fdbpq.Token{ID: id, Fence: 1} }
		for n, test := range []struct {
			in  fdbpq.ItemState
			ops func(q fdbpq.Target, id fdbpq.ID) []fdbpq.Op
		}{
			{fdbpq.Ready, func(q fdbpq.Target, id fdbpq.ID) []fdbpq.Op {
				return []fdbpq.Op{
					op(opPopMin, q), {Kind: fdbpq.OpPeek, Queue: q},
					{Kind: fdbpq.OpLease, Queue: q},
					named(fdbpq.OpGet, q, id), named(fdbpq.OpRemove, q, id),
					named(fdbpq.OpMove, q, id), named(fdbpq.OpRedriveItem, q, id),
					named(fdbpq.OpRelease, q, id),
				}
			}},
			{fdbpq.Delayed, func(q fdbpq.Target, id fdbpq.ID) []fdbpq.Op {
				return []fdbpq.Op{
					named(fdbpq.OpGet, q, id), named(fdbpq.OpRemove, q, id),
					named(fdbpq.OpMove, q, id), named(fdbpq.OpRedriveItem, q, id),
				}
			}},
			{fdbpq.Leased, func(q fdbpq.Target, id fdbpq.ID) []fdbpq.Op {
				return []fdbpq.Op{
					ackWith(q, token(id), "result"),
					{Kind: fdbpq.OpAck, Queue: q, Token: token(id)},
					{Kind: fdbpq.OpNak, Queue: q, Token: token(id)},
					{Kind: fdbpq.OpTerm, Queue: q, Token: token(id)},
					named(fdbpq.OpGet, q, id), named(fdbpq.OpRemove, q, id),
					named(fdbpq.OpRelease, q, id),
				}
			}},
		} {
			for k, m := range []fdbpq.Message{
				{Value: []byte("a")}, {Value: pattern(200_000, 1)}, {Keep: time.Hour},
				{Expires: codec.Micros(time.Now().Add(90 * time.Minute))},
			} {
				q := f.queue(fmt.Sprint("jobs-", n, k))
				id := f.newer(q, test.in, m)
				for _, o := range test.ops(q, id) {
					if err := f.apply(o)[0].Err; !errors.Is(err, fdbpq.ErrCorrupt) {
						f.Errorf("%v of an item that is %v: %v", o.Kind, test.in, err)
					}
				}

				// The next pop finds what is due.
				after := time.Now().Add(2 * time.Hour)
				r := f.one(after, op(opPopMin, q))
				if test.in == fdbpq.Ready && !errors.Is(r.Err, fdbpq.ErrCorrupt) || r.Err == nil {
					f.Errorf("pop after an item that is %v: %v", test.in, r.Err)
				}
				f.one(after, fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q})
				f.wantNewer(q, id, test.in)
				f.wantPurged(q)
			}
		}
	})
}

// wantNewer checks that an item is where it was, that walks say why they do not show it, and that a
// staged pop does not take it.
func (f *fixture) wantNewer(q *fdbpq.PriorityQueue, id fdbpq.ID, in fdbpq.ItemState) {
	f.Helper()
	items, _ := f.walk(fdbpq.Browse{}, q, time.Now())
	items = append(items, *readItems(f, q, id)[0])
	for _, item := range items {
		if item.ID != id || item.Value != nil || !errors.Is(item.Err, fdbpq.ErrCorrupt) {
			f.Errorf("browsed %+v, want the item without its value", item)
		}
	}
	wantEqual(f.T, "items", len(items), 2)

	info := f.infoOf(q, 0)
	if got := info.Ready + info.Delayed + info.Leased; got != 1 {
		f.Errorf("%d items that are %v were counted, want 1", got, in)
	}
	if in == fdbpq.Ready {
		_, err := staged.New(f.db, q).PopMin(f.ctx)
		wantError(f.T, err, fdbpq.ErrCorrupt)
	}
}

// wantPurged purges a queue, and checks that nothing is left.
func (f *fixture) wantPurged(q fdbpq.Target) {
	f.Helper()
	wantEqual(f.T, "purged", f.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}).Len, 1)
	items, _ := f.walk(fdbpq.Browse{}, q, time.Now())
	wantEqual(f.T, "left", len(items), 0)
}

// An item that must be understood makes no room for others.
func TestItemThatMustBeUnderstoodStays(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		id := f.newer(q, fdbpq.Ready, fdbpq.Message{})
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 1, fdbpq.DiscardOld })

		for _, o := range []fdbpq.Op{
			opPush(q, 0, "needs room"), {Kind: fdbpq.OpLen, Queue: q},
			{Kind: fdbpq.OpSweep, Queue: q}, op(opPopMin, q),
		} {
			r := f.one(time.Now().Add(time.Hour), o)
			if o.Kind != fdbpq.OpLen && o.Kind != fdbpq.OpSweep {
				wantError(f.T, r.Err, fdbpq.ErrCorrupt)
			}
		}

		f.wantNewer(q, id, fdbpq.Ready)
		f.wantPurged(q)
	})
}
