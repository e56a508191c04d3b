package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// A program can run the whole service itself: a NATS server, a store and a bridge. For
// a store on disk, use package pebblekv in place of memkv.
func Example() {
	nats, err := server.NewServer(
		&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}

	nats.Start()
	defer nats.WaitForShutdown()
	defer nats.Shutdown()

	store := memkv.New(memkv.Options{})
	defer store.Close() // after Run has returned: the bridge does not close it
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		log.Fatal(err)
	}

	grammar, err := subjects.New("pq", "q")
	if err != nil {
		log.Fatal(err)
	}

	b, err := bridge.New(bridge.Options{
		NATSURL:  nats.ClientURL(),
		DB:       store,
		Keyspace: keyspace,
		Grammar:  grammar,
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()

	if err := pushAndPop(nats.ClientURL()); err != nil {
		log.Fatal(err)
	}

	stop()
	if err := <-ended; err != nil { // nil once all requests are answered
		log.Fatal(err)
	}
	// Output:
	// put out the fire
	// write the report
}

// pushAndPop is a client, which could be in any other program.
func pushAndPop(url string) error {
	// A busy machine may take too long at first.
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}

	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	jobs := client.New(nc).PriorityQueue("jobs")

	push := func(priority int64, job string) error {
		_, err := jobs.Push(ctx, priority, []byte(job))
		for errors.Is(err, client.ErrNoBridge) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) // the bridge has only just been started
			_, err = jobs.Push(ctx, priority, []byte(job))
		}

		return err
	}

	if err := errors.Join(push(5, "write the report"), push(1, "put out the fire")); err != nil {
		return err
	}

	for {
		job, err := jobs.Pop(ctx)
		if errors.Is(err, client.ErrEmpty) {
			return nil
		}
		if err != nil {
			return err
		}

		fmt.Printf("%s\n", job.Value)
	}
}
