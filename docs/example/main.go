// Pushes two jobs and pops the one that comes first.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	ctx := context.Background()
	jobs := client.New(nc).PriorityQueue("jobs")
	for job, priority := range map[string]int64{"write the report": 5, "put out the fire": 1} {
		if _, err := jobs.Push(ctx, priority, []byte(job)); err != nil {
			log.Fatal(err)
		}
		// From here on the job is on disk.
	}

	first, err := jobs.PopMin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s (priority %d)\n", first.Value, first.Priority)
}
