package fdbpq_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A push is part of the caller's own transaction: it stores the order and queues the job of
// packing it, or neither.
func ExamplePriorityQueue_Push() {
	ctx := context.Background()
	db := memkv.New(memkv.Options{}) // or any other engine
	defer db.Close()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		log.Fatal(err)
	}

	jobs, err := keyspace.PriorityQueue("packing")
	if err != nil {
		log.Fatal(err)
	}

	_, err = kv.Transact(ctx, db, func(tx kv.Transaction) (fdbpq.ID, error) {
		tx.Set(tuple.Tuple{"orders", 4711}.Pack(), []byte("two books"))
		return jobs.Push(tx, 5, fdbpq.Message{Value: []byte("pack order 4711")})
	})
	if err != nil {
		log.Fatal(err) // if it wraps kv.ErrCommitUnknown it may have happened
	}

	job, err := kv.Transact(ctx, db, jobs.PopMin)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("priority %d: %s\n", job.ID.Priority, job.Value)

	// Output: priority 5: pack order 4711
}

// A worker leases a job, and acknowledges it in the transaction that stores the result: both happen
// or neither. If the worker dies, the job comes back when the lease is over.
func ExamplePriorityQueue_LeaseMin() {
	ctx := context.Background()
	db := memkv.New(memkv.Options{})
	defer db.Close()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		log.Fatal(err)
	}

	jobs, err := keyspace.PriorityQueue("packing")
	if err != nil {
		log.Fatal(err)
	}

	var job fdbpq.Item
	var lease fdbpq.Lease

	err = kv.Update(ctx, db, func(tx kv.Transaction) error {
		_, err := jobs.Push(tx, 5, fdbpq.Message{Value: []byte("pack order 4711")})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	err = kv.Update(ctx, db, func(tx kv.Transaction) (err error) {
		job, lease, err = jobs.LeaseMin(tx, time.Minute)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("delivery %d: %s\n", lease.Deliveries, job.Value)

	// The work is done outside of transactions.
	err = kv.Update(ctx, db, func(tx kv.Transaction) error {
		tx.Set(tuple.Tuple{"packed", 4711}.Pack(), []byte("two books"))
		return jobs.Ack(tx, lease.Token)
	})

	// fdbpq.ErrLeaseLost if somebody else has the job by now.
	fmt.Println("acknowledged:", err == nil)

	// Output:
	// delivery 1: pack order 4711
	// acknowledged: true
}

// A Batcher runs the operations of many callers in one transaction, and handles commits of
// unknown outcome by itself.
func ExampleBatcher() {
	ctx := context.Background()
	db := memkv.New(memkv.Options{})
	defer db.Close()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		log.Fatal(err)
	}

	jobs, err := keyspace.PriorityQueue("jobs")
	if err != nil {
		log.Fatal(err)
	}

	batcher := fdbpq.NewBatcher(db, keyspace)
	results, err := batcher.Apply(ctx, []fdbpq.Op{
		{
			Kind:     fdbpq.OpPush,
			Queue:    jobs,
			Priority: 7,
			Message:  fdbpq.Message{Value: []byte("sweep")},
		},
		{
			Kind:     fdbpq.OpPush,
			Queue:    jobs,
			Priority: -1,
			Message:  fdbpq.Message{Value: []byte("put out the fire")},
		},
		{Kind: fdbpq.OpPop, Queue: jobs},
		{Kind: fdbpq.OpPop, Queue: jobs},
		{Kind: fdbpq.OpPop, Queue: jobs},
	})
	if err != nil {
		log.Fatal(err)
	}

	for _, popped := range results[2:] {
		if popped.Err != nil {
			fmt.Println(popped.Err)
			continue
		}
		fmt.Printf("%s\n", popped.Item.Value)
	}

	// Output:
	// put out the fire
	// sweep
	// fdbpq: the queue is empty
}
