package fdbpq_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// roundsFixture is some queues of one kind, in a store that counts reads.
type roundsFixture struct {
	*fixture
	store  *countkv.DB
	clock  *clock
	queues []fdbpq.Target
	tokens []fdbpq.Token // one of each queue, if they have leases
}

func newRoundsFixture(t *testing.T, queues int, fifo bool) *roundsFixture {
	store := countkv.New(memkv.New(memkv.Options{}))
	f := &roundsFixture{
		fixture: newFixture(t, store, fdbpq.RawValues),
		store:   store,
		clock:   newClock(time.Now()),
	}

	f.batcher.SetNow(f.clock.now)
	for i := range queues {
		name := fmt.Sprintf("queue-%d", i)
		if fifo {
			f.queues = append(f.queues, f.fifoQueue(name))
		} else {
			f.queues = append(f.queues, f.queue(name))
		}
	}

	return f
}

// batch runs the same operations on every queue in one batch. It sorts them by kind, so that no
// operations on one queue are next to each other.
func (f *roundsFixture) batch(ops []fdbpq.Op) []fdbpq.Result {
	f.Helper()
	var all []fdbpq.Op

	for _, op := range ops {
		for i, q := range f.queues {
			if op.Queue = q; f.tokens != nil {
				op.Token = f.tokens[i]
			}
			all = append(all, op)
		}
	}

	return f.apply(all...)
}

// abandon gives an item of each queue to a staged pop whose owner is gone.
func (f *roundsFixture) abandon(value string) {
	f.Helper()
	for _, q := range f.queues {
		f.apply(opPush(q, 0, value))
	}

	for _, q := range f.queues {
		f.leave(q, f.clock.now().Add(-answerLife-time.Second), fdbpq.Front)
	}
}

func ops(whats ...fdbpq.Op) []fdbpq.Op {
	var list []fdbpq.Op
	for _, op := range whats {
		op.Message = message("value")
		list = append(list, op)
	}

	return list
}

func waiting(op fdbpq.Op) fdbpq.Op {
	op.Waits = true
	return op
}

func counting(op fdbpq.Op) fdbpq.Op {
	op.Count = true
	return op
}

// pushOp is a push. An item with headers has keys beside the one of its value.
func pushOp(priority int64, headers bool) []fdbpq.Op {
	op := fdbpq.Op{Kind: fdbpq.OpPush, Priority: priority, Message: message("value")}
	if headers {
		op.Message.Headers = map[string][]string{"A": {"1"}}
	}

	return []fdbpq.Op{op}
}

// roundsCase is a batch, and what it costs.
type roundsCase struct {
	name   string
	before func(*roundsFixture) // what each queue has
	ops    []fdbpq.Op           // on each queue

	settings    bool // it reads the settings: once for all queues, because they never changed
	readsEach   int  // other reads, of each queue
	rounds      int  // round trips of one queue
	roundsOf100 int  // of 100 queues; 0 is as many as of one
	startsOver  bool // it reads what it wrote, so an attempt that is blind comes first
	empty       int  // operations on each queue that find it empty
	fifo        bool // FIFO queues cost the same
}

// run runs the batch on some queues.
func (c *roundsCase) run(t *testing.T, queues int, fifo bool) {
	f := newRoundsFixture(t, queues, fifo)
	c.before(f)
	f.store.Take()

	found := f.batch(c.ops)

	costs := f.store.Take()
	want := countkv.Cost{Reads: c.readsEach * queues, Rounds: c.rounds}
	if c.settings {
		want.Reads++
	}
	if queues == 100 {
		want.Rounds = cmp.Or(c.roundsOf100, c.rounds)
	}
	wantEqual(t, "starts over", len(costs) == 2, c.startsOver)
	wantEqual(t, "cost", costs[len(costs)-1], want)

	found = slices.DeleteFunc(found, func(r fdbpq.Result) bool { return r.Err == nil })
	wantEqual(t, "operations that fail", len(found), c.empty*queues)
	for _, r := range found {
		wantError(t, r.Err, fdbpq.ErrEmpty)
	}
}

func noItems(*roundsFixture) {}

func plainItems(n int) func(*roundsFixture) { return pushed(n, pushOp(0, false)) }

func itemsWithHeaders(n int) func(*roundsFixture) { return pushed(n, pushOp(0, true)) }

func itemOfAGroup(f *roundsFixture) { f.batch([]fdbpq.Op{groupedPush}) }

var groupedPush = inGroup(opPush(nil, 1, ""), "a")

func pushed(n int, push []fdbpq.Op) func(*roundsFixture) {
	return func(f *roundsFixture) {
		for range n {
			f.batch(push)
		}
	}
}

func leftByStagedPops(f *roundsFixture) { f.abandon("value") }

// leasing says how leasedItem leases.
type leasing struct {
	maxDeliver int64         // of the queue; 0 is no limit
	headers    bool          // of the leased item
	keep       time.Duration // of the queue
	ago        time.Duration // longer than a second if the lease is over
}

// leasedItem leases the first of two items of each queue for a second.
func leasedItem(l leasing) func(*roundsFixture) {
	return func(f *roundsFixture) {
		configure := func(s *fdbpq.Settings) { s.MaxDeliver, s.Keep = l.maxDeliver, l.keep }
		if l.maxDeliver > 0 || l.keep > 0 {
			f.batch([]fdbpq.Op{{Kind: fdbpq.OpConfigure, Configure: configure}})
		}

		f.batch(pushOp(1, l.headers))
		f.batch(pushOp(2, false))
		for _, r := range f.batch(ops(fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second})) {
			f.tokens = append(f.tokens, r.Lease.Token)
		}
		f.clock.advance(l.ago)
	}
}

// A batch takes as many round trips as its slowest queue alone, because no queue waits for
// another.
func TestRoundsOfBatches(t *testing.T) {
	push, popMin, popMax := opNoItem, opPopMin, opPopMax
	peekMin, peekMax, length := opPeekMin, opPeekMax, opLen
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}
	nak, term := fdbpq.Op{Kind: fdbpq.OpNak}, fdbpq.Op{Kind: fdbpq.OpTerm}
	setConsumer := opSetConsumer(nil, "a", "1")

	cases := []roundsCase{
		{
			name:      "first push",
			before:    noItems,
			ops:       ops(push),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "push",
			before:    plainItems(1),
			ops:       ops(push, push),
			settings:  true,
			readsEach: 2,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "push at three priorities",
			before:    plainItems(1),
			ops:       append(append(pushOp(1, false), pushOp(2, true)...), pushOp(3, false)...),
			settings:  true,
			readsEach: 6,
			rounds:    1,
		},

		{
			name:      "pop",
			before:    plainItems(2),
			ops:       ops(popMin),
			settings:  true,
			readsEach: 3,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "pop of items with headers",
			before:    itemsWithHeaders(2),
			ops:       ops(popMin, popMin),
			settings:  true,
			readsEach: 5,
			rounds:    2,
			fifo:      true,
		},
		{
			name:      "pop of an empty queue",
			before:    noItems,
			ops:       ops(popMin),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			empty:     1,
			fifo:      true,
		},
		{
			name:      "pop of too few",
			before:    plainItems(1),
			ops:       ops(popMin, popMin),
			settings:  true,
			readsEach: 3,
			rounds:    1,
			empty:     1,
			fifo:      true,
		},
		{
			name:      "pop.max",
			before:    plainItems(2),
			ops:       ops(popMax),
			settings:  true,
			readsEach: 3,
			rounds:    1,
		},
		{
			name:      "pop.max of items with headers",
			before:    itemsWithHeaders(2),
			ops:       ops(popMax),
			settings:  true,
			readsEach: 4,
			rounds:    2,
		},
		{
			name:      "pop.max of an empty queue",
			before:    noItems,
			ops:       ops(popMax),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			empty:     1,
		},
		{
			name:      "pop from both ends",
			before:    itemsWithHeaders(2),
			ops:       ops(popMin, popMax),
			settings:  true,
			readsEach: 6,
			rounds:    2,
		},
		{
			name:      "pop of one item from both ends",
			before:    itemsWithHeaders(1),
			ops:       ops(popMin, popMax),
			settings:  true,
			readsEach: 6,
			rounds:    2,
			empty:     1,
		},
		{
			name:      "pop of one item from the back first",
			before:    itemsWithHeaders(1),
			ops:       ops(popMax, popMin),
			settings:  true,
			readsEach: 6,
			rounds:    2,
			empty:     1,
		},
		{
			name:      "pop that waits",
			before:    plainItems(1),
			ops:       ops(waiting(popMin)),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "pop that waits for an empty queue",
			before:    noItems,
			ops:       ops(waiting(popMin)),
			settings:  true,
			readsEach: 5,
			rounds:    1,
			empty:     1,
			fifo:      true,
		},
		{
			name:      "pop of an empty queue from both ends",
			before:    noItems,
			ops:       ops(popMin, popMax),
			settings:  true,
			readsEach: 5,
			rounds:    1,
			empty:     2,
		},

		{
			name:      "peek",
			before:    plainItems(1),
			ops:       ops(peekMin),
			readsEach: 2,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "peek of an item with headers",
			before:    itemsWithHeaders(1),
			ops:       ops(peekMin),
			readsEach: 3,
			rounds:    2,
			fifo:      true,
		},
		{
			name:      "peek at an empty queue",
			before:    noItems,
			ops:       ops(peekMin),
			readsEach: 2,
			rounds:    1,
			empty:     1,
			fifo:      true,
		},
		{
			name:      "peek at both ends",
			before:    plainItems(2),
			ops:       ops(peekMin, peekMax),
			readsEach: 3,
			rounds:    1,
		},
		{name: "len", before: plainItems(1), ops: ops(length), readsEach: 2, rounds: 1, fifo: true},
		{
			name:      "peek and len",
			before:    plainItems(1),
			ops:       ops(peekMin, length),
			readsEach: 3,
			rounds:    1,
			fifo:      true,
		},

		{
			name:      "push and len",
			before:    plainItems(1),
			ops:       ops(push, length),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "push and pop",
			before:    plainItems(1),
			ops:       ops(push, popMin),
			settings:  true,
			readsEach: 5,
			rounds:    2,
			fifo:      true,
		},
		{
			name:       "all kinds",
			before:     itemsWithHeaders(2),
			ops:        ops(push, popMin, peekMin, length),
			settings:   true,
			readsEach:  9,
			rounds:     5,
			fifo:       true,
			startsOver: true,
		},

		// With groups there are more reads, of one queue in as many round trips as with any other
		// header.
		{
			name:      "push with a group",
			before:    itemOfAGroup,
			ops:       []fdbpq.Op{groupedPush},
			settings:  true,
			readsEach: 6,
			rounds:    1,
		},
		// How far the group is gets read when the pop gets there.
		{
			name:        "pop of an item with a group",
			before:      itemOfAGroup,
			ops:         ops(popMin),
			settings:    true,
			readsEach:   6,
			rounds:      2,
			roundsOf100: 101,
		},

		// The items of dead pops return to all queues together. Their values are read in a few
		// steps of growing size, because their lengths are unknown.
		{
			name:        "pop of what staged pops left",
			before:      leftByStagedPops,
			ops:         ops(popMin),
			settings:    true,
			readsEach:   7,
			rounds:      4,
			roundsOf100: 6,
			startsOver:  true,
		},

		// Settings are read only by operations that depend on them, and together with what these
		// read anyway. Items of many queues are buried together.
		{
			name:      "lease with a length",
			before:    plainItems(2),
			ops:       ops(lease),
			settings:  true,
			readsEach: 3,
			rounds:    1,
		},
		{
			name:      "lease without",
			before:    plainItems(2),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpLease}),
			settings:  true,
			readsEach: 3,
			rounds:    1,
		},
		{
			name:      "config",
			before:    plainItems(2),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpSettings}),
			readsEach: 1,
			rounds:    1,
		},
		{
			name:      "consumers",
			before:    plainItems(2),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpConsumers}),
			readsEach: 1,
			rounds:    1,
			fifo:      true,
		},
		{
			name:        "consumer beside a pop",
			before:      plainItems(2),
			ops:         ops(setConsumer, popMin),
			settings:    true,
			readsEach:   5,
			rounds:      2,
			roundsOf100: 2,
		},
		{
			name:      "pop that counts",
			before:    plainItems(2),
			ops:       ops(counting(popMin)),
			settings:  true,
			readsEach: 4,
			rounds:    1,
			fifo:      true,
		},
		{
			name:      "lease that counts",
			before:    plainItems(2),
			ops:       ops(counting(lease), lease),
			settings:  true,
			readsEach: 4,
			rounds:    1,
		},
		{
			name:      "ack",
			before:    leasedItem(leasing{}),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpAck}),
			settings:  true,
			readsEach: 1,
			rounds:    1,
		},
		{
			name:      "ack of a job that is kept", // reads where the order ends
			before:    leasedItem(leasing{keep: time.Hour}),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpAck}),
			settings:  true,
			readsEach: 2,
			rounds:    1,
		},
		{
			name:      "snooze",
			before:    leasedItem(leasing{}),
			ops:       ops(fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}),
			readsEach: 1,
			rounds:    1,
		},
		{
			name:      "nak",
			before:    leasedItem(leasing{}),
			ops:       ops(nak),
			settings:  true,
			readsEach: 1,
			rounds:    1,
		},
		{
			name:      "last nak",
			before:    leasedItem(leasing{maxDeliver: 1}),
			ops:       ops(nak),
			settings:  true,
			readsEach: 4,
			rounds:    2,
		},
		{
			name:      "term",
			before:    leasedItem(leasing{}),
			ops:       ops(term),
			settings:  true,
			readsEach: 4,
			rounds:    2,
		},
		{
			name:      "term of an item with headers",
			before:    leasedItem(leasing{headers: true}),
			ops:       ops(term),
			settings:  true,
			readsEach: 5,
			rounds:    2,
		},
		{
			name:      "pop beside a lease",
			before:    leasedItem(leasing{}),
			ops:       ops(popMin),
			settings:  true,
			readsEach: 3,
			rounds:    1,
		},

		// A pop reads the history of its item when it gets there.
		{
			name:        "pop when a lease is over",
			before:      leasedItem(leasing{ago: time.Hour}),
			ops:         ops(popMin),
			settings:    true,
			readsEach:   7,
			rounds:      4,
			roundsOf100: 105,
			startsOver:  true,
		},

		// Burials are read in steps of growing size.
		{
			name:        "pop when the last lease is over",
			before:      leasedItem(leasing{maxDeliver: 1, headers: true, ago: time.Hour}),
			ops:         ops(popMin),
			settings:    true,
			readsEach:   8,
			rounds:      3,
			roundsOf100: 7,
		},
	}

	for _, test := range cases {
		for _, queues := range []int{1, 100} {
			t.Run(fmt.Sprintf("%s/%d", test.name, queues), func(t *testing.T) {
				test.run(t, queues, false)
			})
			if test.fifo {
				t.Run(fmt.Sprintf("%s/fifo/%d", test.name, queues), func(t *testing.T) {
					test.run(t, queues, true)
				})
			}
		}
	}
}

// Items before the first that was ever leased have no history, so nothing is read for them.
func TestReadsOfHistories(t *testing.T) {
	f := newRoundsFixture(t, 1, false)
	q := f.queues[0]
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
	last := lease
	last.End = fdbpq.Back

	for i := range 10 {
		f.apply(opPush(q, int64(i), "value"))
	}
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: f.apply(last)[0].Lease.Token})

	f.store.Take()
	f.apply(slices.Repeat([]fdbpq.Op{lease}, 9)...)
	if cost := f.store.Take()[0]; cost.Rounds > 2 {
		t.Errorf("%+v for items that were never leased", cost)
	}
	if n := f.apply(lease)[0].Lease.Deliveries; n != 2 {
		t.Errorf("the last item has %d deliveries, want 2", n)
	}
}

// Once a batch has started over because it reads what it wrote, the next ones see their writes from
// the beginning, for a while. Batches that only push are always blind.
func TestStartingOver(t *testing.T) {
	f := newRoundsFixture(t, 1, false)
	both := slices.Concat(pushOp(0, false), ops(opPopMin))
	attempts := func(ops []fdbpq.Op) int {
		f.store.Take()
		f.batch(ops)
		return len(f.store.Take())
	}

	var got []int
	for range 18 {
		got = append(got, attempts(pushOp(1, false)), attempts(both))
	}
	want := slices.Repeat([]int{1}, len(got))
	want[1], want[33] = 2, 2
	wantEqual(t, "attempts", fmt.Sprint(got), fmt.Sprint(want))
}

// A full queue that evicts its oldest items takes pushes at the first attempt.
func TestEvictingAtOnce(t *testing.T) {
	f := newRoundsFixture(t, 1, false)
	configure := fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) {
		s.MaxItems, s.Discard = 2, fdbpq.DiscardOld
	}}
	f.batch([]fdbpq.Op{configure})
	f.batch(slices.Repeat(pushOp(1, false), 2))

	f.store.Take()
	f.batch(slices.Repeat(pushOp(1, false), 2))
	wantEqual(t, "transactions", len(f.store.Take()), 1)
}

// Items of dead staged pops return as far as they fit into the transaction, whichever queue they
// belong to, and later pops bring back the rest.
func TestReturningMuchToManyQueues(t *testing.T) {
	const queues, size = 120, 90_000
	f := newRoundsFixture(t, queues, false)
	f.abandon(strings.Repeat("x", size))
	popped := 0

	for range queues {
		for _, r := range f.batch(ops(opPopMin)) {
			if len(r.Item.Value) == size {
				popped++
			} else {
				wantError(t, r.Err, fdbpq.ErrEmpty)
			}
		}
	}
	wantEqual(t, "popped", popped, queues)
}

// The answer to a staged pop that cannot be decoded stays, and the items of other answers return.
func TestReturningBesideACorruptAnswer(t *testing.T) {
	f := newRoundsFixture(t, 3, false)
	f.corrupt = true
	f.abandon("value")
	bad := tuple.Tuple{f.priority, "queue-1", "f", 0, bytes.Repeat([]byte{0xff}, 20)}.Pack()
	due := tuple.Tuple{f.priority, "queue-1", "t", 1, "f", 0, bytes.Repeat([]byte{0xff}, 20)}.Pack()

	write(f.fixture, func(tx kv.Transaction) {
		tx.Set(bad, []byte("?"))
		tx.Set(due, []byte{})
	})

	list := slices.Repeat(ops(opPopMin), 3)
	wantList(t, "results", summary(list, f.batch(list[:1])), "value", "value", "value")

	write(f.fixture, func(tx kv.Transaction) {
		tx.Clear(bad)
		tx.Clear(due)
	})

	f.corrupt = false
}

// Read has the same results as a Batcher, and accepts only operations that read.
func TestRead(t *testing.T) {
	f := newRoundsFixture(t, 2, false)
	f.batch(pushOp(0, true))
	f.store.Take()

	list := []fdbpq.Op{
		op(opLen, f.queues[0]), op(opPeekMin, f.queues[1]), op(opNoItem, f.queues[0]),
		op(opPopMin, f.queues[1]), op(opPeekMax, f.queues[0]), op(fdbpq.Op{Kind: 99}, f.queues[0]),
	}
	refused := []int{2, 3, 5} // the push, the pop, and the kind that there is not

	results := f.read(list...)

	for _, i := range refused {
		wantError(t, results[i].Err, fdbpq.ErrOp)
		results[i].Err = nil
	}
	wantList(t, "results", summary(list, results), "1", "value", "", "", "value", "")
	wantEqual(t, "costs", f.store.Take(), []countkv.Cost{{Reads: 5, Rounds: 2}})

	// Nor does it take operations that change settings and records.
	configure := fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(*fdbpq.Settings) {}}
	q := f.queues[0]

	results = f.read(op(configure, q), opSetConsumer(q, "a", "x"), draws(q, 0)[0])
	wantErrors(t, results, fdbpq.ErrOp, fdbpq.ErrOp, fdbpq.ErrOp)
}

// ReadSome leaves out items that it has no room for, but never the first.
func TestReadSome(t *testing.T) {
	f := newRoundsFixture(t, 1, false)
	q := f.queues[0]
	first := f.batch(pushOp(0, true))[0].Item.ID
	second := f.batch(pushOp(0, true))[0].Item.ID
	get := func(id fdbpq.ID) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id} }

	results, err := kv.ReadTransact(t.Context(), f.store,
		func(r kv.Reader) ([]fdbpq.Result, error) {
			return fdbpq.ReadSome(r, []fdbpq.Op{get(first), get(second)}, time.Now(), 1)
		})
	must(t, err)

	wantErrors(t, results, nil, fdbpq.ErrNoRoom)
	wantEqual(t, "the first", string(results[0].Item.Value), "value")
}

// Operations on a queue without groups and without kept jobs neither read nor write keys for them.
func TestWithoutGroupsNothingIsAdded(t *testing.T) {
	const usualKinds = "i m h a n t c ~" // of keys that queues without groups may have
	var queue []byte
	var noted []string // what happens to keys of other kinds

	store := &spy{Database: memkv.New(memkv.Options{}), asked: func(method string, key []byte) {
		if rest, found := bytes.CutPrefix(key, queue); found && len(rest) > 1 {
			kind, _, _ := strings.Cut(string(rest[1:]), "\x00") // behind the type of a string
			if !strings.Contains(usualKinds, kind) {
				noted = append(noted, method+" "+kind)
			}
		}
	}}

	f := newFixture(t, store, fdbpq.RawValues)
	queue = tuple.Tuple{f.priority, "jobs"}.Pack()
	q := f.queue("jobs")
	var id fdbpq.ID
	var item fdbpq.Item
	var token fdbpq.Token
	push := opPush(q, 1, "x")
	headers := push
	headers.Message.Headers = map[string][]string{"A": {"1"}}
	of := func(kind fdbpq.OpKind) fdbpq.Op {
		return fdbpq.Op{Kind: kind, Priority: 3, Lease: time.Minute}
	}
	lease, pop, restore := of(fdbpq.OpLease), of(fdbpq.OpPop), of(fdbpq.OpRestore)

	for n, o := range []fdbpq.Op{
		push, push, headers, withDelay(push, time.Hour), pop, opPopMax, push, lease,
		of(fdbpq.OpExtend), of(fdbpq.OpNak), lease, of(fdbpq.OpAck), push, opPeekMin, opLen,
		of(fdbpq.OpGet), of(fdbpq.OpRank), of(fdbpq.OpMove), of(fdbpq.OpRemove), push, lease,
		of(fdbpq.OpTerm), pop, withTTL(push, time.Hour), lease, of(fdbpq.OpRelease), pop, restore,
	} {
		o.Queue, o.ID, o.Token = q, id, token
		if o.Kind == fdbpq.OpRestore {
			o.Item = &item
		}

		result := f.apply(o)[0]
		if result.Err != nil && !errors.Is(result.Err, fdbpq.ErrEmpty) {
			t.Errorf("operation %d: %v", n, result.Err)
		}

		if !result.Lease.Until.IsZero() {
			token = result.Lease.Token
		}

		if result.Item.ID != (fdbpq.ID{}) {
			id, item = result.Item.ID, result.Item
		}
		wantList(t, fmt.Sprint("of groups, by operation ", n), noted)
	}

	// With a group the spy sees its index ("w", "y"), counters ("z") and turns ("v").
	f.apply(inGroup(push, "a"))
	slices.Sort(noted)
	wantList(t, "noticed with a group", slices.Compact(noted), "add z", "set w",
		"snapshot get v", "snapshot range w", "snapshot range y")
}
