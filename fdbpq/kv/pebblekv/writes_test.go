package pebblekv

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Transactions write the same few keys many times each, in half of them ranges too, and some
// read in between. Each write counts in its turn.
func TestManyWritesOfOneKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	db := openTest(t, vfs.NewMem(), Options{})
	const keys = 8
	key := func(i int) string { return string(rune('a' + i)) }
	want := map[string]string{}
	check := func(when string, r kv.Reader) {
		t.Helper()
		pairs, err := r.GetRange(kv.Range{Begin: []byte(key(0)), End: []byte(key(keys))}, kv.RangeOptions{}).Get()
		got := map[string]string{}
		for _, pair := range pairs {
			got[string(pair.Key)] = string(pair.Value)
		}
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("%s: %v, %v: want %v", when, got, err, want)
		}
		for i := range keys {
			value, err := r.Get([]byte(key(i))).Get()
			if err != nil || string(value) != want[key(i)] {
				t.Fatalf("%s: key %s is %q, %v: want %q", when, key(i), value, err, want[key(i)])
			}
		}
	}
	for n := range 200 {
		tx := begin(t, db)
		ranges, reads := n%2 == 0, n%3 == 0
		for i := range rng.IntN(60) {
			k := rng.IntN(keys)
			switch rng.IntN(6) {
			case 0:
				tx.Clear([]byte(key(k)))
				delete(want, key(k))
			case 1:
				if !ranges {
					continue
				}
				end := k + 1 + rng.IntN(keys-k)
				tx.ClearRange(kv.Range{Begin: []byte(key(k)), End: []byte(key(end))})
				for ; k < end; k++ {
					delete(want, key(k))
				}
			default:
				value := fmt.Sprintf("%d-%d", n, i)
				tx.Set([]byte(key(k)), []byte(value))
				want[key(k)] = value
			}
			if reads && rng.IntN(8) == 0 {
				check("in the transaction", tx)
			}
		}
		mustCommit(t, tx)
		r := beginRead(t, db)
		check("after the commit", r)
		r.Cancel()
	}
}
