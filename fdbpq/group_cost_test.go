package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A queue without groups has no keys of groups, and nothing reads or writes any; only an info looks whether there are
// some. What else is read and written is counted in TestRoundsOfBatches.
func TestWithoutGroupsNothingIsAdded(t *testing.T) {
	var queue []byte
	var noted []string
	f := newFixture(t, &spy{Database: memkv.New(memkv.Options{}), asked: func(method string, key []byte) {
		if rest, found := bytes.CutPrefix(key, queue); found && len(rest) > 1 {
			kind, _, _ := strings.Cut(string(rest[1:]), "\x00") // behind the type of a string
			if !strings.Contains("i m h a n t c", kind) {
				noted = append(noted, method+" "+kind)
			}
		}
	}}, fdbpq.RawValues)
	queue = tuple.Tuple{f.priority, "jobs"}.Pack()
	q := f.queue("jobs")
	var id fdbpq.ID
	var item fdbpq.Item
	var token fdbpq.Token
	push := opPush(q, 1, "x")
	headers := push
	headers.Message.Headers = map[string][]string{"A": {"1"}}
	of := func(kind fdbpq.OpKind) fdbpq.Op { return fdbpq.Op{Kind: kind, Priority: 3, Lease: time.Minute} }
	lease, pop, restore := of(fdbpq.OpLease), of(fdbpq.OpPop), of(fdbpq.OpRestore)
	for n, o := range []fdbpq.Op{
		push, push, headers, withDelay(push, time.Hour), pop, opPopMax, push, lease, of(fdbpq.OpExtend), of(fdbpq.OpNak),
		lease, of(fdbpq.OpAck), push, opPeekMin, opLen, of(fdbpq.OpGet), of(fdbpq.OpRank), of(fdbpq.OpMove),
		of(fdbpq.OpRemove), push, lease, of(fdbpq.OpTerm), of(fdbpq.OpPurge), pop,
		withTTL(push, time.Hour), lease, of(fdbpq.OpRelease), pop, restore,
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
	f.apply(inGroup(push, "a"))
	slices.Sort(noted)
	wantList(t, "with a group", noted, "add z", "set w", "snapshot get v", "snapshot get z", "snapshot range w", "snapshot range w", "snapshot range y")
}
