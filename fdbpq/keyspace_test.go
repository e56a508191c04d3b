package fdbpq_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Roots whose areas would overlap are refused, and the error says which, where, and what to do.
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
		{
			"pq",
			"pq-store",
			[]string{`below "pq-store"`, "what the store says about its priority queues"},
		},
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

// directory is a directory of FoundationDB's Go binding, as far as fdbpq uses it.
type directory []byte

func (d directory) Bytes() []byte { return d }

// prefixes are such as the directory layer and programs choose.
var prefixes = map[string]directory{
	"none":           {},
	"directory":      {0x15, 0x2a},
	"not a tuple":    {0xfe, 0xff},
	"begins as text": []byte("\x02pq"),
}

// In any subspace, items are where the recipe looks for them, even if the caller later changes the
// bytes of the prefix.
func TestQueuesInAnySubspace(t *testing.T) {
	for name, prefix := range prefixes {
		t.Run(name, func(t *testing.T) {
			f := onMem(t)
			inPrefix := tuple.FromBytes(prefix)
			jobsIn := directory(inPrefix.Sub("jobs").Bytes())
			mailIn, allIn := directory(inPrefix.Sub("mail").Bytes()), slices.Clone(prefix)
			jobs := fdbpq.NewPriorityQueue(jobsIn, fdbpq.RawValues)
			mail := fdbpq.NewQueue(mailIn, fdbpq.RawValues)
			k := must(fdbpq.NewKeyspaceIn(allIn, "pq", "q", fdbpq.RawValues))

			for _, of := range []directory{jobsIn, mailIn, allIn} {
				clear(of)
			}

			job := f.push(jobs, -3, "job")
			letter := must(do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
				return mail.Enqueue(tx, message("letter"))
			}))
			jobKey := inPrefix.Pack(tuple.Tuple{"jobs", "i", -3, job.Count, job.Random[:]})
			f.wantStored(jobKey, []byte("job"))
			f.wantStored(inPrefix.Pack(tuple.Tuple{"mail", "i", letter.Count, letter.Random[:]}),
				[]byte("letter"))
			wantList(t, "jobs", f.values(jobs.PopMin), "job")
			wantList(t, "mail", f.values(mail.Dequeue), "letter")

			f.push(must(k.PriorityQueue("named")), 0, "job")
			for _, pair := range f.pairs() {
				if !bytes.HasPrefix(pair.Key, prefix) {
					t.Errorf("key %q is outside of the subspace", pair.Key)
				}
			}
		})
	}
}

// All keys of a Keyspace are inside its subspace, and Keyspaces with the same roots in different
// subspaces do not see each other.
func TestKeyspacesInSubspaces(t *testing.T) {
	f := newFixture(t, memkv.New(memkv.Options{}), fdbpq.RawValues)
	keyspaces := map[string]*fdbpq.Keyspace{}
	ids := map[string]bool{}

	for name, prefix := range prefixes {
		k := must(fdbpq.NewKeyspaceIn(prefix, "pq", "q", fdbpq.RawValues))
		keyspaces[name] = k
		before := f.pairs()

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
		wantError(t, fdbpq.Probe(f.ctx, f.db, k), nil)

		// Two items and their numbers, of all and of the priority, two entries in lists, two
		// records of the store, a receipt of the batch and one of the probe.
		const added = 11
		after := f.pairs()
		if len(after)-len(before) != added {
			t.Errorf("%s: %d keys were added, want %d", name, len(after)-len(before), added)
		}

		for _, pair := range after {
			there := func(old kv.KeyValue) bool { return bytes.Equal(old.Key, pair.Key) }
			if !bytes.HasPrefix(pair.Key, prefix) && !slices.ContainsFunc(before, there) {
				t.Errorf("%s: key %q is outside of the subspace", name, pair.Key)
			}
		}
	}

	for name, k := range keyspaces {
		wantError(t, fdbpq.SweepReceipts(f.ctx, f.db, k, -time.Hour), nil)

		listed := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) {
			return k.PriorityQueues(r, "", 10).Get()
		}))
		wantList(t, name+": list", listed, "jobs")
		wantList(t, name+": jobs", f.values(must(k.PriorityQueue("jobs")).PopMin), name)
		wantList(t, name+": mail", f.values(must(k.Queue("mail")).Dequeue), name)

		queues := []fdbpq.Target{must(k.PriorityQueue("jobs")), must(k.Queue("mail"))}
		mark := fdbpq.NewMark()

		for range 2 {
			must(fdbpq.Retire(f.ctx, f.db, queues, mark, mark))
		}
	}
	if left := f.pairs(); len(left) != 2*len(prefixes) { // the records of the stores
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

// pairs returns all that is in the store.
func (f *fixture) pairs() []kv.KeyValue {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(kv.Range{End: []byte{0xff, 0xff}}, kv.RangeOptions{}).Get()
	}))
}

var extremes = []int64{
	math.MinInt64, math.MinInt64 + 1, -1 << 32, -256, -255, -1, 0, 1, 255, 256, 1 << 40,
	math.MaxInt64 - 1, math.MaxInt64,
}

// FuzzParseID reads ids. An id that can be read is written as the same text, so there is no other
// text for it.
func FuzzParseID(f *testing.F) {
	for _, n := range extremes {
		f.Add(fdbpq.ID{Priority: n, Count: n, Random: [20]byte{1, 2, 255}}.String())
	}

	good, encode := fdbpq.ID{Priority: 5, Count: 7}.String(), base64.RawURLEncoding.EncodeToString
	zeros := make([]byte, 20)

	for _, bad := range []string{
		"",
		"not an id",
		good[:len(good)-4],
		good + "AAAA",
		good[:8] + "\n" + good[8:],
		good + "\r\n",
		good + " ",
		good + "=",
		"+" + good[1:],
		encode(append([]byte{0x16, 0, 5, 0x14}, zeros...)), // an integer with a needless byte

		// An integer of nine bytes, and no integers.
		encode(append([]byte{0x1d, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0x14}, zeros...)),
		encode(make([]byte, 22)),
	} {
		f.Add(bad)
	}

	f.Fuzz(func(t *testing.T, text string) {
		id, err := fdbpq.ParseID(text)
		if err != nil {
			wantError(t, err, fdbpq.ErrID)
		} else if again := id.String(); again != text {
			t.Errorf("%q is read as %+v, which is written as %q", text, id, again)
		}
	})
}
