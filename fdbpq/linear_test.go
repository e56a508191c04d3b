package fdbpq_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// hooked calls a function before each commit, after all reads of the transaction.
type hooked struct {
	kv.Database
	beforeCommit func()
}

func (h *hooked) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := h.Database.Begin(ctx, o)
	return hookedTransaction{tx, h}, err
}

type hookedTransaction struct {
	kv.Transaction
	hooked *hooked
}

func (tx hookedTransaction) Commit() kv.Future[struct{}] {
	tx.hooked.beforeCommit()
	return tx.Transaction.Commit()
}

// rival is a batch, and what another client does after the batch has read and before it
// commits.
type rival struct {
	name   string
	before []fdbpq.Op // what is there
	batch  []fdbpq.Op
	rival  []fdbpq.Op
	// allowed are the results of batch and rival that some order of all operations
	// explains, with the rival's in their own order.
	allowed []string
}

// Each result of a batch must be true at some moment between its start and its end, even if
// another client is faster. Each case tries to break that: a peek that sees the batch's own
// push, which nobody else sees before the commit, and misses what is there by then.
func TestPeeksInBatchesAreLinearizable(t *testing.T) {
	f := onMem(t)
	q := f.queue("a")
	first, last := op(opPeekMin, q), op(opPeekMax, q)
	popMin, popMax := op(opPopMin, q), op(opPopMax, q)
	length := op(opLen, q)
	push := func(p int64, v string) fdbpq.Op { return opPush(q, p, v) }
	empty := fdbpq.ErrEmpty.Error()
	ops := func(list ...fdbpq.Op) []fdbpq.Op { return list }
	list := func(values ...string) string { return fmt.Sprintf("%q", values) }

	for _, c := range []rival{
		{"own push, a better one comes first", nil, ops(push(5, "own"), first), ops(push(1, "r"), last),
			[]string{list("", "r", "", "r"), list("", "own", "", "own")}},
		{"own push, a better one was there and is popped", ops(push(1, "x")), ops(push(5, "own"), first), ops(popMin, first),
			[]string{list("", "x", "x", empty), list("", "x", "x", "own"), list("", "own", "x", empty), list("", "own", "x", "own")}},
		{"both ends, one own and one not", ops(push(3, "x")), ops(push(5, "own"), first, last), ops(push(9, "r"), popMin),
			[]string{list("", "x", "own", "", "x"), list("", "own", "r", "", "x"), list("", "x", "r", "", "x"), list("", "own", "own", "", "x")}},
		{"pop and peek, a better one comes", ops(push(3, "x"), push(4, "y")), ops(popMin, first), ops(push(1, "r")),
			[]string{list("x", "y", ""), list("r", "x", ""), list("x", "r", "")}},
		{"pop and peek, the next is popped", ops(push(3, "x"), push(4, "y")), ops(popMin, first), ops(popMax, first),
			[]string{list("x", empty, "y", "x")}},
		{"pop of nothing and peek", nil, ops(popMin, first), ops(push(1, "r")),
			[]string{list(empty, empty, ""), list("r", empty, ""), list(empty, "r", "")}},
		{"len and own push", nil, ops(length, push(1, "own")), ops(push(2, "r"), length),
			[]string{list("0", "", "", "1"), list("1", "", "", "1"), list("1", "", "", "2"), list("2", "", "", "2"), list("0", "", "", "2")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: f.ctx, db: f.db, batcher: f.batcher}
			write(f, q.Clear)
			if len(c.before) > 0 {
				f.apply(c.before...)
			}
			var theirs []fdbpq.Result
			b := fdbpq.NewBatcher(&hooked{Database: f.db, beforeCommit: func() {
				for len(theirs) < len(c.rival) {
					theirs = append(theirs, f.apply(c.rival[len(theirs)])...)
				}
			}}, must(fdbpq.NewKeyspace("unused", "unused-too", fdbpq.RawValues)))
			results, err := b.Apply(f.ctx, c.batch)
			if err != nil {
				t.Fatal(err)
			}
			got := list(append(summary(c.batch, results), summary(c.rival, theirs)...)...)
			for _, want := range c.allowed {
				if got == want {
					return
				}
			}
			t.Errorf("results are %s, of which no order of the operations can be the reason", got)
		})
	}
}
