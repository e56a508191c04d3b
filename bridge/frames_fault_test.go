package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A batch whose outcome the store does not tell is answered as such, and is there as a whole
// or not at all.
func TestPushBatchOfUnknownOutcome(t *testing.T) {
	for _, fault := range []faultkv.Fault{faultkv.UnknownMade, faultkv.UnknownLost} {
		t.Run(fault.String(), func(t *testing.T) {
			e, faults, gate := newUnsureEnv(t)
			push(t, e, "pq.jobs.push", nil, "first")
			gate.arm()
			faults.Next(fault)
			err := refused(t, e, 503, "pq.jobs.push.batch", nil, []byte(frames(frame(1, "", "a"), frame(2, "", "b"), frame(3, "", "c"))))
			if !err.Unknown {
				t.Errorf("%v: not unknown", err)
			}
			gate.disarm()
			want := int64(4)
			if fault == faultkv.UnknownLost {
				want = 1
			}
			wantQueued(t, e, want)
			consistent(t, e)
		})
	}
}

// Under faults that leave outcomes unknown, each batch is there once or not at all, and is
// there if it was acknowledged.
func TestPushBatchesUnderFaults(t *testing.T) {
	const seed = 20261121
	var faults *faultkv.DB
	e := testenv.New(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
		faults = faultkv.New(db, faultkv.Options{Seed: seed, Rates: map[faultkv.Fault]float64{
			faultkv.UnknownMade: 0.1, faultkv.UnknownLost: 0.1, faultkv.UnknownBeforeNext: 0.05, faultkv.Conflict: 0.1,
		}})
		return faults
	}})
	const workers, each, size = 8, 20, 10
	var clients sync.WaitGroup
	var acknowledged sync.Map
	for w := range workers {
		clients.Go(func() {
			for n := range each {
				batch := fmt.Sprintf("%d-%d", w, n)
				var list []subjects.Frame
				for i := range size {
					list = append(list, frame(int64(i%3), "", batch))
				}
				reply, err := e.Conn.Request("pq.jobs.push.batch", []byte(frames(list...)), testenv.Patience)
				if err != nil {
					t.Error(err)
				} else if bridge.ErrorFromHeaders(reply.Header) == nil {
					acknowledged.Store(batch, true)
				}
				if _, err := e.Conn.Request("pq.other.pop.min", nil, testenv.Patience); err != nil { // mixed into the batches
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	faults.Land()
	if err := e.Bridge.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q"); err != nil {
		t.Fatal(err)
	}
	q, err := e.Keyspace.PriorityQueue("jobs")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	for {
		item, err := kv.Transact(t.Context(), e.DB, q.PopMin)
		if errors.Is(err, fdbpq.ErrEmpty) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		there[string(item.Value)]++
	}
	for batch, n := range there {
		if n != size {
			t.Errorf("seed %d: %d of %d items of batch %s are there", seed, n, size, batch)
		}
	}
	acknowledged.Range(func(batch, _ any) bool {
		if there[batch.(string)] == 0 {
			t.Errorf("seed %d: batch %s was acknowledged and is gone", seed, batch)
		}
		return true
	})
}

// Batches through two bridges, whole and in order, among pops.
func TestPushBatchesOfTwoBridges(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	second := e.StartBridge()
	second.WaitReady()
	const workers, each, size = 4, 25, 8
	var clients sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for w := range workers {
		clients.Go(func() {
			nc := e.Conn
			for n := range each {
				var list []subjects.Frame
				for i := range size {
					list = append(list, frame(int64(size-i), "", fmt.Sprintf("%d-%d-%d", w, n, i)))
				}
				reply, err := nc.Request("pq.jobs.push.batch", []byte(frames(list...)), testenv.Patience)
				if err == nil {
					err = bridge.ErrorFromHeaders(reply.Header)
				}
				if err != nil {
					t.Error(err)
					return
				}
				for range size {
					reply, err := nc.Request("pq.jobs.pop.min", nil, testenv.Patience)
					if err == nil {
						err = bridge.ErrorFromHeaders(reply.Header)
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got[string(reply.Data)]++
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	if len(got) != workers*each*size {
		t.Errorf("%d different items: want %d", len(got), workers*each*size)
	}
	wantQueued(t, e, 0)
	for _, b := range []*testenv.Bridge{e.Bridge, second} {
		if n, err := metric(b, `pq_requests_total{operation="push-batch"}`); err != nil || n == 0 {
			t.Errorf("a bridge had %v batches: %v", n, err)
		}
	}
}

// A batch without a reply subject is pushed, and a len behind it counts it. If it fails, that
// is counted.
func TestPushBatchWithoutReply(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for n := range 20 {
		publish(t, e, "pq.jobs.push.batch", "", frames(frame(1, "", "a"), frame(2, "", "b")))
		wantLen(t, e, "pq", "jobs", 2*(n+1))
	}
	publish(t, e, "pq.jobs.push.batch", "", "bad")
	publish(t, e, "q.jobs.enqueue.batch", "pq.jobs.push", frames(frame(0, "", "x")))
	wantMetric(t, e.Bridge, "pq_unanswered_total", 2)
	wantLen(t, e, "q", "jobs", 0)
}

// Damage at the priority of one item fails the whole batch, and only that.
func TestPushBatchBesideDamage(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	q, err := e.Keyspace.PriorityQueue("jobs")
	if err != nil {
		t.Fatal(err)
	}
	id, err := kv.Transact(t.Context(), e.DB, func(tx kv.Transaction) (fdbpq.ID, error) {
		return q.Push(tx, 5, fdbpq.Message{Value: []byte("v")})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Update(t.Context(), e.DB, func(tx kv.Transaction) error { return damage(tx, id) }); err != nil {
		t.Fatal(err)
	}
	refusal := refused(t, e, 500, "pq.jobs.push.batch", nil, []byte(frames(frame(1, "", "a"), frame(5, "", "b"), frame(9, "", "c"))))
	if !strings.Contains(refusal.Text, "item 1: ") {
		t.Errorf("%v", refusal)
	}
	wantLen(t, e, "pq", "jobs", 1)
	ok(t, e, "pq.jobs.push.batch", nil, frames(frame(1, "", "a"), frame(9, "", "c")))
	wantLen(t, e, "pq", "jobs", 3)
}

// damage writes a key behind that of an item that no item can have.
func damage(tx kv.Transaction, id fdbpq.ID) error {
	pairs, err := tx.GetRange(kv.Range{Begin: []byte{0}, End: []byte{0xff}}, kv.RangeOptions{}).Get()
	for _, pair := range pairs {
		if strings.Contains(string(pair.Key), string(id.Random[8:10])) {
			tx.Set(append(slices.Clone(pair.Key), 0x15, 1), []byte("x"))
			return nil
		}
	}
	return errors.Join(err, errors.New("no such item"))
}
