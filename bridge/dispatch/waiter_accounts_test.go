package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// accounts is a Replier that counts what comes out.
type accounts struct {
	mu sync.Mutex

	pushed    map[string]error // by value; nil is durable
	delivered map[string]int
	popped    map[string]bool // plainly, so not to come back
	ends      map[uint64]int
	late      int // calls after the end
	all       sync.WaitGroup
	leases    []fdbpq.Token
}

func (a *accounts) note(r *Request, ops []fdbpq.Op, results []fdbpq.Result, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ends[numberOf(r)] > 0 {
		a.late++
	}
	for i := range results {
		value := string(results[i].Item.Value)
		switch {
		case ops[i].Kind == fdbpq.OpPush:
			a.pushed[string(ops[i].Message.Value)] = results[i].Err
		case results[i].Err != nil:
		case ops[i].Kind == fdbpq.OpPop:
			a.delivered[value]++
			a.popped[value] = true
		case ops[i].Kind == fdbpq.OpLease:
			a.leases = append(a.leases, results[i].Lease.Token)
			if a.popped[value] {
				a.delivered[value]++ // which is once too often
			}
		}
	}
	if ended {
		a.ends[numberOf(r)]++
		a.all.Done()
	}
}

func (a *accounts) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	a.note(r, ops, results, true)
}

func (a *accounts) Deliver(r *Request, ops []fdbpq.Op, results []fdbpq.Result) bool {
	a.note(r, ops, results, false)
	return true
}

func (a *accounts) Heartbeat(r *Request, _ int) { a.note(r, nil, nil, false) }

func (a *accounts) Fail(r *Request, ops []fdbpq.Op, err error) {
	a.mu.Lock()
	for i := range ops {
		if ops[i].Kind == fdbpq.OpPush {
			a.pushed[string(ops[i].Message.Value)] = err
		}
	}
	a.mu.Unlock()
	a.note(r, nil, nil, true)
}

func (a *accounts) lease(random *rand.Rand) (fdbpq.Token, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leases) == 0 {
		return fdbpq.Token{}, false
	}
	return a.leases[random.IntN(len(a.leases))], true
}

// Whatever the store does, each request ends once, and each item comes out once.
func TestAccountsOfWaiters(t *testing.T) {
	rates := map[faultkv.Fault]float64{
		faultkv.Conflict: 0.05, faultkv.TooOld: 0.01, faultkv.Outage: 0.01, faultkv.UnknownLost: 0.02,
		faultkv.UnknownMade: 0.02, faultkv.UnknownBeforeNext: 0.02, faultkv.Delay: 0.01,
	}
	openPebble := func() kv.Database {
		disk := vfs.NewMem()
		race.FillDisk(disk, 0)
		db, err := pebblekv.Open("db", pebblekv.Options{FS: disk, MinFreeSpace: -1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	seed := rand.Uint64()
	for name, open := range map[string]func() kv.Database{
		"mem": func() kv.Database { return memkv.New(memkv.Options{}) },
		"mem with faults": func() kv.Database {
			return faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{Seed: seed, Rates: rates})
		},
		"pebble":             openPebble,
		"pebble with faults": func() kv.Database { return faultkv.New(openPebble(), faultkv.Options{Seed: seed, Rates: rates}) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open()
			testAccounts(t, db, seed)
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("the seed is %d", seed)
			}
		})
	}
}

func testAccounts(t *testing.T, db kv.Database, seed uint64) {
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{
		DB: db, Keyspace: keyspace, Lanes: 2, MaxBatch: 20, MaxBatchBytes: 4 << 20, MaxPending: 1 << 20, MaxPendingBytes: 64 << 20,
		MaxWaiters: 1 << 20, RequestTimeout: time.Second, Warn: func(string, ...any) {}, BatchDone: func(int) {},
	})
	newMoves().watch(t, d)
	stop := run(t, d)
	a := &accounts{pushed: map[string]error{}, delivered: map[string]int{}, popped: map[string]bool{}, ends: map[uint64]int{}}
	var submitting sync.WaitGroup
	const each = 1500
	for s := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, s))
		submitting.Go(func() {
			for n := range uint64(each) {
				a.submit(t, d, random, s*each+n)
			}
		})
	}
	submitting.Wait()
	a.all.Wait()
	stop()
	for n := range uint64(4 * each) {
		if a.ends[n] != 1 {
			t.Errorf("request %d ended %d times", n, a.ends[n])
		}
	}
	if f, ok := db.(*faultkv.DB); ok {
		f.Land()
	}
	if n, _ := d.Pending(); a.late > 0 || n != 0 || d.Waiters() != 0 {
		t.Errorf("%d calls after the end; %d requests and %d waiters are left", a.late, n, d.Waiters())
	}
	a.drain(t, d)
	served := 0
	for value, err := range a.pushed {
		unknown := errors.Is(err, ErrUnknownOutcome)
		if got := a.delivered[value]; got > 1 || got == 0 && err == nil || got > 0 && err != nil && !unknown {
			t.Errorf("%s came out %d times, its push ended with %v", value, got, err)
		}
		served += a.delivered[value]
	}
	t.Logf("%d pushed, %d delivered", len(a.pushed), served)
}

// submit submits a random request.
func (a *accounts) submit(t *testing.T, d *Dispatcher, random *rand.Rand, n uint64) {
	q, err := d.Queue(subjects.Priority, fmt.Sprint("jobs-", random.IntN(4)))
	if err != nil {
		t.Error(err)
		return
	}
	r := &Request{Queue: q, Replier: number(a, n), Received: time.Now(), Size: 10}
	op := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q.Target, End: fdbpq.End(random.IntN(2))}
	wait := &Wait{Until: time.Now().Add(time.Duration(random.Int64N(int64(300 * time.Millisecond)))), Heartbeat: 20 * time.Millisecond}
	wait.OnlyIfEmpty = random.IntN(4) == 0
	var ops []fdbpq.Op
	switch k := random.IntN(12); {
	case k < 6:
		for i := range 1 + random.IntN(3) {
			ops = append(ops, push(q, fmt.Sprint(n, ".", i)))
		}
	case k < 9:
		r.Wait = wait
		ops = pops(op, 1+random.IntN(3))
	case k < 10:
		ops = pops(op, 1+random.IntN(2))
	case k < 11:
		r.Wait = wait
		op.Kind, op.Lease = fdbpq.OpLease, fdbpq.MinLease
		ops = pops(op, 1+random.IntN(2))
	default:
		token, ok := a.lease(random)
		if !ok {
			ops = pops(op, 1)
			break
		}
		// Of some queue: an acknowledgement would lose the item, so it goes back.
		ops = []fdbpq.Op{{Kind: fdbpq.OpNak, Queue: q.Target, Token: token}}
	}
	if random.IntN(50) == 0 {
		d.Wake(q)
	}
	a.all.Add(1)
	if err := d.Submit(r, ops); err != nil {
		t.Error(err)
		a.all.Done()
	}
	if random.IntN(20) == 0 {
		time.Sleep(time.Millisecond) // so that some requests come to an idle lane
	}
}

// drain takes what is left, once all leases are over.
func (a *accounts) drain(t *testing.T, d *Dispatcher) {
	db := d.options.DB
	if f, ok := db.(*faultkv.DB); ok {
		db = f.Database
	}
	batcher := fdbpq.NewBatcher(db, d.options.Keyspace)
	<-time.After(2 * fdbpq.MinLease)
	for i := range 4 {
		q, err := d.Queue(subjects.Priority, fmt.Sprint("jobs-", i))
		if err != nil {
			t.Fatal(err)
		}
		for {
			results, err := batcher.Apply(context.Background(), []fdbpq.Op{pop(q)})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Err != nil {
				break
			}
			a.delivered[string(results[0].Item.Value)]++
		}
	}
}
