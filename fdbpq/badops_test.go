package fdbpq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Operations that a queue does not support, or that ask for what cannot be, are refused with what would be right: alone,
// in a group, and beside others, which are done. Nothing is stored.
func TestBadOps(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("a"), f.fifoQueue("a")
		far := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		const end, state = fdbpq.End(2), fdbpq.ItemState(9)
		var bad []fdbpq.Op
		add := func(target fdbpq.Target, ops ...fdbpq.Op) {
			for _, o := range ops {
				bad = append(bad, op(o, target))
			}
		}
		for _, o := range []fdbpq.Op{
			{Delay: -1}, {Delay: fdbpq.Backoff}, {Delay: fdbpq.MaxDelay + 1}, {Delay: 1, At: time.Now()}, {At: far},
			{TTL: time.Second - 1}, {TTL: -time.Second}, {TTL: fdbpq.MaxTTL + 1},
			{Message: fdbpq.Message{Expires: far}}, {Message: fdbpq.Message{Expires: time.Unix(1, 0)}},
		} {
			o.Kind = fdbpq.OpPush
			add(q, o)
			for i, r := range f.apply(grouped(opPush(q, 1, "a"), op(o, q), opPush(q, 1, "b"))...) {
				if !errors.Is(r.Err, fdbpq.ErrOp) || !strings.Contains(r.Err.Error(), ": want ") {
					f.Errorf("push %d of the group with %+v: %v", i, o, r.Err)
				}
			}
		}
		for _, lease := range []time.Duration{time.Millisecond, 13 * time.Hour, -time.Second} {
			add(q, fdbpq.Op{Kind: fdbpq.OpLease, Lease: lease}, fdbpq.Op{Kind: fdbpq.OpExtend, Lease: lease})
		}
		add(q, fdbpq.Op{Kind: fdbpq.OpNak, Delay: -1}, fdbpq.Op{Kind: fdbpq.OpNak, Delay: fdbpq.MaxDelay + 1})
		for _, kind := range []fdbpq.OpKind{fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek, fdbpq.OpRank} {
			add(q, fdbpq.Op{Kind: kind, End: end})
			add(fifo, fdbpq.Op{Kind: kind, End: fdbpq.Back})
		}
		other := fdbpq.Item{ID: fdbpq.ID{Priority: 3}}
		add(q, fdbpq.Op{Kind: 77}, fdbpq.Op{Kind: fdbpq.OpRedrive, Limit: -1}, fdbpq.Op{Kind: fdbpq.OpConfigure})
		add(fifo, fdbpq.Op{}, fdbpq.Op{Kind: fdbpq.OpMove}, fdbpq.Op{Kind: fdbpq.OpPurge, State: state},
			fdbpq.Op{Kind: fdbpq.OpRestore}, fdbpq.Op{Kind: fdbpq.OpRestore, Item: &other})

		results := f.apply(append(bad, opPush(fifo, 0, "v"), op(opPopMin, fifo))...)
		for i := range bad {
			if !errors.Is(results[i].Err, fdbpq.ErrOp) {
				f.Errorf("operation %+v: %v", bad[i], results[i].Err)
			}
			if !bad[i].Kind.Writes() { // in a transaction that only reads
				wantError(f.T, f.apply(bad[i])[0].Err, fdbpq.ErrOp)
			}
		}
		wantEqual(f.T, "popped beside them", string(results[len(bad)+1].Item.Value), "v")
		wantEqual(f.T, "results of no ops", len(f.apply()), 0)
		wantEqual(f.T, "stored", len(f.stored(f.priority))+len(f.stored(f.fifo)), 0)
	})
}

// Ids and tokens that nobody was given name nothing: with a priority in a FIFO queue, of items that were never leased, and
// such as would hold if fences could be computed.
func TestMadeUpTokens(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		lost := func(what string, q fdbpq.Target, id fdbpq.ID, from int64) {
			f.Helper()
			for fence := from; fence < from+4; fence++ {
				for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm} {
					if r := f.apply(fdbpq.Op{Kind: kind, Queue: q, Token: fdbpq.Token{ID: id, Fence: fence}})[0]; !errors.Is(r.Err, fdbpq.ErrLeaseLost) {
						f.Errorf("%s, fence %d, operation %d: %v", what, fence, kind, r.Err)
					}
				}
			}
		}
		id := f.apply(withDelay(opPush(q, 1, "x"), time.Second))[0].Item.ID
		lost("delayed", q, id, -1)
		clock.advance(time.Second)
		wantEqual(f.T, "ready", f.apply(op(opLen, q))[0].Len, 1)
		lost("never leased", q, id, -1)

		first := f.leaseSome(q, 1, time.Minute)[0]
		lost("leased", q, id, 1)
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: first})[0].Err, nil)
		lost("given back", q, id, first.Fence+1)
		f.leaseSome(q, 1, time.Minute)
		lost("leased again", q, id, first.Fence+1)

		f.apply(opPush(fifo, 0, "leased"))
		token := f.leaseSome(fifo, 1, time.Minute)[0]
		other := token.ID
		other.Priority = 7
		lost("with a priority", fifo, other, token.Fence)
		for _, kind := range []fdbpq.OpKind{fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove} {
			wantError(f.T, f.apply(fdbpq.Op{Kind: kind, Queue: fifo, ID: other})[0].Err, fdbpq.ErrNotFound)
		}
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: fifo, Token: token})[0].Err, nil)
	})
	for _, text := range []string{"", "x", "AA", "====", "\n", (fdbpq.Token{}).String(), (fdbpq.Token{Fence: 1, End: 2}).String()} {
		if _, err := fdbpq.ParseToken(text); !errors.Is(err, fdbpq.ErrToken) {
			t.Errorf("token %q: %v", text, err)
		}
	}
}
