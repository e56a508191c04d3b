// Serves a hundred tenants in turn, though one of them has pushed most of the items, and before the
// others.
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

const (
	tenants = 100
	each    = 5
	flood   = 5000 // of the first tenant
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()
	ctx, q := context.Background(), client.New(nc).PriorityQueue("tenants")

	var items []client.PushItem
	push := func(tenant string, n int) {
		for i := range n {
			m := client.Message{Value: fmt.Appendf(nil, "%s, number %d", tenant, i)}
			m = m.With(client.Group(tenant))
			items = append(items, client.PushItem{Priority: 5, Message: m})
		}
	}

	push("tenant 0", flood)
	for i := 1; i < tenants; i++ {
		push(fmt.Sprint("tenant ", i), each)
	}

	_, err = q.PushMany(ctx, items)
	check(err)

	served := map[string]int{}
	for range tenants * each {
		item, err := q.Pop(ctx)
		check(err)
		served[item.Group]++
	}
	fmt.Printf("%d items, %d of each of %d tenants\n",
		tenants*each, served["tenant 99"], len(served))

	_, err = q.Purge(ctx, "")
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
