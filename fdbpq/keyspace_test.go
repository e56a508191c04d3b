package fdbpq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// The error says which areas would overlap, where, and what to do.
func TestKeyspaceRefusesPrefixesThatMeet(t *testing.T) {
	for _, test := range []struct {
		priority, fifo string
		want           []string
	}{
		{"", "q", []string{`""`, "not empty"}},
		{"pq", "", []string{`""`, "not empty"}},
		{"", "", []string{"not empty"}},
		{"pq", "pq", []string{`below "pq"`, "the priority queues and the FIFO queues"}},
		{"pq", "pq-queues", []string{`below "pq-queues"`, "the list of priority queues"}},
		{"pq", "pq-x", []string{`below "pq-x"`, "the receipts of batches"}},
		{"pq", "pq-store", []string{`below "pq-store"`, "what the store says about its priority queues"}},
		{"q-queues", "q", []string{`below "q-queues"`, "the list of FIFO queues"}},
		{"q-store", "q", []string{`below "q-store"`, "what the store says about its FIFO queues"}},
	} {
		k, err := fdbpq.NewKeyspace(test.priority, test.fifo, fdbpq.RawValues)
		wantError(t, err, fdbpq.ErrKeyspace)
		if k != nil {
			t.Errorf("%q and %q: got a keyspace", test.priority, test.fifo)
		}
		for _, want := range test.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	}
}

// Whatever roots are accepted, the keys of one area are never taken for those of another,
// however similar the roots are.
func TestPrefixesThatAreAlike(t *testing.T) {
	for _, prefixes := range [][2]string{
		{"pq", "pq-"}, {"pq", "pq-queue"}, {"pq", "pq-queues-x"}, {"pq", "pq\x00"}, {"pq\x00", "pq"}, {"pq", "pq\x00-x"},
		{"q-x", "q"}, {"-x", "-queues"}, {"\x00", "\x00\xff"}, {"\xff", "\xff\x00"}, {"pq", "pq-X"}, {"pq", " pq"},
	} {
		t.Run(fmt.Sprintf("%q", prefixes), func(t *testing.T) {
			f := newFixtureIn(t, memkv.New(memkv.Options{}), prefixes[0], prefixes[1], fdbpq.RawValues)
			names := []string{"a", "a\x00", "-x", "i", "\xff", "\x00\xff"}
			var pushes []fdbpq.Op
			for _, name := range names {
				pushes = append(pushes, opPush(f.queue(name), 1, name), opPush(f.fifoQueue(name), 0, name))
			}
			f.apply(pushes...)
			f.check()
			if err := fdbpq.SweepReceipts(f.ctx, f.db, f.Keyspace, -time.Hour); err != nil {
				t.Errorf("SweepReceipts: %v", err)
			}
			wantEqual(t, "receipts", len(f.check().Receipts), 0)
			for _, list := range []func(kv.Reader, string, int) kv.Future[[]string]{f.PriorityQueues, f.Queues} {
				got, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) { return list(r, "", 100).Get() })
				if err != nil || len(got) != len(names) {
					t.Errorf("queues are %q (error %v), want %d", got, err, len(names))
				}
			}
			for _, name := range names {
				wantList(t, name, f.values(f.queue(name).PopMin), name)
				wantList(t, name, f.values(f.fifoQueue(name).Dequeue), name)
			}
		})
	}
}
