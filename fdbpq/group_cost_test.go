package fdbpq_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// keyLog is a store that notes what its transactions read and write: the method, and the kind of the keys of one
// queue, such as "i". Keys of no queue are "-".
type keyLog struct {
	kv.Database
	queue []byte // what its keys begin with
	notes []string
}

func (l *keyLog) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := l.Database.Begin(ctx, o)
	return loggedTransaction{tx, loggedReader{tx, l, ""}}, err
}

func (l *keyLog) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := l.Database.BeginRead(ctx)
	return loggedReadTransaction{loggedReader{tx, l, ""}, tx}, err
}

func (l *keyLog) note(method string, key []byte) {
	kind := "-"
	if rest, found := bytes.CutPrefix(key, l.queue); found && len(rest) > 1 {
		kind, _, _ = strings.Cut(string(rest[1:]), "\x00") // behind the type of a string
	}
	l.notes = append(l.notes, method+" "+kind)
}

// take returns the notes since the last call, how many of each.
func (l *keyLog) take() string {
	slices.Sort(l.notes)
	var list []string
	for len(l.notes) > 0 {
		n := 1
		for n < len(l.notes) && l.notes[n] == l.notes[0] {
			n++
		}
		text := l.notes[0]
		if n > 1 {
			text = fmt.Sprint(n, " ", text)
		}
		list, l.notes = append(list, text), l.notes[n:]
	}
	return strings.Join(list, ", ")
}

type loggedReader struct {
	kv.Reader
	log      *keyLog
	snapshot string
}

func (r loggedReader) Get(key []byte) kv.Future[[]byte] {
	r.log.note(r.snapshot+"get", key)
	return r.Reader.Get(key)
}

func (r loggedReader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	r.log.note(r.snapshot+"range", span.Begin)
	return r.Reader.GetRange(span, o)
}

type loggedReadTransaction struct {
	loggedReader
	ends interface{ Cancel() }
}

func (tx loggedReadTransaction) Cancel() { tx.ends.Cancel() }

type loggedTransaction struct {
	kv.Transaction
	r loggedReader
}

func (tx loggedTransaction) Get(key []byte) kv.Future[[]byte] { return tx.r.Get(key) }

func (tx loggedTransaction) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.r.GetRange(span, o)
}

func (tx loggedTransaction) Snapshot() kv.Reader {
	return loggedReader{tx.Transaction.Snapshot(), tx.r.log, "snapshot "}
}

func (tx loggedTransaction) Set(key, value []byte) {
	tx.r.log.note("set", key)
	tx.Transaction.Set(key, value)
}

func (tx loggedTransaction) Clear(key []byte) {
	tx.r.log.note("clear", key)
	tx.Transaction.Clear(key)
}

func (tx loggedTransaction) ClearRange(span kv.Range) {
	tx.r.log.note("clear range", span.Begin)
	tx.Transaction.ClearRange(span)
}

func (tx loggedTransaction) Add(key []byte, delta int64) {
	tx.r.log.note("add", key)
	tx.Transaction.Add(key, delta)
}

func (tx loggedTransaction) CompareAndClear(key, value []byte) {
	tx.r.log.note("compare and clear", key)
	tx.Transaction.CompareAndClear(key, value)
}

func (tx loggedTransaction) AddReadConflict(span kv.Range) {
	tx.r.log.note("read conflict", span.Begin)
	tx.Transaction.AddReadConflict(span)
}

func (tx loggedTransaction) AddWriteConflict(span kv.Range) {
	tx.r.log.note("write conflict", span.Begin)
	tx.Transaction.AddWriteConflict(span)
}

// A queue without groups reads and writes the keys that it did before there were groups, and not one more: these lists
// are from the commit before. Only an info looks whether there are groups.
func TestWithoutGroupsNothingIsAdded(t *testing.T) {
	log := &keyLog{Database: memkv.New(memkv.Options{})}
	f := newFixture(t, log, fdbpq.RawValues)
	log.queue = tuple.Tuple{f.priority, "jobs"}.Pack()
	q := f.queue("jobs")
	var id fdbpq.ID
	var token fdbpq.Token
	headers := func(op fdbpq.Op) fdbpq.Op {
		op.Message.Headers = map[string][]string{"A": {"1"}}
		return op
	}
	of := func(kind fdbpq.OpKind) func() fdbpq.Op {
		return func() fdbpq.Op {
			return fdbpq.Op{Kind: kind, Queue: q, Priority: 3, ID: id, Token: token, Lease: time.Minute}
		}
	}
	push := func() fdbpq.Op { return opPush(q, 1, "x") }

	for _, step := range []struct {
		name string
		op   func() fdbpq.Op
		want string
	}{
		{"first push", push,
			"2 add n, get c, read conflict -, 2 set -, set i, snapshot get -, snapshot range h, snapshot range i"},
		{"push", push,
			"2 add n, clear -, get c, read conflict -, set -, set i, snapshot range h, snapshot range i"},
		{"push with headers", func() fdbpq.Op { return headers(opPush(q, 1, "x")) },
			"2 add n, clear -, get c, read conflict -, set -, set i, set m, snapshot range h, snapshot range i"},
		{"delayed push", func() fdbpq.Op { return withDelay(opPush(q, 1, "x"), time.Hour) },
			"add n, clear -, get c, read conflict -, set -, set h, set t, snapshot range h, snapshot range i"},
		{"pop", of(fdbpq.OpPop),
			"2 add n, clear -, clear i, 2 compare and clear n, get c, range i, read conflict -, set -, snapshot range a, snapshot range t"},
		{"pop.max of an item with headers", func() fdbpq.Op { return op(opPopMax, q) },
			"2 add n, clear -, clear i, clear m, 2 compare and clear n, get c, range i, range m, read conflict -, set -, snapshot range a, snapshot range t"},
		{"third push", push,
			"2 add n, clear -, get c, read conflict -, set -, set i, snapshot range h, snapshot range i"},
		{"lease", of(fdbpq.OpLease),
			"3 add n, clear -, clear i, 2 compare and clear n, get c, range i, read conflict -, set -, set h, set t, snapshot range a, snapshot range t"},
		{"extend", of(fdbpq.OpExtend),
			"clear -, clear h, clear t, get h, read conflict -, set -, set h, set t"},
		{"nak", of(fdbpq.OpNak),
			"3 add n, clear -, clear h, clear t, compare and clear n, get c, get h, read conflict -, set -, set a, set i"},
		{"lease of an item with a history", of(fdbpq.OpLease),
			"3 add n, clear -, clear a, clear i, 2 compare and clear n, get c, range i, read conflict -, set -, set h, set t, snapshot get a, snapshot range a, snapshot range t"},
		{"ack", of(fdbpq.OpAck),
			"add n, clear -, clear h, clear t, compare and clear n, get c, get h, read conflict -, set -"},
		{"fourth push", push,
			"2 add n, clear -, get c, read conflict -, set -, set i, snapshot range h, snapshot range i"},
		{"peek", func() fdbpq.Op { return op(opPeekMin, q) },
			"range i, range t"},
		{"len", func() fdbpq.Op { return op(opLen, q) },
			"get n, range t"},
		{"get", of(fdbpq.OpGet),
			"get h, get i, range t"},
		{"rank", of(fdbpq.OpRank),
			"get h, get i, range i, range n, range t"},
		{"move", of(fdbpq.OpMove),
			"2 add n, clear -, clear a, clear i, compare and clear n, get a, get c, get h, get i, read conflict -, set -, set i, snapshot range h, snapshot range i, snapshot range t"},
		{"remove", of(fdbpq.OpRemove),
			"2 add n, clear -, clear a, clear i, 2 compare and clear n, get a, get c, get h, get i, read conflict -, set -, snapshot range t"},
		{"fifth push", push,
			"2 add n, clear -, get c, read conflict -, set -, set i, snapshot range h, snapshot range i"},
		{"last lease", of(fdbpq.OpLease),
			"3 add n, clear -, clear i, 2 compare and clear n, get c, range i, read conflict -, set -, set h, set t, snapshot range a, snapshot range t"},
		{"term", of(fdbpq.OpTerm),
			"2 add -, add n, clear -, clear h, clear t, compare and clear n, get -, get c, get h, read conflict -, 4 set -, 2 snapshot range -"},
		{"purge", of(fdbpq.OpPurge),
			"3 add n, clear -, clear h, clear i, clear t, 3 compare and clear n, get c, read conflict -, read conflict h, read conflict i, set -, snapshot range a, snapshot range h, snapshot range t"},
		{"pop of an empty queue", of(fdbpq.OpPop),
			"get c, range i, snapshot range a, snapshot range t"},
	} {
		log.take()
		result := f.apply(step.op())[0]
		if result.Err != nil && step.name != "pop of an empty queue" {
			t.Errorf("%s: %v", step.name, result.Err)
		}
		if !result.Lease.Until.IsZero() {
			token = result.Lease.Token
		}
		if result.Item.ID != (fdbpq.ID{}) {
			id = result.Item.ID
		}
		if got := log.take(); got != step.want {
			t.Errorf("%s: got\n\t%s, want\n\t%s", step.name, got, step.want)
		}
	}
}
