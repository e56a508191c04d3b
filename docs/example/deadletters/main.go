// Says why the first letter of queue "letters-dead" was given up, and sends all of them home.
package main

import (
	"cmp"
	"context"
	"errors"
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

	dead := client.New(nc).PriorityQueue("letters-dead")
	first, err := dead.Peek(ctx)
	if errors.Is(err, client.ErrEmpty) {
		fmt.Println("there are no dead letters")
		return
	}

	check(err)
	why := first.DeadLetter
	fmt.Printf("%s: %s after %d deliveries, %q\n",
		first.Value, why.Reason, why.Deliveries, why.Error)
	n, err := dead.Redrive(ctx, 0) // all of them
	check(err)
	fmt.Printf("%d sent home\n", n)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
