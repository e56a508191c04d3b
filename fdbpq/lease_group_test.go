package fdbpq_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// acks returns acknowledgements of the leases, each of which follows the one before.
func acks(q fdbpq.Target, tokens ...fdbpq.Token) (ops []fdbpq.Op) {
	for i, token := range tokens {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token, Follows: i > 0})
	}
	return ops
}

// leaseSome leases so many items and returns the tokens.
func (f *fixture) leaseSome(q fdbpq.Target, n int, wait time.Duration) (tokens []fdbpq.Token) {
	f.Helper()
	for _, r := range f.apply(slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, Lease: wait}}, n)...) {
		if r.Err != nil {
			f.Fatal(r.Err)
		}
		tokens = append(tokens, r.Lease.Token)
	}
	return tokens
}

// wantLost checks that acknowledgements have failed together, and what follows them too.
func (f *fixture) wantLost(what string, results []fdbpq.Result, of int, lost ...int) {
	f.Helper()
	for i, r := range results {
		var all *fdbpq.LostLeases
		if !errors.As(r.Err, &all) || !errors.Is(r.Err, fdbpq.ErrLeaseLost) || all.Of != of || !slices.Equal(all.Lost, lost) {
			f.Errorf("%s: result %d: %v: want %v of %d leases lost", what, i, r.Err, lost, of)
		}
	}
}

// Acknowledgements that follow each other count together, or none does.
func TestAckGroup(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c", "d", "e", "f", "g", "h")
		old := f.leaseSome(q, 1, time.Minute)[0]
		f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: old})
		next := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Follows: true}
		held := append(f.leaseSome(q, 1, 7*time.Minute), f.leaseSome(q, 2, time.Minute)...)
		leased := func(n int64) {
			f.Helper()
			wantEqual(f.T, "leased", f.infoOf(q, 0).Leased, n)
		}
		for at := range 4 {
			r := f.apply(append(acks(q, slices.Insert(slices.Clone(held), at, old)...), next, next)...)
			f.wantLost("one is lost", r, 4, at)
		}
		f.wantLost("two are", f.apply(acks(q, old, held[0], held[1], old)...), 4, 0, 3)
		f.wantLost("one twice", f.apply(acks(q, held[0], held[1], held[0])...), 3, 2)
		leased(3)

		// Others in the same transaction decide for themselves, and the first to name a lease has it.
		ops := append(acks(q, held[0]), acks(q, held[1], held[0], held[2])...)
		r := f.apply(append(append(ops, next), acks(q, held[2])...)...)
		f.wantLost("the second that names it", r[1:5], 3, 1)
		if r[0].Err != nil || r[5].Err != nil {
			f.Errorf("beside a group that failed: %v, %v", r[0].Err, r[5].Err)
		}
		leased(1)

		held = append(held[1:2], f.leaseSome(q, 1, 3*time.Minute)...)
		r = f.apply(append(acks(q, held[1], held[0]), next, next)...)
		for i := range r {
			if r[i].Err != nil {
				f.Errorf("result %d: %v", i, r[i].Err)
			}
		}
		until := time.Until(r[2].Lease.Until)
		if string(r[3].Item.Value) != "f" || until < 2*time.Minute || until > 4*time.Minute || !r[3].Lease.Until.Equal(r[2].Lease.Until) {
			f.Errorf("leased %q until %v: want the length of the lease that was acknowledged first", r[3].Item.Value, until)
		}
		leased(2)
		wantEqual(f.T, "left", f.length(q), int64(2))
	})
}

// Each of several acknowledgements keeps its place under max_leased for the leases that follow.
func TestAckGroupKeepsPlaces(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c", "d", "e", "f", "g", "h")
		f.configure(q, maxLeased(3))
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
		next := lease
		next.Follows = true
		held := f.leaseSome(q, 3, time.Minute)
		ops := append([]fdbpq.Op{lease, lease}, acks(q, held...)...)
		results := f.apply(append(ops, next, next, lease)...)
		got := ""
		for i, r := range results {
			switch {
			case errors.Is(r.Err, fdbpq.ErrMaxLeased):
				got += "-"
			case r.Err == nil:
				got += "+"
			default:
				f.Error(r.Err)
			}
			if 2 <= i && i <= 4 && !r.Freed {
				f.Errorf("result %d does not say that it has freed a place", i)
			}
		}
		// Two of the three places are kept, so only the first of the others has one.
		wantEqual(f.T, "outcomes", got, "+-+++++-")
	})
}

// If max_leased was lowered meanwhile, the leases that follow get those of their places that are still there: they do
// not keep them from each other.
func TestAckGroupAfterLowerMaxLeased(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c", "d", "e", "f", "g", "h")
		held := f.leaseSome(q, 4, time.Minute)
		f.configure(q, maxLeased(3))
		next := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute, Follows: true}
		results := f.apply(append(acks(q, held[:3]...), next, next, next)...)
		for i, r := range results {
			if i < 5 {
				wantError(f.T, r.Err, nil)
			} else {
				wantError(f.T, r.Err, fdbpq.ErrMaxLeased)
			}
		}
	})
}

// A damaged record fails the acknowledgements that are tied to it, and no others.
func TestAckGroupOfDamaged(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c")
		held := f.leaseSome(q, 3, time.Minute)
		write(f, func(tx kv.Transaction) {
			tx.Set(fdbpq.HeldKey(q, &held[1].ID), []byte("damaged"))
		})
		results, err := do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, append(acks(q, held[0], held[1]), acks(q, held[2])...), time.Now())
		})
		if err != nil {
			f.Fatal(err)
		}
		for i, r := range results[:2] {
			if !errors.Is(r.Err, fdbpq.ErrCorrupt) || !strings.Contains(r.Err.Error(), "lease 1") {
				f.Errorf("result %d: %v", i, r.Err)
			}
		}
		wantError(f.T, results[2].Err, nil)
	})
}

// settleTogether acknowledges several leases together, at times lost ones or one twice, and leases as many.
func (r *leaseRun) settleTogether() {
	if len(r.old) == 0 {
		return
	}
	var tokens []fdbpq.Token
	var items []*leaseItem
	var lost []int
	for n := range 2 + r.random.IntN(3) {
		token := r.old[r.random.IntN(len(r.old))]
		var held []*leaseItem
		for _, i := range r.model.items {
			if i.token != (fdbpq.Token{}) {
				held = append(held, i)
			}
		}
		slices.SortFunc(held, func(a, b *leaseItem) int { return strings.Compare(a.value, b.value) })
		if len(held) > 0 && r.random.IntN(8) > 0 {
			token = held[r.random.IntN(len(held))].token
		}
		at := slices.IndexFunc(held, func(i *leaseItem) bool { return i.token == token })
		if at < 0 || slices.Contains(items, held[at]) {
			lost = append(lost, n)
		} else {
			items = append(items, held[at])
		}
		tokens = append(tokens, token)
	}
	ops := acks(r.q, tokens...)
	for range r.random.IntN(3) {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: r.q, Lease: time.Second, Follows: true})
	}
	results := r.apply(ops...)
	for i := range results {
		var all *fdbpq.LostLeases
		switch {
		case lost == nil && i < len(tokens) && results[i].Err != nil:
			r.fail("acknowledgement %d of leases that hold: %v", i, results[i].Err)
		case lost != nil && (!errors.As(results[i].Err, &all) || !slices.Equal(all.Lost, lost)):
			r.fail("operation %d when the leases %v are lost: %v", i, lost, results[i].Err)
		}
	}
	if lost == nil {
		for _, item := range items {
			delete(r.model.items, item.value)
		}
	}
	if len(ops) == len(tokens) {
		return
	}
	r.model.settleDue()
	for _, result := range results[len(tokens):] {
		if lost == nil {
			r.got(fdbpq.OpLease, fdbpq.Front, time.Second, result, false)
		}
	}
}
