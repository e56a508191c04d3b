package fdbpq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// retire calls Retire, and checks what it did with each of the queues. An empty queue gets the mark
// next, and leaves the list if it has the mark ripe, of an earlier look.
func (f *fixture) retire(
	what string, queues []fdbpq.Target, next, ripe fdbpq.Mark, want ...fdbpq.Retired,
) {
	f.Helper()
	got, err := fdbpq.Retire(f.ctx, f.db, queues, next, ripe)

	if err != nil || !slices.Equal(got, want) {
		f.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// wantListed checks the list of priority queues.
func (f *fixture) wantListed(what string, want ...string) {
	f.Helper()
	got, err := kv.ReadTransact(f.ctx, f.db,
		func(r kv.Reader) ([]string, error) { return f.PriorityQueues(r, "", 1000).Get() })

	if err != nil || !slices.Equal(got, want) {
		f.Errorf("%s: listed are %q, %v; want %q", what, got, err, want)
	}
}

// A page of the list ends after 10,000 names, though all of them are unused, and the next goes on
// behind the last of these.
func TestPagesOfManyUnusedNames(t *testing.T) {
	const names = 25_000
	f := onMem(t)
	for part := range 5 {
		write(f, func(tx kv.Transaction) {
			for i := range names / 5 {
				l := f.queue(fmt.Sprintf("q%05d", part*names/5+i)).Layout()
				g := state.NewLedger(tx, l, time.Now(), nil)
				g.AddToList()
			}
		})
	}
	f.push(f.queue("q00007"), 1, "a")
	f.push(f.queue("q24999"), 1, "a")

	var got, next []string
	for more := true; more; {
		after := ""
		if len(next) > 0 {
			after = next[len(next)-1]
		}
		page := must(f.ListPriorityQueues(f.ctx, f.db, after, 1000, time.Now()))
		for _, q := range page.Queues {
			got = append(got, q.Name)
		}
		next, more = append(next, page.Next), page.Next != ""
	}

	wantList(t, "queues", got, "q00007", "q24999")
	wantList(t, "pages end at", next, "q09999", "q19999", "")
}

// A queue with nothing but message ids is not among the queues that are listed, and stays where a
// bridge finds it until their window is over.
func TestQueuesOfMessageIDsAlone(t *testing.T) {
	onEngines(t, func(f *fixture) {
		used, ids, set := f.queue("a"), f.queue("b"), f.queue("c")
		for _, q := range []fdbpq.Target{used, ids, set} {
			push := opPush(q, 1, "v")
			push.Message.MsgID = "once"
			f.done(push)
		}
		f.done(op(opPopMin, ids))
		f.done(op(opPopMin, set))
		f.configure(set, func(s *fdbpq.Settings) { s.MaxItems = 9 })

		page := must(f.ListPriorityQueues(f.ctx, f.db, "", 10, time.Now()))

		var names []string
		for _, q := range page.Queues {
			names = append(names, q.Name)
		}
		wantList(f.T, "queues", names, "a", "c")
		f.retire("a look", []fdbpq.Target{ids}, fdbpq.NewMark(), "", fdbpq.InUse)
		f.wantListed("where bridges look", "a", "b", "c")
	})
}

// A queue that one process finds empty twice, with no other look in between, leaves the list, and
// nothing remains of it.
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
		f.retire("first look", all, first, "",
			fdbpq.Marked, fdbpq.InUse, fdbpq.NotListed, fdbpq.Marked)

		f.wantListed("with a mark", "empty", "full")
		f.check()

		// Another process looks at the first queue, which has another mark then.
		f.retire("another's look", all[:1], second, fdbpq.NewMark(), fdbpq.Marked)
		f.retire("look after the other", all, fdbpq.NewMark(), first, fdbpq.Marked, fdbpq.InUse,
			fdbpq.NotListed, fdbpq.NotListed)
		third := fdbpq.NewMark()
		f.retire("look again", all[:1], third, "", fdbpq.Marked)
		f.retire("last look", all, fdbpq.NewMark(), third, fdbpq.NotListed, fdbpq.InUse,
			fdbpq.NotListed, fdbpq.NotListed)

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
			return q.Push(tx, 3,
				fdbpq.Message{Value: []byte("v"), Headers: map[string][]string{"A": {"b"}}})
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

// A queue stays listed while staged pops are at work on it.
func TestRetireLeavesStagedPops(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "v")
	f.leave(q, time.Now(), fdbpq.Front)
	f.retire("look", []fdbpq.Target{q}, fdbpq.NewMark(), "", fdbpq.InUse)
}

// A push removes the mark once its process can no longer rely on what it saw of the list, and
// lists a queue again that has left.
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

	for range 5 { // none of them can do with what an older one saw
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

// What a batch saw of the list is as old as the start of its transaction, however long that takes.
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

	hooks := &hooked{Database: f.db, begun: interfere, beforeCommit: interfere}
	b := fdbpq.NewBatcher(hooks, f.Keyspace)
	b.SetNow(clock.now)

	for range 2 {
		must(b.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "v"), op(opPopMin, q)}))
	}

	f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.Marked)
}

// A queue that left the list before the items of a pop of unknown outcome came back is listed
// again.
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

// Retire returns errors of the store, and can be called again.
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

// retiringBridge is a process with its own handles and its own clock.
type retiringBridge struct {
	number  int
	db      kv.Database
	batcher *fdbpq.Batcher
	queues  []fdbpq.Target
	skew    time.Duration
	busy    bool // in the middle of a transaction

	ripe       fdbpq.Mark
	ripeMarked time.Duration // when it was used last
}

// retirement runs several processes that push, pop and retire, in one goroutine, with each other's
// transactions in the middle of their own.
type retirement struct {
	*fixture
	random  *rand.Rand
	bridges []*retiringBridge
	time    time.Duration // since the begin
	budget  time.Duration // how far it may go on until the outermost transaction ends
	pushed  int
}

// No queue with items is ever missing from the list, however processes with different clocks push,
// pop and retire.
func TestRetireNeverLosesQueues(t *testing.T) {
	_, seed := newRandom(t)
	for round := range uint64(harness.Times(15, 300)) {
		// Waits between attempts take no time.
		synctest.Test(t, func(t *testing.T) { runRetirement(t, seed+round) })
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func runRetirement(t *testing.T, seed uint64) {
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	m := &retirement{fixture: f.fixture, random: rand.New(rand.NewPCG(seed, 1))}

	for n := range 3 {
		m.addBridge(n, f.faults)
	}

	for range 150 {
		// A transaction that takes longer might rely on an entry that is gone.
		m.budget = fdbpq.RetireAfter - fdbpq.ListedLife - time.Second
		m.act()
		m.advance(m.upTo(2 * fdbpq.RetireAfter))
		f.faults.Land()

		f.check()

		if t.Failed() {
			break
		}
	}

	f.calm()
}

func (m *retirement) addBridge(n int, db kv.Database) {
	// One clock is a day behind, one right, one a day ahead.
	b := &retiringBridge{number: n, skew: time.Duration(n-1) * 24 * time.Hour}
	b.db = &hooked{Database: db, begun: m.interfere, beforeCommit: m.interfere}
	b.batcher = fdbpq.NewBatcher(b.db, m.Keyspace)
	start := time.Now().Round(0)
	b.batcher.SetNow(func() time.Time { return start.Add(m.time + b.skew) })
	b.queues = []fdbpq.Target{m.queue("a"), m.fifoQueue("a")}
	m.bridges = append(m.bridges, b)
}

// interfere lets others act in the middle of a transaction.
func (m *retirement) interfere() {
	for m.random.IntN(3) == 0 {
		step := m.upTo(m.budget)
		m.budget -= step
		m.advance(step)
		m.act()
	}
}

// upTo returns a random duration, often close to one that matters.
func (m *retirement) upTo(d time.Duration) time.Duration {
	times := []time.Duration{
		0, 0, fdbpq.ListedLife, fdbpq.RetireAfter - fdbpq.ListedLife, fdbpq.RetireAfter,
	}
	near := times[m.random.IntN(len(times))] + time.Duration(m.random.IntN(20)-10)*time.Second
	return min(max(0, near), d)
}

func (m *retirement) advance(d time.Duration) { m.time += d }

// act lets an idle process do something.
func (m *retirement) act() {
	b := m.bridges[m.random.IntN(len(m.bridges))]
	if b.busy {
		return
	}

	b.busy = true
	defer func() { b.busy = false }()

	if m.random.IntN(2) == 0 {
		m.retire(b)
		return
	}

	var ops []fdbpq.Op
	for range 1 + m.random.IntN(2) {
		q := b.queues[m.random.IntN(len(b.queues))]
		if m.random.IntN(3) > 0 {
			ops = append(ops, op(opPopMin, q), op(opPopMin, q))
			continue
		}

		m.pushed++
		ops = append(ops, opPush(q, int64(m.random.IntN(2)), fmt.Sprint(m.pushed)))
	}
	wantError(m.T, errOf(b.batcher.Apply(m.ctx, ops)), nil)
}

// retire is one round in which a process retires queues.
func (m *retirement) retire(b *retiringBridge) {
	ripe := b.ripe
	if m.time-b.ripeMarked < fdbpq.RetireAfter {
		return
	}

	next := fdbpq.NewMark()
	for _, q := range b.queues {
		if m.random.IntN(8) == 0 {
			continue
		}
		wantError(m.T, errOf(fdbpq.Retire(m.ctx, b.db, []fdbpq.Target{q}, next, ripe)), nil)
	}

	b.ripe, b.ripeMarked = next, m.time
}
