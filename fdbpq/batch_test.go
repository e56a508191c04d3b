package fdbpq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
)

// A batch of only reads writes nothing, not even a receipt.
func TestReadOnlyBatch(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("a"), f.fifoQueue("a")
		ops := []fdbpq.Op{
			op(opLen, q), op(opPeekMin, q), op(opPeekMax, q), op(opPeekMin, fifo), op(opLen, fifo),
		}
		empty := fdbpq.ErrEmpty.Error()
		wantList(f.T, "results", summary(ops, f.apply(ops...)), "0", empty, empty, empty, "0")
		f.push(q, 1, "x")
		f.push(q, 2, "y")
		wantList(f.T, "results", summary(ops, f.apply(ops...)), "2", "x", "y", empty, "0")
		wantEqual(f.T, "receipts", len(f.check().Receipts), 0)
		// Neither does a pop that finds nothing.
		wantList(f.T, "pop", summary(ops[:1], f.apply(op(opPopMin, f.queue("none")))), empty)
		wantEqual(f.T, "receipts", len(f.check().Receipts), 0)
	})
}

// Corrupt data in one queue affects only the operations on that queue.
func TestBatchWithCorruptQueue(t *testing.T) {
	// Each breaks queue "bad", which holds an item at priority 5.
	damages := map[string]func(f *fixture, tx kv.Transaction){
		"item key": func(f *fixture, tx kv.Transaction) {
			tx.Set(items(f.priority, "bad").Pack(tuple.Tuple{int64(5), int64(9)}), nil)
			tx.Set(items(f.priority, "bad").Pack(tuple.Tuple{int64(-9), "x"}), nil)
		},
		"headers": func(f *fixture, tx kv.Transaction) {
			tx.ClearRange(everythingIn(f, "bad", "m"))
		},
		"garbage in headers": func(f *fixture, tx kv.Transaction) {
			r := everythingIn(f, "bad", "m")
			pairs, _ := tx.GetRange(r, kv.RangeOptions{}).Get()
			tx.Set(pairs[0].Key, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x02})
		},
		"number": func(f *fixture, tx kv.Transaction) {
			tx.Set(tuple.Tuple{f.priority, "bad", "n"}.Pack(), []byte("123"))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) { testCorruptQueue(f, damage) })
		})
	}
}

func everythingIn(f *fixture, queue, kind string) kv.Range {
	begin, end := tuple.NewSubspace(tuple.Tuple{f.priority, queue, kind}).Range()
	return kv.Range{Begin: begin, End: end}
}

func testCorruptQueue(f *fixture, damage func(*fixture, kv.Transaction)) {
	f.corrupt = true
	bad, good := f.queue("bad"), f.queue("good")
	headers := fdbpq.Op{Kind: fdbpq.OpPush, Queue: bad, Priority: 5, Message: fdbpq.Message{Headers: map[string][]string{"A": {"b"}}}}
	f.apply(headers, opPush(good, 1, "first"), opPush(good, 2, "second"), opPush(good, 3, "third"))
	write(f, func(tx kv.Transaction) { damage(f, tx) })
	before := len(f.stored(f.priority))

	var ops []fdbpq.Op
	for _, q := range []*fdbpq.PriorityQueue{bad, good} {
		ops = append(ops, op(opLen, q), op(opPopMin, q), op(opPopMin, q), op(opPopMax, q),
			op(opPeekMin, q), op(opPeekMax, q))
	}
	results := f.apply(ops...)
	empty := fdbpq.ErrEmpty.Error()
	wantList(f.T, "the good queue", summary(ops[6:], results[6:]), "3", "first", "second", "third", empty, empty)
	corrupt := 0
	for _, r := range results[:6] {
		if r.Err != nil && strings.Contains(r.Err.Error(), fdbpq.ErrCorrupt.Error()) {
			wantError(f.T, r.Err, fdbpq.ErrCorrupt)
			corrupt++
		}
	}
	if corrupt == 0 {
		f.Errorf("nobody was told: %+v", results[:6])
	}
	// The three items of the good queue and their numbers, and no key of the bad.
	if results[1].Err != nil {
		wantEqual(f.T, "keys", len(f.stored(f.priority)), before-7)
	}
	reads := []fdbpq.Op{op(opLen, bad), op(opPeekMin, bad), op(opLen, good), opPush(bad, 5, "more"), opPush(good, 5, "more")}
	wantError(f.T, errOf(f.batcher.Apply(f.ctx, reads[:3])), nil)
	if results, err := f.batcher.Apply(f.ctx, reads); err != nil || results[4].Err != nil {
		f.Errorf("a batch of pushes failed: %+v, %v", results, err)
	}
}

// A Batcher leaves only the receipt of its last batch.
func TestReceiptsDoNotPileUp(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("a")
		for range 5 {
			f.apply(opPush(q, 1, "v"))
			f.apply(op(opPopMin, q))
			f.apply(op(opPopMin, q)) // finds nothing
			f.apply(op(opPeekMin, q))
		}
		wantEqual(f.T, "receipts", fmt.Sprint(len(f.stored(f.priority+"-x"))), "1")
	})
}

// A queue is listed even if the disk hangs for a while and then loses the first pushes,
// which were not acknowledged.
func TestQueueIsListedAfterLostPushes(t *testing.T) {
	disk := crashfs.New()
	f := newFixture(t, openPebble(t, disk), fdbpq.RawValues)
	q := f.queue("jobs")
	lost := disk.CrashClone(vfs.CrashCloneCfg{})
	push := []fdbpq.Op{opPush(q, 1, "v")}
	clock := newClock(time.Now())
	clock.stepping(time.Minute)
	f.batcher.SetNow(clock.now)
	pending := []*fdbpq.Pending{f.batcher.Start(f.ctx, push), f.batcher.Start(f.ctx, push)}

	after := openPebble(t, lost)
	defer after.Close()
	for range 2 { // the second does not look any more
		must(fdbpq.NewBatcher(after, f.Keyspace).Apply(f.ctx, push))
	}
	names, err := kv.ReadTransact(f.ctx, after, func(r kv.Reader) ([]string, error) {
		return f.PriorityQueues(r, "", 10).Get()
	})
	wantEqual(t, "error", err, nil)
	wantList(t, "queues", names, "jobs")
	for _, p := range pending {
		must(p.Wait())
	}
}
