// Pushes with every option, sets limits and schedules, uses a FIFO queue, and leases by hand.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func main() {
	ctx := context.Background()
	nc, err := client.Connect(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()
	queues := client.New(nc)

	push(ctx, queues.PriorityQueue("tour"))
	schedules(ctx, queues.PriorityQueue("tour"))
	limits(ctx, queues.PriorityQueue("tour"))
	fifo(ctx, queues.FIFOQueue("events"))
	joins(ctx, queues.PriorityQueue("books"))
	byHand(ctx, queues.PriorityQueue("by-hand"))
}

func push(ctx context.Context, jobs *client.Queue) {
	pushed, err := jobs.Push(ctx, 5, []byte("to eve"), client.Type("email"), client.Keep(time.Hour))
	if errors.Is(err, client.ErrUnknownOutcome) {
		log.Fatal("it may be in the queue, or not") // with a message id, push it again
	}
	check(err)
	fmt.Println("pushed", pushed.ID != "", pushed.Duplicate)

	options := []client.PushOption{
		client.Delay(10 * time.Minute),         // or At(t)
		client.TTL(7 * 24 * time.Hour),         // gone if it is not done by then
		client.Group("acme"), client.Weight(3), // groups take turns, this one by threes
		client.Unique("order-7"), // nothing, while one with this key is there
		client.MsgID("order-7, " + time.Now().String()),
	}
	_, err = jobs.Push(ctx, -1, []byte("later"), options...)
	check(err)

	var items []client.PushItem
	for n := range 1000 {
		m := client.Message{Value: fmt.Append(nil, "page ", n)}
		items = append(items, client.PushItem{Priority: 5, Message: m})
	}
	results, err := jobs.PushMany(ctx, items)
	check(err) // of the first that failed; results has the others
	fmt.Println("pushed", len(results))
}

func schedules(ctx context.Context, jobs *client.Queue) {
	nightly := client.Schedule{
		ID: "nightly", Cron: "0 3 * * *", Zone: "Europe/Berlin", Value: []byte("report"),
	}
	_, err := jobs.SetSchedule(ctx, nightly)
	check(err)
	often := client.Schedule{ID: "often", Every: client.Interval(15 * time.Minute)}
	_, err = jobs.SetSchedule(ctx, often)
	check(err)
	_, err = jobs.RunSchedule(ctx, "nightly") // now, besides
	check(err)
	check(jobs.Unschedule(ctx, "often"))
}

func limits(ctx context.Context, jobs *client.Queue) {
	settings, err := jobs.Configure(ctx, client.Settings{
		MaxLeased: 50, MaxLeasedPerGroup: 2, // jobs at a time: of the queue, and of each group
		MaxItems: 100_000, // then pushes are refused: ErrOverloaded
	})
	check(err)
	fmt.Println("at most", settings.MaxItems)
}

func fifo(ctx context.Context, events *client.Queue) {
	_, err := events.Push(ctx, 0, []byte("first"))
	check(err)
	_, err = events.Push(ctx, 0, []byte("second"))
	check(err)
	item, err := events.Pop(ctx)
	check(err)
	fmt.Printf("%s\n", item.Value)
}

func joins(ctx context.Context, jobs *client.Queue) {
	page := client.Message{Value: []byte("7")}.With(client.Type("page"), client.Header("Page", "7"))
	report := client.PushItem{Message: client.Message{Value: []byte("report")}}
	_, _, err := jobs.All(ctx, report, client.PushItem{Message: page})
	check(err)
}

func byHand(ctx context.Context, jobs *client.Queue) {
	_, err := jobs.Push(ctx, 5, []byte("write the report"))
	check(err)
	job, err := jobs.Lease(ctx, client.AckWait(time.Minute), client.Expires(10*time.Second))
	if errors.Is(err, client.ErrEmpty) {
		return // ten seconds without a job
	}
	check(err)
	_, err = job.Extend(ctx) // before the minute is over
	check(err)
	err = job.Ack(ctx)
	if errors.Is(err, client.ErrLeaseLost) {
		log.Fatal("somebody else has it") // and this one counts for nothing
	}
	check(err)
	fmt.Printf("done: %s\n", job.Value)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
