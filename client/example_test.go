package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func Example() {
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("jobs")
	if _, err := jobs.Push(ctx, 5, []byte("write the report")); err != nil {
		log.Fatal(err)
	}

	item, err := jobs.Pop(ctx)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("%s (priority %d)\n", item.Value, item.Priority)
	// Output: write the report (priority 5)
}

// Each job is leased for a minute. If this program dies, somebody else gets the job. A Worker does
// the same with less code.
func ExampleDelivery() {
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("leased-jobs")
	items := []client.PushItem{job("write the report"), job("file it")}
	if _, err := jobs.PushBatch(ctx, items); err != nil {
		log.Fatal(err)
	}

	d, err := jobs.Lease(ctx, client.AckWait(time.Minute))
	for err == nil {
		if work(d.Value) == nil {
			d, err = d.Next(ctx) // done with this one
			continue
		}
		if err = d.Nak(ctx, 10*time.Second); err == nil { // again in ten seconds
			d, err = jobs.Lease(ctx, client.AckWait(time.Minute))
		}
	}

	if !errors.Is(err, client.ErrEmpty) {
		log.Fatal(err)
	}
	// Output:
	// write the report: done
	// file it: done
}

func job(value string) client.PushItem {
	return client.PushItem{Message: client.Message{Value: []byte(value)}}
}

// work does a job.
func work(value []byte) error {
	switch string(value) {
	case "call back":
		return errBusy
	case "square the circle":
		return errNonsense
	}

	fmt.Printf("%s: done\n", value)
	return nil
}

var errBusy, errNonsense = errors.New("busy"), errors.New("nonsense")

// On SIGINT and SIGTERM the worker finishes the jobs under way, and begins no others.
func ExampleWorker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := client.Connect(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	jobs := client.New(nc).PriorityQueue("workers-jobs")
	worker, err := jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		switch err := work(job.Value); {
		case errors.Is(err, errBusy):
			return client.Snooze(time.Minute) // does not count
		case errors.Is(err, errNonsense):
			return client.Drop("nobody can do that") // a dead letter
		default:
			return err // nil: done. Otherwise again, as the queue's backoff says
		}
	}, client.WorkerOptions{Middleware: []func(client.Work) client.Work{untilHome(stop)}})
	if err != nil {
		log.Fatal(err)
	}

	_, err = jobs.PushBatch(ctx, []client.PushItem{
		job("write the report"), job("call back"), job("square the circle"), job("go home"),
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// write the report: done
	// go home: done
}

// One worker for two queues: of ten jobs, nine are urgent as long as there are that many.
func ExampleNewWorker() {
	ctx, stop := context.WithCancel(context.Background())
	nc, err := client.Connect(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	c := client.New(nc)
	urgent, mail := c.PriorityQueue("urgent"), c.FIFOQueue("mail")

	worker, err := client.NewWorker(func(_ context.Context, job *client.Job) error {
		fmt.Printf("%s: %s\n", job.Queue, job.Value)
		stop()
		return nil
	}, client.WorkerOptions{}, urgent.Weight(9), mail.Weight(1))
	if err != nil {
		log.Fatal(err)
	}

	if _, err := mail.Push(ctx, 0, []byte("hello")); err != nil {
		log.Fatal(err)
	}

	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: mail: hello
}

// untilHome stops the worker of the example.
func untilHome(stop func()) func(client.Work) client.Work {
	return func(work client.Work) client.Work {
		return func(ctx context.Context, job *client.Job) error {
			if string(job.Value) == "go home" {
				stop()
			}
			return work(ctx, job)
		}
	}
}

// More items than fit into one batch. With message ids, what failed can be pushed again, even if
// nobody knows whether it is in the queue.
func ExampleQueue_PushMany() {
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("many-jobs")
	var items []client.PushItem
	for i := range 10_000 {
		m := client.Message{Value: fmt.Appendf(nil, "job %d", i)}
		m = m.With(client.MsgID(fmt.Sprint("job-", i)))
		items = append(items, client.PushItem{Priority: 5, Message: m})
	}

	for attempt := 0; len(items) > 0; attempt++ {
		results, err := jobs.PushMany(ctx, items)
		if err != nil && (attempt == 10 || errors.Is(err, client.ErrBadRequest)) {
			log.Fatal(err) // its text has how many are in the queue
		}

		for len(results) > 0 && results[0].Err == nil { // the first are
			items, results = items[1:], results[1:]
		}
	}

	n, err := jobs.Len(ctx)
	fmt.Println(n, err)
	// Output: 10000 <nil>
}

// Items are pushed as they come, without waiting for each.
func ExampleProducer() {
	ctx := context.Background()
	nc, err := client.Connect(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	// PushAsync waits while 1,000 pushes are under way.
	jobs := client.New(nc).PriorityQueue("async-jobs")
	producer, err := jobs.NewProducer(client.ProducerOptions{MaxItems: 1000})
	if err != nil {
		log.Fatal(err)
	}

	var pushes []*client.PushFuture
	for i := range 5000 {
		m := client.Message{Value: fmt.Appendf(nil, "job %d", i)}
		push, err := producer.PushAsync(ctx, 5, m, client.MsgID(fmt.Sprint("job-", i)))
		if err != nil {
			log.Fatal(err)
		}

		pushes = append(pushes, push)
	}

	if err := producer.Close(ctx); err != nil {
		log.Fatal(err)
	}

	for i, push := range pushes {
		if _, err := push.Wait(ctx); err != nil {
			log.Printf("job %d: %v", i, err)
		}
	}

	n, err := jobs.Len(ctx)
	fmt.Println(n, err)
	// Output: 5000 <nil>
}
