package fdbpq_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// keyLog is what transactions read and write: the method, and the kind of the keys of one queue, such as "i". Keys of
// no queue are "-".
type keyLog struct {
	queue []byte // what its keys begin with
	notes []string
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

// A queue without groups reads and writes the keys that it did before there were groups, and not one more: these lists
// are from the commit before. Only an info looks whether there are groups.
func TestWithoutGroupsNothingIsAdded(t *testing.T) {
	log := &keyLog{}
	f := newFixture(t, &spy{Database: memkv.New(memkv.Options{}), asked: log.note}, fdbpq.RawValues)
	log.queue = tuple.Tuple{f.priority, "jobs"}.Pack()
	q := f.queue("jobs")
	var id fdbpq.ID
	var item fdbpq.Item
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
		{"push that expires", func() fdbpq.Op { return withTTL(push(), time.Hour) },
			"2 add n, clear -, get c, read conflict -, set -, set i, set m, set t, snapshot range h, snapshot range i"},
		{"lease of what expires", of(fdbpq.OpLease),
			"3 add n, clear -, clear i, clear t, 2 compare and clear n, get c, range i, range m, read conflict -, set -, set h, set t, snapshot range a, snapshot range t"},
		{"release", of(fdbpq.OpRelease),
			"3 add n, clear -, clear h, clear t, compare and clear n, get a, get c, get h, get i, range m, read conflict -, set -, set a, set i, set t, snapshot range t"},
		{"pop of what expires", func() fdbpq.Op { return op(opPopMin, q) },
			"2 add n, clear -, clear a, clear i, clear m, clear t, 2 compare and clear n, get c, range i, range m, read conflict -, set -, snapshot get a, snapshot range a, snapshot range t"},
		{"restore", func() fdbpq.Op { return opRestore(q, item) },
			"2 add n, clear -, get c, get h, get i, read conflict -, 2 set -, set a, set i, set m, set t"},
		{"a push with a group", func() fdbpq.Op { return inGroup(push(), "a") }, // which shows that keys of groups are noticed
			"2 add n, add z, clear -, get c, read conflict -, set -, set i, set m, set w, snapshot get v, snapshot get z, snapshot range h, 2 snapshot range i, 2 snapshot range w, snapshot range y"},
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
			id, item = result.Item.ID, result.Item
		}
		if got := log.take(); got != step.want {
			t.Errorf("%s: got\n\t%s, want\n\t%s", step.name, got, step.want)
		}
	}
}
