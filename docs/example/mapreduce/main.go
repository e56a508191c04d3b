// Counts the words of a text in parts, and adds the counts once all parts are counted.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := client.Connect(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()

	words := client.New(nc).PriorityQueue("words")
	var mux client.Mux
	mux.Handle("split", split)
	mux.Handle("count", client.Returns(count))
	mux.Handle("add", func(ctx context.Context, job *client.Job) error {
		return add(ctx, words, job)
	})
	worker, err := words.NewWorker(mux.Work, client.WorkerOptions{
		AckWait: time.Second, // short, so that you need not wait long
	})
	check(err)
	check(worker.Run(ctx))
}

// split has a job for each line, and one that runs after them.
func split(_ context.Context, job *client.Job) error {
	total, err := job.ThenJoin("words", 5, nil, client.Type("add"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(job.Value) {
		err := job.Then("words", 5, line, client.Type("count"), client.Joiner(total),
			client.Keep(time.Hour))
		if err != nil {
			return err
		}
	}
	return nil
}

func count(ctx context.Context, job *client.Job) ([]byte, error) {
	fmt.Printf("counting %q, delivery %d\n", bytes.TrimSpace(job.Value), job.Deliveries)
	if job.Deliveries == 1 && bytes.Contains(job.Value, []byte("slow")) {
		<-ctx.Done() // it hangs, so that you can kill it
		return nil, ctx.Err()
	}
	return []byte(strconv.Itoa(len(bytes.Fields(job.Value)))), nil
}

// add reads the results of the members of its join, which are kept for an hour.
func add(ctx context.Context, words *client.Queue, job *client.Job) error {
	members := client.ItemsOptions{
		State:      client.Done,
		ValueBytes: 65536, // also of results, else they are cut at 1,024: see ResultCut
		Headers:    map[string]string{"Pq-Joiner": job.JoinerRef().String()},
	}
	sum := 0
	for next := new(string); next != nil; {
		members.After = *next
		page, err := words.Items(ctx, members)
		if err != nil {
			return err
		}
		for _, part := range page.Items {
			n, err := strconv.Atoi(string(part.Result))
			if err != nil {
				return err
			}
			sum += n
		}
		next = page.Next
	}
	fmt.Printf("%d words in %d lines, %d lost\n", sum, job.Joined.Done, job.Joined.Dead)
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
