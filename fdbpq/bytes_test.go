package fdbpq_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// Whatever happens to items, the bytes of their queue and of its dead-letter queue are counted right; the fixture's
// check compares them with a scan. max_bytes comes and goes, and items are there before it.
func TestBytesRandom(t *testing.T) {
	onEngines(t, func(f *fixture) {
		seed := rand.Uint64()
		f.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		dead := q.DeadLetters()
		uncollected := random.IntN(2) == 0 // staged pops leave entries of what expires, and lose unique keys
		var tokens []fdbpq.Token
		var ids []fdbpq.ID
		var popped []fdbpq.Item
		token := func() (token fdbpq.Token) {
			if len(tokens) > 0 {
				token = tokens[random.IntN(len(tokens))]
			}
			return token
		}
		message := func() (m fdbpq.Message) {
			m.Value = make([]byte, random.IntN(20))
			switch random.IntN(6) {
			case 0:
				m.Value = make([]byte, 200_000)
			case 1:
				m.Headers = map[string][]string{"A": {"\x00b", ""}}
			case 2:
				if !uncollected {
					m.Unique = "key"
				}
			case 3:
				m.MsgID = "id"
			}
			return m
		}
		ops := func() (op fdbpq.Op) {
			op.Queue = q
			switch random.IntN(16) {
			case 0, 1, 2, 3, 4:
				op.Kind, op.Priority, op.Message = fdbpq.OpPush, random.Int64N(3), message()
				if !uncollected && random.IntN(3) == 0 {
					op.TTL = time.Duration(1+random.IntN(20)) * time.Second
				}
				if random.IntN(4) == 0 {
					op.Delay = time.Duration(1+random.IntN(20)) * time.Second
				}
			case 5, 6:
				op.Kind, op.Lease = fdbpq.OpLease, time.Duration(1+random.IntN(10))*time.Second
			case 7:
				op.Kind = fdbpq.OpPop
			case 8:
				op.Kind, op.Token = fdbpq.OpAck, token()
			case 9:
				op.Kind, op.Token, op.Delay, op.Uncounted = fdbpq.OpNak, token(), time.Second*time.Duration(random.IntN(3)), random.IntN(3) == 0
			case 10:
				op.Kind, op.Token = fdbpq.OpTerm, token()
			case 11:
				op.Kind, op.Queue = fdbpq.OpRedrive, dead
			case 12, 13:
				if op.Kind = fdbpq.OpPeek; len(ids) > 0 {
					op.ID, op.Kind, op.Priority = ids[random.IntN(len(ids))], []fdbpq.OpKind{fdbpq.OpRemove, fdbpq.OpMove}[random.IntN(2)], random.Int64N(3)
				}
			case 14:
				if op.Kind = fdbpq.OpPeek; len(popped) > 0 {
					op.Kind, op.Item = fdbpq.OpRestore, &popped[len(popped)-1]
					popped = popped[:len(popped)-1]
				}
			case 15:
				if op.Kind = fdbpq.OpPeek; random.IntN(5) == 0 {
					op.Kind, op.State = fdbpq.OpPurge, fdbpq.ItemState(random.IntN(4))
				}
			}
			return op
		}
		set := func(q fdbpq.Target) {
			most := []int64{0, 1 << 40, 1_000}[random.IntN(3)]
			f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes, s.Discard, s.MaxDeliver = most, fdbpq.DiscardOld, 2 })
		}
		for n := range race.Times(120, 40) {
			clock.advance(time.Duration(random.IntN(2000)) * time.Millisecond)
			switch random.IntN(15) {
			case 0:
				set(q)
			case 1:
				set(dead)
			case 2, 3: // staged pops that nobody collects
				if !uncollected {
					break
				}
				f.leave(q, clock.now(), fdbpq.Front)
			default:
				list := []fdbpq.Op{ops(), ops()}
				for i, r := range f.apply(list...) {
					switch kind := list[i].Kind; {
					case errors.Is(r.Err, fdbpq.ErrOp), errors.Is(r.Err, fdbpq.ErrCorrupt):
						f.Fatalf("seed %d: %+v: %v", seed, list[i], r.Err)
					case r.Err != nil:
					case kind == fdbpq.OpLease:
						tokens = append(tokens, r.Lease.Token)
					case kind == fdbpq.OpPop:
						popped = append(popped, r.Item)
					case kind == fdbpq.OpPush || kind == fdbpq.OpMove:
						ids = append(ids, r.Item.ID)
					}
				}
			}
			if n%10 == 0 {
				f.check()
			}
			if f.Failed() {
				f.Fatalf("seed %d, step %d", seed, n)
			}
		}
	})
}

// Staged pops that are collected are counted, and so are those that are counted first while they wait for that.
func TestBytesOfStagedPops(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
	const workers, each = 4, 40
	for range workers * each {
		f.push(q, 1, "12345")
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			p := staged.New(f.db, q)
			for range each {
				if _, err := p.PopMin(f.ctx); err != nil {
					f.Error(err)
				}
			}
		})
	}
	for range 20 {
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
		f.check()
	}
	wg.Wait()
	f.check()
}

// What leaves and comes while a large queue is counted is counted once.
func TestBytesWhileCounting(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		var ops []fdbpq.Op
		for i := range 6000 {
			ops = append(ops, opPush(q, int64(i%3), "12345"))
			if len(ops) == 2000 {
				f.apply(ops...)
				ops = nil
			}
		}
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes, s.MaxDeliver = 1<<30, 1 })
		done := make(chan error, 1)
		go func() {
			b := fdbpq.NewBatcher(f.db, f.Keyspace)
			_, err := b.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "x")})
			done <- err
		}()
		for running := true; running; {
			r := f.apply(op(opPopMin, q), op(opPopMax, q), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
			f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r[2].Lease.Token},
				fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: q.DeadLetters()}, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &r[1].Item})
			select {
			case err := <-done:
				if err != nil && !kv.MaybeCommitted(err) {
					f.Error(err)
				}
				running = false
			default:
			}
		}
	})
}

// Whoever counts items conflicts with whoever takes one that does not count yet, in whichever order they commit.
func TestCountingConflicts(t *testing.T) {
	for _, countsFirst := range []bool{false, true} {
		f := onMem(t)
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c")
		var txs [2]kv.Transaction
		for i := range txs {
			var err error
			if txs[i], err = f.db.Begin(f.ctx, kv.BeginOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		count, take := txs[0], txs[1]
		if _, err := q.Configure(count, func(s *fdbpq.Settings) { s.MaxBytes = 100 }); err != nil {
			t.Fatal(err)
		}
		if _, err := q.PopMin(take); err != nil {
			t.Fatal(err)
		}
		first, second := take, count
		if countsFirst {
			first, second = count, take
		}
		if _, err := first.Commit().Get(); err != nil {
			t.Fatal(err)
		}
		if _, err := second.Commit().Get(); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("counts first: %v: %v", countsFirst, err)
		}
		f.check()
	}
}
