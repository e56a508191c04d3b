// Pushes a thousand invitations, each of them once, however often it is run.
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
	ctx := context.Background()
	nc, err := client.Connect(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()

	invitations := client.New(nc).PriorityQueue("invitations")
	producer, err := invitations.NewProducer(client.ProducerOptions{})
	check(err)
	var pushes []*client.PushFuture
	for i := range 1000 {
		invitation := client.Message{Value: fmt.Appendf(nil, "to guest %d", i)}
		push, err := producer.PushAsync(ctx, 5, invitation, client.MsgID(fmt.Sprint("guest-", i)))
		check(err)
		pushes = append(pushes, push)
	}

	check(producer.Close(ctx))
	before := 0
	for _, push := range pushes {
		ack, err := push.Wait(ctx)
		check(err) // not in the queue, or nobody knows: run it again
		if ack.Duplicate {
			before++
		}
	}

	fmt.Printf("%d invitations pushed, %d were there before\n", len(pushes)-before, before)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
