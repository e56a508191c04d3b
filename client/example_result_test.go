package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// A job is pushed, and its result is asked for later, maybe by another program.
func ExampleQueue_Result() {
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("kept-jobs")
	push, err := jobs.Push(ctx, 5, []byte("6 * 7"), client.Keep(24*time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	job, err := jobs.Lease(ctx)
	if err != nil {
		log.Fatal(err)
	}
	job.SetResult([]byte("42"), "text/plain")
	if err := job.Ack(ctx); err != nil {
		log.Fatal(err)
	}

	r, err := jobs.Result(ctx, push.ID, client.Wait(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", r.State, r.Value)
	// Output: done: 42
}

// A Call is a function call that survives the crash of either end. The worker may be another
// program.
func ExampleQueue_Call() {
	ctx, stop := context.WithCancel(context.Background())
	nc, err := client.Connect(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	jobs := client.New(nc).PriorityQueue("called-jobs")
	worker, err := jobs.NewWorker(client.Returns(
		func(_ context.Context, job *client.Job) ([]byte, error) {
			if len(job.Value) == 0 {
				return nil, client.Drop("nothing to shout")
			}
			return bytes.ToUpper(job.Value), nil
		},
	), client.WorkerOptions{})
	if err != nil {
		log.Fatal(err)
	}

	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()

	// After a crash, a call with the same message id waits for the same job.
	r, err := jobs.Call(ctx, 5, []byte("hello"), client.MsgID("shout-1"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.Value)

	_, err = jobs.Call(ctx, 5, nil)
	if failed := new(client.JobFailed); errors.As(err, &failed) {
		fmt.Println("it failed:", failed.Reason)
	}

	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output:
	// HELLO
	// it failed: nothing to shout
}

// Caller and worker share the declaration of a Function.
var Count client.Function[Text, Words]

type (
	Text  struct{ Content string }
	Words struct{ Number int }
)

func ExampleFunction() {
	ctx, stop := context.WithCancel(context.Background())
	nc, err := client.Connect(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	jobs := client.New(nc).PriorityQueue("counts")
	worker, err := jobs.NewWorker(Count.Work(
		func(_ context.Context, _ *client.Job, text Text) (Words, error) {
			return Words{len(strings.Fields(text.Content))}, nil
		},
	), client.WorkerOptions{})
	if err != nil {
		log.Fatal(err)
	}

	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()

	words, err := Count.Call(ctx, jobs, 5, Text{"write the report"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(words.Number, "words")

	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output: 3 words
}
