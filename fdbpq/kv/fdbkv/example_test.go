//go:build fdb

package fdbkv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
)

// path is the directory that the examples use.
var path = []string{"shop"}

// Queue a job and store what it is about, then take the job and mark it as started:
// each in one transaction of the program's own.
func ExampleWrap() {
	db := fdb.MustOpenDefault()
	shop, err := directory.CreateOrOpen(db, path, nil)
	if err != nil {
		log.Fatal(err)
	}

	jobs := fdbpq.NewPriorityQueue(shop.Sub("jobs"), fdbpq.RawValues)

	_, err = db.Transact(func(tr fdb.Transaction) (any, error) {
		tr.Set(shop.Sub("order", 4711), []byte("two books"))
		return jobs.Push(fdbkv.Wrap(tr), 5, fdbpq.Message{Value: []byte("pack order 4711")})
	})
	if err != nil {
		log.Fatal(err)
	}

	started, err := db.Transact(func(tr fdb.Transaction) (any, error) {
		job, err := jobs.PopMin(fdbkv.Wrap(tr))
		if err != nil {
			return nil, err // a conflict, for example, which Transact retries
		}

		tr.Set(shop.Sub("started", job.ID.String()), job.Value)
		return job.Value, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("%s\n", started)
	// prints: pack order 4711
}

func ExampleWrapRead() {
	db := fdb.MustOpenDefault()
	shop, err := directory.CreateOrOpen(db, path, nil)
	if err != nil {
		log.Fatal(err)
	}

	jobs := fdbpq.NewPriorityQueue(shop.Sub("jobs"), fdbpq.RawValues)

	waiting, err := db.ReadTransact(func(rt fdb.ReadTransaction) (any, error) {
		return jobs.Len(fdbkv.WrapRead(rt))
	})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(waiting)
	// prints: 0
}

// What works on a kv.Database, such as a Popper, a Batcher or a bridge, can use the
// database that the program has open.
func ExampleNew() {
	db := fdb.MustOpenDefault()
	shop, err := directory.CreateOrOpen(db, path, nil)
	if err != nil {
		log.Fatal(err)
	}

	jobs := fdbpq.NewPriorityQueue(shop.Sub("jobs"), fdbpq.RawValues)

	store, err := fdbkv.New(db, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // leaves db open
	ctx := context.Background()
	_, err = kv.Transact(ctx, store, func(tx kv.Transaction) (fdbpq.ID, error) {
		return jobs.Push(tx, 5, fdbpq.Message{Value: []byte("pack order 4712")})
	})
	if err != nil {
		log.Fatal(err) // if it wraps kv.ErrCommitUnknown, the job may be queued
	}

	job, err := staged.New(store, jobs).PopMin(ctx)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("%s\n", job.Value)
	// prints: pack order 4712
}
