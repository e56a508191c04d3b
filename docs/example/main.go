// Pushes two jobs, and does the more urgent one.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()
	ctx := context.Background()
	jobs := client.New(nc).PriorityQueue("jobs")

	_, err = jobs.Push(ctx, 5, []byte("write the report"))
	check(err)
	_, err = jobs.Push(ctx, 1, []byte("put out the fire"))
	check(err) // both jobs are on disk now

	// If this program dies, another one gets the job when the lease is over.
	job, err := jobs.Lease(ctx, client.AckWait(time.Minute))
	check(err)
	fmt.Printf("%s (delivery %d)\n", job.Value, job.Deliveries)
	check(job.Ack(ctx)) // done; job.Nak gives it back, job.Next leases the next as well
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
