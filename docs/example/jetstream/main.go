// A producer and a worker written for JetStream, with only nats.go's package jetstream:
//
//	jetstream push    pushes three jobs, each of them once, however often it is run
//	jetstream work    does one job at a time, the most urgent first, and waits, until Ctrl-C
//
// Only the domain and the names of stream and consumer show that it is a queue.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(20*time.Second))
	check(err)
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, "pq")
	check(err)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch append(os.Args, "")[1] {
	case "push":
		check(push(ctx, js))
	case "work":
		check(work(ctx, js))
	default:
		log.Fatal("usage: jetstream push|work")
	}
}

// push pushes jobs. The last token of the subject is the priority.
func push(ctx context.Context, js jetstream.JetStream) error {
	before := 0
	for _, job := range []struct{ subject, id, text string }{
		{"pq.jobs.push.5", "report", "write the report"},
		{"pq.jobs.push.3", "call", "call back"},
		{"pq.jobs.push.1", "fire", "put out the fire"},
	} {
		ack, err := js.Publish(ctx, job.subject, []byte(job.text), jetstream.WithMsgID(job.id))
		if err != nil {
			return err
		}
		if ack.Duplicate {
			before++
		}
	}

	fmt.Printf("%d pushed, %d were there before\n", 3-before, before)
	return nil
}

// work does jobs until ctx ends.
func work(ctx context.Context, js jetstream.JetStream) error {
	jobs, err := js.Consumer(ctx, "jobs", "min")
	if err != nil {
		return err
	}

	for ctx.Err() == nil {
		job, err := jobs.Next(jetstream.FetchContext(ctx)) // asks for one job, once it can do it
		switch {
		case ctx.Err() != nil: // a job that came just now comes back when its lease ends
		case errors.Is(err, nats.ErrTimeout): // nothing came for 30 s
		case err != nil:
			pause(ctx, err)
		default:
			do(job)
		}
	}
	return nil
}

// do does a job. One that takes longer than ack_wait has to call job.InProgress now and then.
func do(job jetstream.Msg) {
	if err := handle(job); err != nil { // it comes back, at its old place
		settled(job, job.Nak())
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	settled(job, job.DoubleAck(ctx)) // waits until the disk has it; job.Ack does not
}

func settled(job jetstream.Msg, err error) {
	if err != nil { // without an answer, the job may come once more
		log.Printf("%s: %v", job.Data(), err)
	}
}

// handle is the work itself.
func handle(job jetstream.Msg) error {
	about, err := job.Metadata()
	if err != nil {
		return err
	}
	fmt.Printf("%s (delivery %d)\n", job.Data(), about.NumDelivered)
	if string(job.Data()) == "call back" && about.NumDelivered == 1 {
		return errors.New("the line is busy")
	}
	return nil
}

func pause(ctx context.Context, why error) {
	log.Printf("trying again: %v", why)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
