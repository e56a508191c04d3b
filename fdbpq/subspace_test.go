package fdbpq_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// directory is a directory of FoundationDB's Go binding, as far as fdbpq uses it.
type directory []byte

func (d directory) Bytes() []byte { return d }

// prefixes are like those that the directory layer and programs choose.
var prefixes = map[string]directory{
	"none":           {},
	"directory":      {0x15, 0x2a},
	"not a tuple":    {0xfe, 0xff},
	"begins as text": []byte("\x02pq"),
}

// In any subspace, items are where the recipe looks for them.
func TestQueuesInAnySubspace(t *testing.T) {
	for name, prefix := range prefixes {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			inPrefix := tuple.FromBytes(prefix)
			jobs := fdbpq.NewPriorityQueue(directory(inPrefix.Sub("jobs").Bytes()), fdbpq.RawValues)
			mail := fdbpq.NewQueue(directory(inPrefix.Sub("mail").Bytes()), fdbpq.RawValues)
			job := f.push(jobs, -3, "job")
			letter, err := do(f, func(tx kv.Transaction) (fdbpq.ID, error) { return mail.Enqueue(tx, message("letter")) })
			if err != nil {
				t.Fatal(err)
			}
			f.wantStored(inPrefix.Pack(tuple.Tuple{"jobs", "i", -3, job.Count, job.Random[:]}), []byte("job"))
			f.wantStored(inPrefix.Pack(tuple.Tuple{"mail", "i", letter.Count, letter.Random[:]}), []byte("letter"))
			wantList(t, "jobs", f.values(jobs.PopMin), "job")
			wantList(t, "mail", f.values(mail.Dequeue), "letter")
		})
	}
}

// A caller who changes the bytes of a prefix later does not change the queue.
func TestSubspaceIsCopied(t *testing.T) {
	f := onMem(t)
	prefix := directory("a/")
	jobs := fdbpq.NewPriorityQueue(prefix, fdbpq.RawValues)
	k := must(fdbpq.NewKeyspaceIn(prefix, "pq", "q", fdbpq.RawValues))
	copy(prefix, "b/")
	f.push(jobs, 0, "job")
	f.push(must(k.PriorityQueue("named")), 0, "job")
	for _, key := range allKeys(f) {
		if !bytes.HasPrefix(key, []byte("a/")) {
			t.Errorf("key %q is outside of the subspace", key)
		}
	}
}

// All keys of a Keyspace are inside its subspace, and Keyspaces with the same roots in
// different subspaces do not see each other.
func TestKeyspacesInSubspaces(t *testing.T) {
	f := newFixture(t, memkv.New(memkv.Options{}), fdbpq.RawValues)
	keyspaces := map[string]*fdbpq.Keyspace{}
	ids := map[string]bool{}
	for name, prefix := range prefixes {
		k := must(fdbpq.NewKeyspaceIn(prefix, "pq", "q", fdbpq.RawValues))
		keyspaces[name] = k
		before := allKeys(f)
		store, err := fdbpq.OpenStore(f.ctx, f.db, k, fdbpq.StoreOptions{})
		if err != nil || !store.New || ids[store.ID] {
			t.Fatalf("%s: OpenStore: %+v, %v", name, store, err)
		}
		ids[store.ID] = true
		results, err := fdbpq.NewBatcher(f.db, k).Apply(f.ctx, []fdbpq.Op{
			opPush(must(k.PriorityQueue("jobs")), 1, name),
			opPush(must(k.Queue("mail")), 0, name),
			op(opLen, must(k.PriorityQueue("jobs"))),
		})
		if err != nil || results[2].Len != 0 {
			t.Fatalf("%s: %+v, %v", name, results, err)
		}
		if err := fdbpq.Probe(f.ctx, f.db, k); err != nil {
			t.Fatal(err)
		}
		after := allKeys(f)
		if len(after)-len(before) != 11 {
			t.Errorf("%s: %d keys were added, want 11", name, len(after)-len(before))
		}
		for _, key := range after {
			if !bytes.HasPrefix(key, prefix) && !slices.ContainsFunc(before, func(k []byte) bool { return bytes.Equal(k, key) }) {
				t.Errorf("%s: key %q is outside of the subspace", name, key)
			}
		}
	}
	for name, k := range keyspaces {
		if err := fdbpq.SweepReceipts(f.ctx, f.db, k, -time.Hour); err != nil {
			t.Fatal(err)
		}
		listed, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) {
			return k.PriorityQueues(r, "", 10).Get()
		})
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, name+": list", listed, "jobs")
		wantList(t, name+": jobs", f.values(must(k.PriorityQueue("jobs")).PopMin), name)
		wantList(t, name+": mail", f.values(must(k.Queue("mail")).Dequeue), name)
		queues := []fdbpq.Target{must(k.PriorityQueue("jobs")), must(k.Queue("mail"))}
		mark := fdbpq.NewMark()
		for range 2 {
			if _, err := fdbpq.Retire(f.ctx, f.db, queues, mark, mark); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := allKeys(f); len(left) != 2*len(prefixes) { // the records of the stores
		t.Errorf("%d keys are left: %q", len(left), left)
	}
}

// An exclusive Keyspace is alone in its subspace, not in the store.
func TestExclusiveInSubspace(t *testing.T) {
	f := onMem(t)
	open := func(prefix directory, priority, fifo string) error {
		k := must(fdbpq.NewKeyspaceIn(prefix, priority, fifo, fdbpq.RawValues))
		_, err := fdbpq.OpenStore(f.ctx, f.db, k, fdbpq.StoreOptions{Exclusive: true})
		return err
	}
	for _, prefix := range []directory{{0x15, 0x01}, {0x15, 0x02}} {
		if err := open(prefix, "pq", "q"); err != nil {
			t.Errorf("the first one in %x: %v", prefix, err)
		}
	}
	var mismatch *fdbpq.MismatchError
	if err := open(directory{0x15, 0x02}, "a", "b"); !errors.As(err, &mismatch) {
		t.Errorf("another one beside it: %v, want a MismatchError", err)
	}
}

func allKeys(f *fixture) [][]byte {
	f.Helper()
	pairs, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(kv.Range{End: []byte{0xff, 0xff}}, kv.RangeOptions{}).Get()
	})
	if err != nil {
		f.Fatal(err)
	}
	keys := make([][]byte, len(pairs))
	for i, pair := range pairs {
		keys[i] = pair.Key
	}
	return keys
}
