//go:build fdb

// Keeps a shop's packing jobs in a queue beside the shop's own data, and changes both in
// one transaction of FoundationDB's Go binding.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
)

func main() {
	fdb.MustAPIVersion(730)
	if err := run(fdb.MustOpenDefault(), []string{"shop"}, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// shop is the data of a shop: orders, what each worker is packing, and the jobs
// that nobody has started.
type shop struct {
	db              fdb.Database
	orders, packing subspace.Subspace
	jobs            *fdbpq.PriorityQueue
}

func openShop(db fdb.Database, path []string) (*shop, error) {
	dir, err := directory.CreateOrOpen(db, path, nil)
	if err != nil {
		return nil, err
	}
	return &shop{
		db:      db,
		orders:  dir.Sub("orders"),
		packing: dir.Sub("packing"),
		jobs:    fdbpq.NewPriorityQueue(dir.Sub("jobs"), fdbpq.RawValues),
	}, nil
}

// place stores an order and queues the job of packing it: both or neither.
func (s *shop) place(number, priority int64, goods string) error {
	order := s.orders.Pack(tuple.Tuple{number})
	_, err := s.db.Transact(func(tr fdb.Transaction) (any, error) {
		if tr.Get(order).MustGet() != nil {
			return nil, nil // an earlier attempt succeeded, though its commit got no answer
		}
		tr.Set(order, []byte(goods))
		return s.jobs.Push(fdbkv.Wrap(tr), priority, fdbpq.Message{Value: order})
	})
	return err
}

// start gives a worker the most urgent job, or the one it already has, and returns the
// goods to pack.
func (s *shop) start(worker string) (string, error) {
	mine := s.packing.Pack(tuple.Tuple{worker})
	goods, err := s.db.Transact(func(tr fdb.Transaction) (any, error) {
		order := tr.Get(mine).MustGet()
		if order == nil {
			job, err := s.jobs.PopMin(fdbkv.Wrap(tr))
			if err != nil {
				return nil, err // fdbpq.ErrEmpty, or a conflict that Transact retries
			}
			order = job.Value
			tr.Set(mine, order)
		}
		return string(tr.Get(fdb.Key(order)).MustGet()), nil
	})
	if err != nil {
		return "", err
	}
	return goods.(string), nil
}

// waiting returns the number of jobs that nobody has started.
func (s *shop) waiting() (int64, error) {
	n, err := s.db.ReadTransact(func(rt fdb.ReadTransaction) (any, error) {
		return s.jobs.Len(fdbkv.WrapRead(rt))
	})
	if err != nil {
		return 0, err
	}
	return n.(int64), nil
}

// dispatch takes the most urgent job in a way that suits many processes doing so at the
// same time.
func (s *shop) dispatch(ctx context.Context) (fdbpq.Item, error) {
	store, err := fdbkv.New(s.db, 0)
	if err != nil {
		return fdbpq.Item{}, err
	}
	defer store.Close() // s.db stays open
	return staged.New(store, s.jobs).PopMin(ctx)
}

func run(db fdb.Database, path []string, out io.Writer) error {
	s, err := openShop(db, path)
	if err != nil {
		return err
	}
	for number, goods := range []string{"a globe", "two books", "an umbrella"} {
		if err := s.place(int64(number), int64(-number), goods); err != nil {
			return err
		}
	}
	goods, err := s.start("Ada")
	if err != nil {
		return err
	}
	n, err := s.waiting()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Ada packs %s, %d jobs are waiting\n", goods, n)
	job, err := s.dispatch(context.Background())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the next one had priority %d\n", job.ID.Priority)
	return nil
}
