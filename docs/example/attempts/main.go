// Says how each attempt at the first letter of queue "letters-dead" has ended.
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
	check(err)
	defer nc.Close()
	ctx := context.Background()

	first, err := client.New(nc).PriorityQueue("letters-dead").Peek(ctx)
	check(err)
	letter, _, err := client.New(nc).PriorityQueue("letters").Get(ctx, first.ID)
	check(err)
	for _, a := range letter.Attempts {
		fmt.Printf("life %d, attempt %d: %s, %q\n", a.Life, a.Number, a.How, a.Reason)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
