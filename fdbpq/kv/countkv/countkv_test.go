package countkv_test

import (
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A counted store passes the suite of every store.
func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			return func() kv.Database { return countkv.New(memkv.New(memkv.Options{})) }
		},
	})
}

// Reads that are started together take one round trip, reads that wait for each other one each.
func TestRounds(t *testing.T) {
	key, all := []byte("key"), kv.Range{Begin: []byte("a"), End: []byte("z")}
	begin := func(r kv.Reader) (wait func()) {
		one, some := r.Get(key), r.GetRange(all, kv.RangeOptions{})
		return func() {
			if _, err := one.Get(); err != nil {
				t.Error(err)
			}
			if _, err := some.Get(); err != nil {
				t.Error(err)
			}
		}
	}

	for _, test := range []struct {
		name string
		do   func(tx kv.Transaction)
		want countkv.Cost
	}{
		{"nothing", func(kv.Transaction) {}, countkv.Cost{}},
		{"not waited for", func(tx kv.Transaction) { begin(tx) }, countkv.Cost{Reads: 2}},
		{
			"one after the other",
			func(tx kv.Transaction) { begin(tx)(); begin(tx.Snapshot())(); begin(tx)() },
			countkv.Cost{Reads: 6, Rounds: 3},
		},
		{"together", func(tx kv.Transaction) {
			first, second := begin(tx), begin(tx.Snapshot())
			first()
			second()
			second()
		}, countkv.Cost{Reads: 4, Rounds: 1}},
		{"two chains together", func(tx kv.Transaction) {
			first, second := begin(tx), begin(tx)
			first()
			third := begin(tx)
			second() // is ready already
			fourth := begin(tx)
			third()
			fourth()
		}, countkv.Cost{Reads: 8, Rounds: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := countkv.New(memkv.New(memkv.Options{}))
			tx, err := db.Begin(t.Context(), kv.BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Cancel()
			test.do(tx)
			if got := db.Take(); !slices.Equal(got, []countkv.Cost{test.want}) {
				t.Errorf("costs %+v, want %+v", got, test.want)
			}

			if got := db.Take(); got != nil {
				t.Errorf("costs %+v when nothing was begun", got)
			}
		})
	}
}

// The options of a transaction reach the store, which refuses reads of a blind one that wrote.
func TestForwardsOptions(t *testing.T) {
	tx, err := countkv.New(memkv.New(memkv.Options{})).
		Begin(t.Context(), kv.BeginOptions{Blind: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	tx.Set([]byte("key"), nil)
	if _, err := tx.Get([]byte("key")).Get(); err == nil {
		t.Error("the store does not know that the transaction is blind")
	}
}
