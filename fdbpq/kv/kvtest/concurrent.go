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

// together runs all rounds of all workers, the workers at the same time. It fails the test if one
// of them fails.
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

var concurrentTests = []test{
	// Adds to one key at the same time all count, and none of them conflicts.
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

		f.wantPairs(f.beginRead(), model{"n": number(workers * rounds)})
	}},
	// Transfers at the same time neither make money nor lose any, as every reader sees.
	{"Bank", func(f *fixture) {
		const accounts, each = 5, 100
		for i := range accounts {
			f.write(set(fmt.Sprint("account ", i), number(each)))
		}

		seed := f.seed()
		var randoms [workers]*rand.Rand
		for i := range randoms {
			randoms[i] = rand.New(rand.NewPCG(seed, uint64(i)))
		}

		f.together(func(worker int) error {
			random := randoms[worker]
			account := func() []byte { return f.key(fmt.Sprint("account ", random.IntN(accounts))) }
			from, to, amount := account(), account(), random.Int64N(each)
			err := kv.Update(f.ctx, f.db, func(tx kv.Transaction) error {
				has, err := balance(tx, from)
				if err != nil || has < amount {
					return err
				}

				tx.Set(from, []byte(number(has-amount)))
				// Read after the write: it may be the same account.
				has, err = balance(tx, to)
				tx.Set(to, []byte(number(has+amount)))
				return err
			})

			return errors.Join(err, f.audit(accounts*each))
		})
	}},
}

// balance reads a number as Add stores it.
func balance(r kv.Reader, key []byte) (int64, error) {
	value, err := r.Get(key).Get()
	if err != nil || len(value) != 8 {
		return 0, errors.Join(err, fmt.Errorf("the value of %q is %q", key, value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// audit checks the sum of all accounts.
func (f *fixture) audit(want int64) error {
	return kv.View(f.ctx, f.db, func(r kv.Reader) error {
		pairs, err := r.GetRange(f.all(), kv.RangeOptions{}).Get()
		var sum int64
		for _, pair := range pairs {
			sum += int64(binary.LittleEndian.Uint64(pair.Value))
		}
		if err == nil && sum != want {
			err = fmt.Errorf("the accounts hold %d, want %d", sum, want)
		}

		return err
	})
}
