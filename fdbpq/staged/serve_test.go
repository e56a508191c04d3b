package staged

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Requests are served in order, each from its own end. Those without an item stay in line until the
// queue is empty.
func TestServeInOrder(t *testing.T) {
	f := onMem(t)
	f.fill("a", "b", "c")
	f.registerAbandoned(fdbpq.Back, fdbpq.Front, fdbpq.Back, fdbpq.Back, fdbpq.Front)

	f.serve() // three of the five get an item
	f.wantStored(stored{requests: 2, answers: 3, values: 3})
	wantEqual(t, "ends", f.stored().ends, []fdbpq.End{fdbpq.Back, fdbpq.Front})

	f.push(7, "d")
	f.serve() // the fourth gets it
	f.wantStored(stored{requests: 1, answers: 4, values: 4})

	f.serve() // the fifth is told that there is none
	f.wantStored(stored{answers: 5, values: 4})

	f.serve() // nobody is in line any more
	f.wantStored(stored{answers: 5, values: 4})
	wantEqual(t, "length", f.length(), 0)
}

// A long line is served in pieces, and so is a line for values that do not fit into one
// transaction, whatever their bytes.
func TestServeInPieces(t *testing.T) {
	for name, test := range map[string]struct {
		value  string
		line   int // requests, each with an item
		served int // by the first transaction
	}{
		"many": {value: "short", line: serveLimit + 10, served: serveLimit},
		// A value longer than a chunk moves to its answer one chunk long; the rest stays in place.
		"long": {
			value:  strings.Repeat("\x00", 100_000),
			line:   20,
			served: serveBytes/codec.ChunkSize + 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			for range test.line {
				f.push(0, test.value)
				f.registerAbandoned(fdbpq.Front)
			}

			f.serve()
			f.wantStored(stored{
				requests: test.line - test.served,
				answers:  test.served,
				values:   test.served,
			})

			for range 2 {
				f.serve()
			}
			f.wantStored(stored{answers: test.line, values: test.line})

			f.clock.advance(answerLife)
			p := f.popper()
			for range test.line {
				f.wantPop(p.PopMin, test.value)
			}
			f.wantEmpty(p)
			f.wantStored(stored{claims: 1})
		})
	}
}

// Any pop removes what dead Poppers left behind, even if that is more than one transaction handles.
func TestLeftoversAreRemoved(t *testing.T) {
	f := onMem(t)
	const n = due.Page + 50

	for i := range n {
		f.push(0, fmt.Sprint(i))
		f.wantPop(f.popper().PopMin, fmt.Sprint(i))
	}

	for range n {
		f.registerAbandoned(fdbpq.Back)
	}

	f.serve()
	f.serve() // all of them are told "empty"
	f.wantStored(stored{answers: n, claims: n})

	f.clock.advance(claimLife + time.Microsecond)
	f.wantEmpty(f.popper())
	f.wantStored(stored{})
}

// An item given to a pop whose owner is gone returns to its old place, and is counted once.
func TestItemsOfTheDeadComeBack(t *testing.T) {
	onEngines(t, func(f *fixture) {
		p := f.popper()
		f.fill("a", "b", "c", "d")
		f.registerAbandoned(fdbpq.Front, fdbpq.Back)
		f.serve()

		f.wantStored(stored{answers: 2, values: 2})
		wantEqual(f.T, "length", f.length(), 2)
		f.wantPop(p.PopMin, "b")

		f.clock.advance(answerLife - 1)
		f.wantPop(p.PopMin, "c")
		f.wantEmpty(p)

		f.clock.advance(time.Microsecond)
		f.wantPop(p.PopMin, "a")
		f.wantStored(stored{claims: 1})
		f.wantValues("without a Popper", "d")
	})
}

// Expired requests are removed, and get nothing.
func TestExpiredRequests(t *testing.T) {
	f := onMem(t)
	f.fill("a", "b", "c")
	f.registerAbandoned(fdbpq.Front, fdbpq.Front)
	f.clock.advance(requestLife + time.Microsecond)
	f.registerAbandoned(fdbpq.Back)
	f.serve()

	f.wantStored(stored{answers: 1, values: 1})
	f.wantValues("what is left", "a", "b")
}

// More falls due than one transaction handles, and the first of it is held back for longer. Pops
// still find the rest, in line or not.
func TestFindsWhatIsDueLate(t *testing.T) {
	for _, inLine := range []bool{false, true} {
		t.Run(fmt.Sprint("line=", inLine), func(t *testing.T) {
			f := onMem(t)
			f.apply(fdbpq.Op{
				Kind:      fdbpq.OpConfigure,
				Configure: func(s *fdbpq.Settings) { s.Backoff = []time.Duration{time.Hour} },
			})

			lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
			var pushes, leases []fdbpq.Op

			for range 3 * due.Page {
				pushes, leases = append(pushes, push(1, "stays")), append(leases, lease)
			}

			f.apply(pushes...)
			f.apply(leases...)
			f.push(1, "late")
			token := f.apply(lease)[0].Lease.Token
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Token: token, Delay: time.Minute})
			f.clock.advance(2 * time.Minute)

			if inLine {
				f.registerAbandoned(fdbpq.Front)
				for range 4 { // enough to get past all pages of what is due
					f.serve()
				}
				f.wantStored(stored{answers: 1, values: 1})

				return
			}

			p := f.popper()
			f.wantPop(p.PopMin, "late")
			f.wantEmpty(p)
		})
	}
}

// giveAway pushes an item with a unique key, headers and a history, and gives it to a staged pop
// that never collects it. It returns the push, and the token of a lease that is over.
func (f *fixture) giveAway(value string, ttl time.Duration) (pushed fdbpq.Op, old fdbpq.Token) {
	pushed = push(0, value)
	pushed.Message.Unique, pushed.TTL = "k", ttl
	pushed.Message.Headers = map[string][]string{"A": {"1", "2"}, "B": {""}}
	f.apply(pushed)
	old = f.apply(fdbpq.Op{Kind: fdbpq.OpLease})[0].Lease.Token
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Token: old}) // so that it has a history
	f.registerAbandoned(fdbpq.Front)
	f.serve()

	f.check()
	wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Token: old})[0].Err, fdbpq.ErrLeaseLost)

	return pushed, old
}

// An item that expires while a staged pop holds it, and that nobody collects, is gone with its
// unique key once it comes back, even if its entry of the time index was found and removed before.
func TestItemExpires(t *testing.T) {
	// Before each look the clock moves on by so much. The item expires after a second, and comes
	// back before claimLife is over.
	for name, looks := range map[string][]time.Duration{
		"both at once": {claimLife},
		"one by one":   {time.Second, claimLife},
		"early":        {0, claimLife, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				pushed, _ := f.giveAway("v", time.Second)
				for _, d := range looks {
					f.clock.advance(d)
					wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPeek})[0].Err, fdbpq.ErrEmpty)
					f.check()
				}
				wantEqual(f.T, "duplicate", f.apply(pushed)[0].Duplicate, false)
			})
		})
	}
}

// An item that comes back from a staged pop before it expires still expires in time, even if a
// bridge whose clock is ahead has removed its entry of the time index.
func TestItemExpiresLater(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.giveAway("v", 2*claimLife)
		f.write(func(tx kv.Transaction) {
			entries := must(tx.GetRange(f.q.Layout().KindRange("t"), kv.RangeOptions{}).Get())
			for _, pair := range entries {
				if bytes.Contains(pair.Key, []byte("\x02x\x00")) {
					tx.Clear(pair.Key)
				}
			}
			wantEqual(f.T, "entries", len(entries), 2)
		})

		length := fdbpq.Op{Kind: fdbpq.OpLen}
		f.clock.advance(claimLife)
		wantEqual(f.T, "length", f.apply(length)[0].Len, 1)
		f.check()

		f.clock.advance(claimLife)
		wantEqual(f.T, "length", f.apply(length)[0].Len, 0)
	})
}

// An item that comes back from a staged pop keeps its history, and its unique key unless another
// item has it by then.
func TestItemWithUniqueKey(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again=", again), func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				const size = 300_000 // more than one key holds
				pushed, old := f.giveAway(strings.Repeat("v", size), 0)
				holder := old.ID
				if again {
					second := f.apply(pushed)[0]
					wantEqual(f.T, "duplicate while it is out", second.Duplicate, false)
					holder = second.Item.ID
				}

				f.clock.advance(claimLife)
				f.apply(fdbpq.Op{Kind: fdbpq.OpLen})
				f.check()

				third := f.apply(pushed)[0]
				wantEqual(f.T, "duplicate", third.Duplicate, true)
				wantEqual(f.T, "of", third.Item.ID, holder)

				got := f.apply(fdbpq.Op{Kind: fdbpq.OpGet, ID: old.ID})[0]
				wantEqual(f.T, "headers", got.Item.Headers, pushed.Message.Headers)

				if got.State != fdbpq.Ready || len(got.Item.Value) != size ||
					(got.Item.Unique == "") != again {
					f.Errorf("it came back %v with the key %q and %d bytes",
						got.State, got.Item.Unique, len(got.Item.Value))
				}

				leased := 0
				lease := fdbpq.Op{Kind: fdbpq.OpLease}

				for _, r := range f.apply(lease, lease) {
					if r.Lease.Token.ID == old.ID && r.Lease.Token.Fence > old.Fence &&
						r.Lease.Deliveries == 2 {
						leased++
					}
				}
				wantEqual(f.T, "leases with the history", leased, 1)
			})
		})
	}
}

// Whatever the keys of staged pops hold, serving the line and collecting an answer succeed, or
// return ErrEmpty or ErrCorrupt.
func FuzzServe(f *testing.F) {
	q := fdbpq.NewPriorityQueue(tuple.NewSubspace(tuple.Tuple{"q"}), fdbpq.RawValues)
	l, now := q.Layout(), time.Unix(1_790_000_000, 0)
	own := newRequest(l, fdbpq.Front, now)
	id := codec.NewID(1, 0, now, codec.UniqueBytes(1), 0)
	suffix := func(key []byte) []byte { return key[len(l.Key("i", 0)):] }
	request := codec.EncodeRequest(fdbpq.Back, now)
	answer := (&codec.Answer{Deadline: now, Item: &id}).Encode()
	f.Add(suffix(l.ItemKey(&id)), []byte("value"), suffix(l.RequestKey(1, own.id)), request, answer)
	f.Add([]byte("?"), []byte("value"), suffix(l.RequestKey(1, own.id)), request[:3], answer[:9])
	f.Add(suffix(l.ItemKey(&id)), []byte("value"), []byte("?"), request, []byte{})

	f.Fuzz(func(t *testing.T, item, value, place, request, answer []byte) {
		db := openMem(t)
		tx := must(db.Begin(t.Context(), kv.BeginOptions{}))
		defer db.Close()
		defer tx.Cancel()

		for kind, pair := range map[string][2][]byte{
			codec.KindItem:    {item, value},
			codec.KindRequest: {place, request},
		} {
			key := append(l.Key(kind, 0), pair[0]...)
			if len(key) <= kv.MaxKeySize && len(pair[1]) <= kv.MaxValueSize {
				tx.Set(key, pair[1])
			}
		}

		own := newRequest(l, fdbpq.Front, now)
		_, err := serve(tx, own, true, now)
		wantError(t, codec.UnlessCorrupt(err), nil)

		_, err = own.collect(tx, answer, now)
		wantError(t, codec.UnlessCorrupt(err), nil)
	})
}

// A large item that has used up its deliveries, and moves to the dead letters, does not keep the
// requests in line waiting: they are told that the queue is empty.
func TestLargeDeadLetter(t *testing.T) {
	f := onMem(t)
	f.apply(
		fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 }})
	f.push(0, strings.Repeat("v", 600_000))
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}) // the only delivery
	f.clock.advance(2 * time.Second)
	f.registerAbandoned(fdbpq.Front)

	for range 3 {
		f.serve()
	}
	f.wantStored(stored{answers: 1})
}
