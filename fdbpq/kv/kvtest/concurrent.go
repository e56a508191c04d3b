package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	workers = 4
	rounds  = 15 // of each worker
)

// together runs work for all rounds of each worker, the workers at the same time, and fails
// the test if one of them failed.
func (f *fixture) together(work func(worker int) error) {
	f.Helper()
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() {
			for range rounds {
				if errs[i] = work(i); errs[i] != nil {
					return
				}
			}
		})
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
}

// balance reads a number as Add stores it.
func (f *fixture) balance(r kv.Reader, name string) (int64, error) {
	value, err := r.Get(f.key(name)).Get()
	if err != nil || len(value) != 8 {
		return 0, errors.Join(err, fmt.Errorf("the value of %q is %q", name, value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

var concurrentTests = []test{
	{"Counter", func(f *fixture) {
		f.put(number(0), "n")
		f.together(func(int) error {
			return kv.Update(f.ctx, f.db, func(tx kv.Transaction) error {
				n, err := f.balance(tx, "n")
				tx.Set(f.key("n"), []byte(number(n+1)))
				return err
			})
		})
		f.wantStored("n", number(workers*rounds))
	}},
	{"AddsNeverConflict", func(f *fixture) {
		f.together(func(int) error {
			tx, err := f.db.Begin(f.ctx, kv.BeginOptions{})
			if err != nil {
				return err
			}
			tx.Add(f.key("n"), 1)
			_, err = tx.Commit().Get()
			return err
		})
		f.wantStored("n", number(workers*rounds))
	}},
	{"Bank", func(f *fixture) {
		const accounts, each = 5, 100
		account := func(i int) string { return fmt.Sprintf("account %d", i) }
		for i := range accounts {
			f.put(number(each), account(i))
		}
		seed := f.seed()
		var randoms [workers]*rand.Rand
		for i := range randoms {
			randoms[i] = rand.New(rand.NewPCG(seed, uint64(i)))
		}
		f.together(func(worker int) error {
			random := randoms[worker]
			from, to, amount := random.IntN(accounts), random.IntN(accounts), random.Int64N(each)
			return errors.Join(f.transfer(account(from), account(to), amount), f.audit(accounts*each))
		})
	}},
	{"UniqueTakers", func(f *fixture) {
		// Each key is taken by exactly one worker, in order: a queue in small.
		const items = workers * rounds / 2
		f.write(func(tx kv.Transaction) {
			for i := range items {
				tx.Set(f.key(fmt.Sprintf("item %04d", i)), nil)
			}
		})
		var mu sync.Mutex
		taken := map[string]int{}
		f.together(func(int) error {
			name, err := f.takeFirst()
			if err != nil || name == "" {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			taken[name]++
			return nil
		})
		for name, times := range taken {
			if times != 1 {
				f.Errorf("%q was taken %d times", name, times)
			}
		}
		if len(taken) != items {
			f.Errorf("%d of %d items were taken", len(taken), items)
		}
	}},
}

// transfer moves amount if there is enough.
func (f *fixture) transfer(from, to string, amount int64) error {
	return kv.Update(f.ctx, f.db, func(tx kv.Transaction) error {
		has, err := f.balance(tx, from)
		if err != nil || has < amount {
			return err
		}
		tx.Set(f.key(from), []byte(number(has-amount)))
		// Read after the write: it may be the same account.
		has, err = f.balance(tx, to)
		tx.Set(f.key(to), []byte(number(has+amount)))
		return err
	})
}

// audit checks the sum of all accounts.
func (f *fixture) audit(want int64) error {
	pairs, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(f.all(), kv.RangeOptions{}).Get()
	})
	if err != nil {
		return err
	}

	var sum int64
	for _, pair := range pairs {
		sum += int64(binary.LittleEndian.Uint64(pair.Value))
	}
	if sum != want {
		return fmt.Errorf("the accounts hold %d, want %d", sum, want)
	}
	return nil
}

// takeFirst removes the first key and returns it, or "" if there is none.
func (f *fixture) takeFirst() (string, error) {
	return kv.Transact(f.ctx, f.db, func(tx kv.Transaction) (string, error) {
		pairs, err := tx.GetRange(f.all(), kv.RangeOptions{Limit: 1}).Get()
		if err != nil || len(pairs) == 0 {
			return "", err
		}
		tx.Clear(pairs[0].Key)
		return string(pairs[0].Key), nil
	})
}
