package kv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// Two accounts are read and written in one transaction. If somebody else changes one of them in the
// meantime, the commit fails with a conflict and Update runs the function again.
func Example() {
	var db kv.Database = memkv.New(memkv.Options{})
	defer func() { _ = db.Close() }()
	ctx := context.Background()

	err := kv.Update(ctx, db, func(tx kv.Transaction) error {
		tx.Set([]byte("account/ann"), []byte("30"))
		tx.Set([]byte("account/bob"), []byte("12"))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	err = kv.Update(ctx, db, func(tx kv.Transaction) error {
		// Both reads are under way before the first is waited for.
		ann, bob := tx.Get([]byte("account/ann")), tx.Get([]byte("account/bob"))
		fromAnn, err := ann.Get()
		if err != nil {
			return err
		}

		fromBob, err := bob.Get()
		if err != nil {
			return err
		}

		tx.Set([]byte("account/ann"), fromBob)
		tx.Set([]byte("account/bob"), fromAnn)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	all := kv.Range{Begin: []byte("account/"), End: []byte("account0")}
	err = kv.View(ctx, db, func(r kv.Reader) error {
		pairs, err := r.GetRange(all, kv.RangeOptions{Limit: 100}).Get()
		for _, pair := range pairs {
			fmt.Printf("%s has %s\n", pair.Key, pair.Value)
		}

		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// account/ann has 12
	// account/bob has 30
}

// Transact returns a result. The counter of Add needs no read, so such transactions never conflict.
func ExampleTransact() {
	var db kv.Database = memkv.New(memkv.Options{})
	defer func() { _ = db.Close() }()

	visits := []byte("visits")
	count := func(tx kv.Transaction) ([]byte, error) {
		tx.Add(visits, 1)
		return tx.Snapshot().Get(visits).Get()
	}

	for range 2 {
		value, err := kv.Transact(context.Background(), db, count)
		if err != nil {
			log.Fatal(err)
		}

		fmt.Println(value)
	}

	// Output:
	// [1 0 0 0 0 0 0 0]
	// [2 0 0 0 0 0 0 0]
}
