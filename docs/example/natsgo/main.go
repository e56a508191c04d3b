// A producer and two kinds of workers with nothing but nats.go, as a pattern for clients in other languages:
//
//	natsgo push     pushes three jobs, each of them once, however often it is run
//	natsgo work     does one job at a time, and waits for more, until Ctrl-C
//	natsgo digest   leases the jobs that are there, and is done with all of them at once
//
// Programs in Go have less to write with package client.
package main

import (
	"cmp"
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/docs/example/natsgo/jobs"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1)) // a request that was given up while NATS was away must not be sent later
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, *nats.Conn, io.Writer) error{
		"push": jobs.Push, "work": jobs.Work, "digest": jobs.Digest,
	}
	command := commands[append(os.Args, "")[1]]
	if command == nil {
		log.Fatal("usage: natsgo push|work|digest")
	}
	if err := command(ctx, nc, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
