package staged_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Workers that pop from one queue at the same time share a Popper, or have one in each
// process. Their pops are served together instead of conflicting.
func ExamplePopper() {
	ctx := context.Background()
	db := memkv.New(memkv.Options{})
	defer db.Close()
	jobs := fdbpq.NewPriorityQueue(tuple.NewSubspace(tuple.Tuple{"jobs"}), fdbpq.RawValues)
	const workers = 4

	_, err := kv.Transact(ctx, db, func(tx kv.Transaction) (struct{}, error) {
		for n := range workers {
			_, err := jobs.Push(tx, int64(n), fdbpq.Message{Value: []byte(fmt.Sprint("job ", n))})
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	popper := staged.New(db, jobs)
	var all sync.WaitGroup

	for range workers {
		all.Go(func() {
			job, err := popper.PopMin(ctx)
			if err != nil {
				log.Print(err) // if it wraps kv.ErrCommitUnknown, the next pop settles it
				return
			}

			fmt.Printf("%s\n", job.Value)
		})
	}

	all.Wait()
	// Unordered output:
	// job 0
	// job 1
	// job 2
	// job 3
}
