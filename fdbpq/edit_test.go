package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A release ends a lease as if the item had not been delivered, and kills the token.
func TestRelease(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxLeased = 1 }})
		id := f.push(q, 1, "a")
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
		release := fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id}
		wantError(f.T, f.applyAt(now, release)[0].Err, fdbpq.ErrNotLeased)
		wantError(f.T, errOf(do(f, func(tx kv.Transaction) (int, error) { return 0, q.Release(tx, id) })), fdbpq.ErrNotLeased)

		// The second lease follows in the same transaction.
		first := f.applyAt(now, lease)[0]
		results := f.applyAt(now, release, lease)
		wantError(f.T, results[0].Err, nil)
		wantEqual(f.T, "freed", results[0].Freed, true)
		second := results[1]
		wantEqual(f.T, "item and deliveries", fmt.Sprint(second.Item.ID == id, second.Lease.Deliveries), "true 1")
		wantError(f.T, f.applyAt(now, acks(q, first.Lease.Token)...)[0].Err, fdbpq.ErrLeaseLost)
		wantError(f.T, f.applyAt(now, acks(q, second.Lease.Token)...)[0].Err, nil)
		wantError(f.T, f.applyAt(now, release)[0].Err, fdbpq.ErrNotFound)

		push := withTTL(opPush(q, 1, "b"), time.Minute)
		release.ID = f.applyAt(now, push)[0].Item.ID
		f.applyAt(now, lease)
		wantError(f.T, f.applyAt(now.Add(2*time.Minute), release)[0].Err, fdbpq.ErrNotFound)
		wantEqual(f.T, "items of any state", f.check().Items, 0)
	})
}

// A release may write the first history of a queue. What comes after it in its transaction knows that.
func TestPurgeAfterRelease(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		id := f.push(q, 1, "a")
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id}, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		wantEqual(f.T, "histories", len(f.stored(f.priority)), 0)
	})
}

// A release and an acknowledgement at the same time: exactly one of them has the item.
func TestReleaseRacesAck(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		other := fdbpq.NewBatcher(f.db, f.Keyspace)
		for range f.steps(60) {
			id := f.push(q, 1, "a")
			token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
			var released, acked fdbpq.Result
			var wg sync.WaitGroup
			wg.Go(func() { released = f.apply(fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id})[0] })
			wg.Go(func() { acked = must(other.Apply(f.ctx, acks(q, token)))[0] })
			wg.Wait()

			won := released.Err == nil && errors.Is(acked.Err, fdbpq.ErrLeaseLost)
			lost := acked.Err == nil && errors.Is(released.Err, fdbpq.ErrNotFound)
			if won == lost {
				f.Fatalf("release: %v; ack: %v", released.Err, acked.Err)
			}
			wantEqual(f.T, "left", len(f.values(q.PopMin)) == 1, won)
		}
	})
}

// One dead letter goes home, whichever state but leased it is in; the others stay.
func TestRedriveItem(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		dead := q.DeadLetters()
		for i := range 3 {
			push := opPush(q, int64(i), fmt.Sprint("value ", i))
			push.Message.Headers = map[string][]string{"Keep": {"a"}, "Drop": {"b"}}
			f.applyAt(now, push)
			r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
			wantError(f.T, f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r.Lease.Token})[0].Err, nil)
		}
		plain := f.applyAt(now, opPush(dead, 9, "no dead letter"))[0].Item.ID
		letters, _ := f.walk(fdbpq.Browse{MaxItems: 3}, dead, now)

		// The first is delayed, the second leased.
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: dead, Lease: time.Hour}
		r := f.applyAt(now, lease)[0]
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: dead, Token: r.Lease.Token, Delay: time.Hour})
		f.applyAt(now, lease)

		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.TTL = time.Minute }})
		var ops []fdbpq.Op
		for _, id := range append(idsOf(letters), plain, letters[0].ID) {
			drop := func(name string) bool { return name == "Drop" }
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead, ID: id, DropHeader: drop})
		}
		results := f.applyAt(now, ops...)
		for i, want := range []error{nil, fdbpq.ErrLeased, nil, fdbpq.ErrNotDeadLetter, fdbpq.ErrNotFound} {
			wantError(f.T, results[i].Err, want)
			if want == nil {
				wantEqual(f.T, "home", results[i].Home, "jobs")
			}
		}
		home, _ := f.walk(fdbpq.Browse{}, q, now)
		wantEqual(f.T, "new ids", fmt.Sprint(idsOf(home)), fmt.Sprint([]fdbpq.ID{results[0].Item.ID, results[2].Item.ID}))
		for i, want := range []string{"value 0", "value 2"} {
			got := home[i]
			wantEqual(f.T, "expiry", got.Expires.UnixMicro(), now.Add(time.Minute).UnixMicro())
			wantEqual(f.T, "what came home", fmt.Sprint(string(got.Value), got.Headers, got.State, got.Deliveries, got.DeadLetter), fmt.Sprint(want, map[string][]string{"Keep": {"a"}}, fdbpq.Ready, 0, (*fdbpq.DeadLetter)(nil)))
		}
		wantEqual(f.T, "dead letters", f.length(dead), 1)
	})
}

// Of two transactions that send the same dead letter home, one finds it gone.
func TestRedriveItemConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "a")
	token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
	f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token})
	letters, _ := f.walk(fdbpq.Browse{}, q.DeadLetters(), time.Now())
	redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: q.DeadLetters(), ID: letters[0].ID}

	first, second := must(f.db.Begin(f.ctx, kv.BeginOptions{})), must(f.db.Begin(f.ctx, kv.BeginOptions{}))
	for _, tx := range []kv.Transaction{first, second} {
		wantError(t, must(fdbpq.Apply(tx, []fdbpq.Op{redrive}, time.Now()))[0].Err, nil)
	}
	wantError(t, errOf(first.Commit().Get()), nil)
	wantError(t, errOf(second.Commit().Get()), kv.ErrConflict)
	wantError(t, f.apply(redrive)[0].Err, fdbpq.ErrNotFound)
	wantError(t, errOf(do(f, func(tx kv.Transaction) (fdbpq.ID, error) { return q.DeadLetters().RedriveItem(tx, redrive.ID) })), fdbpq.ErrNotFound)
	wantList(t, "items", f.values(q.PopMin), "a")
}

// countedReads counts the keys that read transactions return.
type countedReads struct {
	kv.Database
	keys int
}

func (c *countedReads) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := c.Database.BeginRead(ctx)
	return countedTransaction{tx, c}, err
}

type countedTransaction struct {
	kv.ReadTransaction
	counted *countedReads
}

func (tx countedTransaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	future := tx.ReadTransaction.GetRange(r, o)
	pairs, _ := future.Get()
	tx.counted.keys += len(pairs)
	return future
}

func (tx countedTransaction) Get(key []byte) kv.Future[[]byte] {
	tx.counted.keys++
	return tx.ReadTransaction.Get(key)
}

// To browse few items of a state among very many of another does not read those.
func TestBrowseReadsLittle(t *testing.T) {
	const few, many = 300, 9000
	f := onMem(t)
	now := time.Now()
	for _, state := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed} {
		q := f.queue(state.String())
		var ops []fdbpq.Op
		for i := range few + many {
			o := opPush(q, 1, "v")
			o.Message.Headers = map[string][]string{"A": {"b"}}
			if (i%(1+many/few) == 0) == (state == fdbpq.Delayed) {
				o.Delay = time.Hour
			}
			ops = append(ops, o)
		}
		for len(ops) > 0 {
			n := min(len(ops), 2000)
			f.applyAt(now, ops[:n]...)
			ops = ops[n:]
		}

		for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
			counted := &countedReads{Database: f.db}
			n := 0
			_, err := (&fdbpq.Browse{State: state, End: end}).Walk(f.ctx, counted, q, now, func(*fdbpq.Browsed) bool { n++; return true })
			wantError(t, err, nil)
			if n != few || counted.keys > 8*few {
				t.Errorf("%v from %d: %d items, and %d keys read", state, end, n, counted.keys)
			}
			t.Logf("%v from %d: %d items, and %d keys read", state, end, n, counted.keys)

			counted.keys, n = 0, 0
			_, err = (&fdbpq.Browse{End: end}).Walk(f.ctx, counted, q, now, func(*fdbpq.Browsed) bool { n++; return true })
			wantError(t, err, nil)
			if n != few+many || counted.keys > 3*n { // two keys each
				t.Errorf("all from %d: %d items, and %d keys read", end, n, counted.keys)
			}
			t.Logf("all from %d: %d items, and %d keys read", end, n, counted.keys)
		}
	}
}
