package fdbpq_test

import (
	"cmp"
	crand "crypto/rand"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

// newRandom prints the seed, and the command that repeats the test with it.
func newRandom(t *testing.T) (random *rand.Rand, seed uint64) {
	seed = *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again: go test ./fdbpq -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// modelQueue is a queue as a sorted list.
type modelQueue struct {
	fifo  bool
	items []modelItem
}

type modelItem struct {
	priority int64
	message  fdbpq.Message
	foreign  bool // written by another program: not counted
}

// push adds an item after the last of its priority.
func (m *modelQueue) push(item modelItem) {
	if m.fifo {
		item.priority = 0
	}
	m.items = append(m.items, item)
	slices.SortStableFunc(m.items, func(a, b modelItem) int { return cmp.Compare(a.priority, b.priority) })
}

// end returns the first or last item, nil if there is none, and removes it if remove is
// true.
func (m *modelQueue) end(last, remove bool) *modelItem {
	if len(m.items) == 0 {
		return nil
	}
	i := 0
	if last {
		i = len(m.items) - 1
	}
	item := m.items[i]
	if remove {
		m.items = slices.Delete(m.items, i, i+1)
	}
	return &item
}

func (m *modelQueue) len() (n int64) {
	for _, item := range m.items {
		if !item.foreign {
			n++
		}
	}
	return n
}

// model is the expected state of a few queues.
type model struct {
	*fixture
	random  *rand.Rand
	targets []fdbpq.Target
	names   []string
	queues  map[fdbpq.Target]*modelQueue
	pushed  int
}

// want is the expected result of one operation.
type want struct {
	item *modelItem
	n    int64
	err  error
}

// expect runs ops on the model, in the order that Batcher.Start documents.
func (m *model) expect(ops []fdbpq.Op) []want {
	wants := make([]want, len(ops))
	stage := func(kind fdbpq.OpKind, run func(q *modelQueue, i int)) {
		for i, op := range ops {
			if op.Kind == kind {
				run(m.queues[op.Queue], i)
			}
		}
	}
	take := func(remove bool) func(q *modelQueue, i int) {
		return func(q *modelQueue, i int) {
			last := ops[i].End == fdbpq.Back
			if last && q.fifo {
				wants[i].err = fdbpq.ErrOp
			} else if wants[i].item = q.end(last, remove); wants[i].item == nil {
				wants[i].err = fdbpq.ErrEmpty
			}
		}
	}
	stage(fdbpq.OpLen, func(q *modelQueue, i int) { wants[i].n = q.len() })
	stage(fdbpq.OpPush, func(q *modelQueue, i int) {
		q.push(modelItem{priority: ops[i].Priority, message: ops[i].Message})
	})
	stage(fdbpq.OpPop, take(true))
	stage(fdbpq.OpPeek, take(false))
	return wants
}

// check compares the results of a batch with the expected ones.
func (m *model) check(ops []fdbpq.Op, results []fdbpq.Result, wants []want) {
	m.Helper()
	for i, w := range wants {
		what := fmt.Sprintf("op %d, kind %d, end %d", i, ops[i].Kind, ops[i].End)
		got := results[i]
		wantError(m.T, got.Err, w.err)
		if got.Len != w.n {
			m.Errorf("%s: Len is %d, want %d", what, got.Len, w.n)
		}
		if w.item == nil {
			continue
		}
		wantMessage(m.T, what, got.Item, nil, w.item.message)
		if got.Item.ID.Priority != w.item.priority || got.Item.PushedAt.IsZero() != w.item.foreign {
			m.Errorf("%s: item %+v, want one of priority %d, foreign %v", what, got.Item, w.item.priority, w.item.foreign)
		}
	}
}

// randomOp returns an operation; bias is the share of pushes, in percent.
func (m *model) randomOp(bias int) fdbpq.Op {
	whats := []fdbpq.Op{opPopMin, opPopMax, opPopMin, opPopMax, opPeekMin, opPeekMax, opLen}
	o := op(whats[m.random.IntN(len(whats))], m.targets[m.random.IntN(len(m.targets))])
	if m.random.IntN(100) >= bias {
		return o
	}
	o.Kind = fdbpq.OpPush
	o.Priority = []int64{-1, 0, 0, 1, 300, extremes[m.random.IntN(len(extremes))]}[m.random.IntN(6)]
	m.pushed++
	o.Message = message(fmt.Sprint("value ", m.pushed))
	switch m.random.IntN(20) {
	case 0:
		o.Message.Value = pattern(44_000+m.random.IntN(150_000), m.pushed)
	case 1, 2:
		o.Message.Headers = map[string][]string{"N": {fmt.Sprint(m.pushed), "x"}}
	}
	return o
}

// foreignPush adds an item as the recipe does.
func (m *model) foreignPush() {
	n := m.random.IntN(len(m.targets))
	q := m.queues[m.targets[n]]
	root := m.priority
	if q.fifo {
		root = m.fifo
	}
	priority := int64(m.random.IntN(3) - 1)
	m.pushed++
	item := modelItem{priority: priority, message: message(fmt.Sprint("foreign ", m.pushed)), foreign: true}
	q.push(item)
	space := items(root, m.names[n])
	if !q.fifo {
		space = space.Sub(priority)
	}
	write(m.fixture, func(tx kv.Transaction) {
		id := tuple.Tuple{int64(0)}
		begin, end := space.Range()
		last, err := tx.Snapshot().GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{Limit: 1, Reverse: true}).Get()
		if err == nil && len(last) > 0 {
			key, _ := space.Unpack(last[0].Key)
			id[0] = key[0].(int64) + 1
		}
		value := item.message.Value
		if m.format == fdbpq.TupleValues {
			value = tuple.Tuple{value}.Pack()
		}
		random := make([]byte, 20)
		_, _ = crand.Read(random)
		random[8] = 0 // not the signature
		tx.Set(space.Pack(append(id, random)), value)
	})
}

// Random batches on a few queues have the same results as on plain lists, and keep the
// invariants of the store.
func TestModel(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		m := &model{fixture: f, random: random, queues: map[fdbpq.Target]*modelQueue{}, names: []string{"a", "b", "a", "b"}}
		m.targets = []fdbpq.Target{f.queue("a"), f.queue("b"), f.fifoQueue("a"), f.fifoQueue("b")}
		for i, target := range m.targets {
			m.queues[target] = &modelQueue{fifo: i >= 2}
		}
		for round := range 250 {
			bias := []int{65, 30, 10}[round/20%3] // fill, drain, empty
			ops := make([]fdbpq.Op, 1+random.IntN([]int{1, 6, 40}[random.IntN(3)]))
			for i := range ops {
				ops[i] = m.randomOp(bias)
			}
			m.check(ops, f.apply(ops...), m.expect(ops))
			if random.IntN(4) == 0 {
				m.foreignPush()
			}
			if round%25 == 0 {
				f.check()
			}
			if f.Failed() {
				f.Fatalf("round %d", round)
			}
		}
	})
}
