//go:build fdb

package fdbkv_test

import (
	"fmt"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// Take the most urgent job and mark it as started, in one transaction of the
// program's own: either both happen or neither does.
func ExampleWrap() {
	db, err := fdb.OpenDefault()
	if err != nil {
		fmt.Println(err)
		return
	}
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs, err := keyspace.PriorityQueue("jobs")
	if err != nil {
		fmt.Println(err)
		return
	}
	started, err := db.Transact(func(tr fdb.Transaction) (any, error) {
		job, err := jobs.PopMin(fdbkv.Wrap(tr))
		if err != nil {
			return nil, err // conflicts among others, which Transact retries
		}
		tr.Set(fdb.Key("started/"+job.ID.String()), job.Value)
		return job.ID.String(), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started", started)
}
