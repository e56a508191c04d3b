package fdbpq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// retire calls Retire and checks what it did.
func (f *fixture) retire(what string, queues []fdbpq.Target, next, ripe fdbpq.Mark, want ...fdbpq.Retired) {
	f.Helper()
	got, err := fdbpq.Retire(f.ctx, f.db, queues, next, ripe)
	if err != nil || !slices.Equal(got, want) {
		f.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// wantListed checks the list of priority queues.
func (f *fixture) wantListed(what string, want ...string) {
	f.Helper()
	got, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) { return f.PriorityQueues(r, "", 1000).Get() })
	if err != nil || !slices.Equal(got, want) {
		f.Errorf("%s: listed are %q, %v; want %q", what, got, err, want)
	}
}

// A queue that was found empty twice leaves the list, and nothing remains of it.
func TestRetire(t *testing.T) {
	onEngines(t, func(f *fixture) {
		empty, full, never := f.queue("empty"), f.queue("full"), f.queue("never")
		fifo := f.fifoQueue("empty")
		f.apply(opPush(empty, 7, "v"), opPush(full, 7, "v"), opPush(fifo, 0, "v"))
		f.values(empty.PopMin)
		f.values(fifo.Dequeue)
		f.wantListed("at first", "empty", "full")

		all := []fdbpq.Target{empty, full, never, fifo}
		first, second := fdbpq.NewMark(), fdbpq.NewMark()
		f.retire("first look", all, first, "", fdbpq.Marked, fdbpq.InUse, fdbpq.NotListed, fdbpq.Marked)
		f.wantListed("with a mark", "empty", "full")
		f.check()
		f.retire("another's look", all[:1], second, fdbpq.NewMark(), fdbpq.Marked)
		f.retire("look after the other", all, fdbpq.NewMark(), first, fdbpq.Marked, fdbpq.InUse, fdbpq.NotListed, fdbpq.NotListed)
		third := fdbpq.NewMark()
		f.retire("look again", all[:1], third, "", fdbpq.Marked)
		f.retire("last look", all, fdbpq.NewMark(), third, fdbpq.NotListed, fdbpq.InUse, fdbpq.NotListed, fdbpq.NotListed)
		f.wantListed("at the end", "full")
		if left := len(f.stored(f.fifo)) + len(f.stored(f.fifo+"-queues")); left > 0 {
			f.Errorf("%d keys are left of a queue that was retired", left)
		}
	})
}

// What programs with the bare recipe leave behind is removed with the queue.
func TestRetireRemovesLeftovers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		if _, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
			return q.Push(tx, 3, fdbpq.Message{Value: []byte("v"), Headers: map[string][]string{"A": {"b"}}})
		}); err != nil {
			t.Fatal(err)
		}
		f.leaseOver(q, time.Now) // it has a history
		write(f, func(tx kv.Transaction) { tx.ClearRange(itemRange(f.priority, "jobs")) })
		mark := fdbpq.NewMark()
		f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left behind: %x", left)
		}
	})
}

func itemRange(root, name string) kv.Range {
	begin, end := items(root, name).Range()
	return kv.Range{Begin: begin, End: end}
}

// A queue stays while staged pops are at work on it.
func TestRetireLeavesStagedPops(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "v")
	f.leave(q, time.Now(), fdbpq.Front)
	f.retire("look", []fdbpq.Target{q}, fdbpq.NewMark(), "", fdbpq.InUse)
}

// A push removes the mark once its process may no longer rely on what it saw of the list, and
// lists the queue again if it has left.
func TestPushesListAgain(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	clock := f.setClock()
	pushAndPop := func() { f.apply(opPush(q, 1, "v"), op(opPopMin, q)) }
	entry := func() string {
		value := must(do(f, func(tx kv.Transaction) ([]byte, error) {
			return tx.Get(tuple.Tuple{f.priority + "-queues", "jobs"}.Pack()).Get()
		}))
		return string(value)
	}
	pushAndPop()
	before := entry()
	for range 5 {
		clock.advance(fdbpq.ListedLife - time.Second)
		pushAndPop()
	}
	wantEqual(t, "entry after more pushes", entry(), before)

	mark := fdbpq.NewMark()
	f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	pushAndPop() // one that relies on what the last saw
	clock.advance(fdbpq.ListedLife)
	pushAndPop()
	f.retire("look after a push", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.Marked)

	clock.advance(-time.Hour) // a clock that was set back is no reason to rely on anything
	pushAndPop()
	mark = fdbpq.NewMark()
	f.retire("look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	f.retire("last look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
	f.wantListed("without it")
	clock.advance(fdbpq.RetireAfter)
	f.apply(opPush(q, 1, "v"))
	f.wantListed("again", "jobs")
}

// What a batch saw of the list is as old as the start of its transaction, however long that
// takes.
func TestKnowledgeIsAsOldAsTheTransaction(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "v")
	f.values(q.PopMin)
	clock, mark := newClock(time.Now()), fdbpq.NewMark()
	begun := 0
	interfere := func() {
		if begun++; begun == 1 {
			f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
			clock.advance(fdbpq.RetireAfter - fdbpq.ListedLife)
		}
	}
	b := fdbpq.NewBatcher(&hooked{Database: f.db, begun: interfere, beforeCommit: interfere}, f.Keyspace)
	b.SetNow(clock.now)
	for range 2 {
		must(b.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "v"), op(opPopMin, q)}))
	}
	f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.Marked)
}

// If the items of a pop of unknown outcome return to a queue that has left the list meanwhile,
// the queue is listed again.
func TestRetireMeetsUnsettledPop(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q := f.queue("jobs")
	f.push(q, 1, "v")
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))
	mark := fdbpq.NewMark()
	f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
	wantError(t, f.batcher.Settle(f.ctx), nil)
	f.wantListed("afterwards", "jobs")
	wantEqual(t, "items", f.length(q), 1)
}

// Retire returns errors, and can be called again.
func TestRetireFails(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q := f.queue("jobs")
	f.push(q, 1, "v")
	f.values(q.PopMin)
	mark := fdbpq.NewMark()
	ctx, cancel := context.WithCancel(f.ctx)
	f.watched.unknown = cancel
	f.faults.Next(faultkv.UnknownMade)
	wantError(t, errOf(fdbpq.Retire(ctx, f.db, []fdbpq.Target{q}, mark, "")), kv.ErrCommitUnknown)
	f.retire("again", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
}
