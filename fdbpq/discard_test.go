package fdbpq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func discardOld(items, bytes int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxItems, s.MaxBytes, s.Discard = items, bytes, fdbpq.DiscardOld }
}

// removed runs a batch, and returns what it removed.
func (f *fixture) removed(ops ...fdbpq.Op) fdbpq.Removed {
	f.Helper()
	before := f.batcher.Removed()
	for _, r := range f.apply(ops...) {
		wantError(f.T, r.Err, nil)
	}
	n := f.batcher.Removed()
	n.Add(fdbpq.Removed{Expired: -before.Expired, Discarded: -before.Discarded, Dead: -before.Dead})
	return n
}

// The item with the largest key goes, whichever end is popped, ready or delayed; leased ones stay; and a push that
// would be the one is refused. In a FIFO queue it is the oldest.
func TestDiscardOld(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.configure(q, discardOld(4, 0))
		f.apply(opPush(q, 9, "leased"))
		token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})[0].Lease.Token
		late := opPush(q, 8, "delayed")
		late.Delay = time.Hour
		unique := opPush(q, 7, "unique")
		unique.Message.Unique, unique.TTL = "key", time.Hour
		f.apply(opPush(q, 1, "a"), late, unique)
		wantEqual(f.T, "discards the delayed", f.removed(opPush(q, 2, "b")), fdbpq.Removed{Discarded: 1})
		wantError(f.T, f.apply(opPush(q, 7, "c"))[0].Err, fdbpq.ErrFull)
		again := unique
		again.Priority = 1
		wantEqual(f.T, "is a duplicate", f.apply(again)[0].Duplicate, true)
		wantEqual(f.T, "discards the unique", f.removed(opPush(q, 1, "d")), fdbpq.Removed{Discarded: 1})
		f.check()
		wantEqual(f.T, "frees its key", f.removed(again), fdbpq.Removed{Discarded: 1})
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})[0].Err, nil)
		wantList(f.T, "left", f.values(q.PopMin), "a", "d", "unique")

		fifo := f.fifoQueue("jobs")
		f.configure(fifo, discardOld(2, 0))
		f.apply(opPush(fifo, 0, "leased"))
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: fifo, Lease: time.Hour})
		wantEqual(f.T, "one by one", f.removed(opPush(fifo, 0, "a"), opPush(fifo, 0, "b"), opPush(fifo, 0, "c")), fdbpq.Removed{Discarded: 2})
		wantList(f.T, "left", f.values(fifo.Dequeue), "c")
		f.apply(opPush(fifo, 0, "d"))
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: fifo, Lease: time.Hour})
		err := f.apply(opPush(fifo, 0, "e"))[0].Err
		wantError(f.T, err, fdbpq.ErrFull)
		if text := fmt.Sprint(err); !strings.Contains(text, "max_items is 2") || !strings.Contains(text, "nothing would be discarded before it") {
			f.Error(text)
		}
	})
}

// A group of pushes discards for all of it or is refused, and nothing of it is discarded for the rest.
func TestDiscardForGroups(t *testing.T) {
	onEngines(t, func(f *fixture) {
		group := func(q fdbpq.Target, priority int64, n int) (ops []fdbpq.Op) {
			for i := range n {
				op := opPush(q, priority, fmt.Sprint("new", i))
				op.Follows = i > 0
				ops = append(ops, op)
			}
			return ops
		}
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			f.configure(q, discardOld(10, 0))
			for range 10 {
				f.apply(opPush(q, 5, "old"))
			}
			for _, n := range []int{11, 4096} {
				for _, r := range f.apply(group(q, 1, n)...) {
					wantError(f.T, r.Err, fdbpq.ErrFull)
				}
			}
			wantEqual(f.T, "discarded", f.removed(group(q, 1, 4)...), fdbpq.Removed{Discarded: 4})
			wantEqual(f.T, "all discarded", f.removed(group(q, 0, 10)...), fdbpq.Removed{Discarded: 10})
		}
		// One item of the group would have to go.
		q := f.queue("jobs")
		ops := append(group(q, -1, 1), group(q, 1, 1)...)
		ops[1].Follows = true
		wantError(f.T, f.apply(ops...)[0].Err, fdbpq.ErrFull)
		wantEqual(f.T, "length", f.length(q), int64(10))
	})
}

// Bytes are those of values and headers, however large the headers are, and an item that alone exceeds the limit
// is refused and discards nothing.
func TestMaxBytesOfQueue(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		push := func(m fdbpq.Message) error {
			return f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 1, Message: m})[0].Err
		}
		headers := fdbpq.Message{Value: []byte("v"), Headers: map[string][]string{"H": {strings.Repeat("\x00", 150_000)}}}
		wantError(f.T, push(headers), nil) // before there is a limit
		limit := int64(headers.Size() + 10)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = limit })
		f.check()
		wantError(f.T, push(message("123456")), nil)
		wantError(f.T, push(message("")), nil)
		err := push(message("12345"))
		wantError(f.T, err, fdbpq.ErrFullBytes)
		if text := fmt.Sprint(err); !strings.Contains(text, fmt.Sprintf("have %d bytes", limit-4)) || !strings.Contains(text, fmt.Sprint("max_bytes is ", limit)) {
			f.Error(text)
		}
		wantError(f.T, push(message("1234")), nil)
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
		token := f.apply(lease)[0].Lease.Token
		wantError(f.T, push(message("x")), fdbpq.ErrFullBytes)
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})[0].Err, nil)
		f.check()
		wantError(f.T, push(fdbpq.Message{Value: make([]byte, limit-9)}), fdbpq.ErrFullBytes)
		wantError(f.T, push(fdbpq.Message{Value: make([]byte, limit-10)}), nil)

		f.configure(q, discardOld(0, 5))
		before := f.length(q)
		err = push(message("123456"))
		wantError(f.T, err, fdbpq.ErrFullBytes)
		if !strings.Contains(fmt.Sprint(err), "nothing that could be discarded") {
			f.Error(err)
		}
		wantEqual(f.T, "length", f.length(q), before)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		wantError(f.T, push(headers), nil)
		f.check()
	})
}

// A queue that has more items than one transaction counts is counted by the pushes after max_bytes is set, and is
// right while that goes on. In a caller's transaction, pushes have to be tried again.
func TestMaxBytesOfLargeQueue(t *testing.T) {
	const many = 5000
	for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
		f := onMem(t)
		q := fdbpq.Target(f.fifoQueue("jobs"))
		if end == fdbpq.Back {
			q = f.queue("jobs")
		}
		var ops []fdbpq.Op
		for i := range many {
			op := opPush(q, int64(i%7), "12345")
			if i%50 == 0 {
				op.Message.Headers = map[string][]string{"A": {"b"}}
			}
			ops = append(ops, op)
		}
		f.apply(ops...)
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: end, Lease: time.Hour}
		early := f.apply(lease, lease, lease)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 20 })
		f.check()
		leased := f.apply(lease, lease)
		f.apply(op(opPopMin, q), fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: early[0].Lease.Token},
			fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: leased[0].Lease.Token})
		f.check()
		wantError(t, f.applyAt(time.Now(), opPush(q, 1, "x"))[0].Err, fdbpq.ErrNoRoom)
		f.check()
		last, _ := f.until(opPush(q, 1, "x"))
		wantError(t, last.Err, nil)
		f.check()
		// Set together with a push, it has to be counted first.
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		set := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxBytes = 1 << 20 }}
		r := f.apply(set, opPush(q, 1, "x"))
		wantError(t, r[0].Err, nil)
		wantError(t, r[1].Err, fdbpq.ErrNoRoom)
		f.check()
		// Lowered, with more than one transaction discards.
		f.configure(q, discardOld(10, 0))
		before := f.batcher.Removed().Discarded
		f.batcher.LimitRoom(1_000_000)
		var tries int
		r[0], tries = f.until(opPush(q, -1, "x"))
		wantError(t, r[0].Err, nil)
		wantEqual(t, "discarded", f.batcher.Removed().Discarded-before > many-20, true)
		wantEqual(t, "several transactions discard", tries > 1, true)
		info := f.infoOf(q, 0)
		wantEqual(t, "left", info.Ready+info.Leased+info.Delayed, int64(10))
		f.check()
	}
}

// A limit that is exceeded by leased items alone refuses pushes whatever there is to discard.
func TestDiscardNothingForLeased(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
	for range 5 {
		f.apply(opPush(q, 1, "a"))
		f.apply(lease)
	}
	f.apply(opPush(q, 9, "b"))
	f.configure(q, discardOld(5, 0))
	wantError(t, f.apply(opPush(q, 1, "c"))[0].Err, fdbpq.ErrFull)
	wantList(t, "left", f.values(q.PopMin), "b")
}

// An item that cannot be read is not discarded.
func TestDiscardCorrupt(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	f.configure(q, discardOld(1, 0))
	late := opPush(q, 9, "a")
	late.Delay = time.Hour
	f.apply(late)
	for _, pair := range f.stored(f.priority) {
		if strings.Contains(string(pair.Key), "\x02h\x00") && len(pair.Value) > 0 {
			write(f, func(tx kv.Transaction) { tx.Set(pair.Key, []byte("x")) })
		}
	}
	if err := f.apply(opPush(q, 1, "b"))[0].Err; !errors.Is(err, fdbpq.ErrCorrupt) {
		t.Error(err)
	}
}
