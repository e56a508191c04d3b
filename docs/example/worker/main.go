// Sends the letters of queue "letters": it writes each of them to a folder, named after the id of
// its job.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
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
	check(os.MkdirAll(outbox, 0o755))

	letters := client.New(nc).PriorityQueue("letters")
	worker, err := letters.NewWorker(send, client.WorkerOptions{
		Concurrency: 2,
		AckWait:     time.Second, // short, so that you need not wait long
	})

	check(err)
	check(worker.Run(ctx)) // until Ctrl-C
}

var outbox = filepath.Join(os.TempDir(), "outbox")

func send(ctx context.Context, job *client.Job) error {
	to, _, _ := strings.Cut(string(job.Value), ":")
	fmt.Printf("to %s, delivery %d\n", to, job.Deliveries)
	switch to {
	case "":
		return client.Drop("no address")
	case "holiday":
		return client.Snooze(time.Minute)
	case "full":
		return errors.New("the mailbox is full")
	case "slow":
		if job.Deliveries > 1 {
			break // the second time is easier
		}

		select {
		case <-time.After(20 * time.Second):
		case <-ctx.Done(): // somebody else may have the job
			return ctx.Err()
		}
	}
	return os.WriteFile(filepath.Join(outbox, job.ID), job.Value, 0o644)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
