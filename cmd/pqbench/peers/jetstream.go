package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// jetStream is a work queue in a NATS server of its own.
func jetStream(program string) bench.Peer {
	return bench.Peer{
		Name:    "JetStream",
		Relaxed: true,
		Choice: library("github.com/nats-io/nats.go") + ", as many connections as the service's clients have; Publish, for work Fetch from one pull consumer and DoubleAck, " +
			"for batches PublishAsync of all items, Fetch of all and one Ack each, the last answered; a work queue has no pop without an acknowledgement",
		Notes: "One stream with file storage, sync_interval always. It has no priorities: items come in the order they were pushed.",
		Start: func(ctx context.Context, dir string, relaxed bool) (bench.PeerServer, error) {
			sync := "always"
			if relaxed {
				sync = `"2m"`
			}

			file := filepath.Join(dir, "nats.conf")
			config := fmt.Sprintf("jetstream {store_dir: %q, sync_interval: %s}\n", dir, sync)
			if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
				return nil, err
			}

			s, err := startServer(ctx, dir, "jetstream", syscall.SIGTERM, func(host, port string) []string {
				return []string{program, "--config", file, "--addr", host, "--port", port}
			})
			if err != nil {
				return nil, err
			}

			return &jetStreamServer{s}, s.awaitVersion(ctx, func() (string, error) {
				nc, err := nats.Connect(s.address)
				if err != nil {
					return "", err
				}
				defer nc.Close()
				js, err := jetstream.New(nc)
				if err == nil {
					_, err = js.AccountInfo(ctx) // fails until JetStream has recovered its streams
				}
				return nc.ConnectedServerVersion(), err
			})
		},
	}
}

// patient waits as long as a lease lasts. With a sync for each acknowledgement, batches of many
// clients take more than the default of five seconds.
var patient = jetstream.WithDefaultTimeout(leaseTime)

type jetStreamServer struct{ *server }

func (s *jetStreamServer) Connect(ctx context.Context, clients, connections, priorities int) ([]*bench.PeerClient, error) {
	name := "queue-" + strconv.Itoa(priorities)

	var all []*bench.PeerClient
	for i := range connections {
		nc, err := nats.Connect(s.address)
		if err != nil {
			return nil, err
		}
		s.onStop(nc.Close)

		js, err := jetstream.New(nc, patient)
		if err != nil {
			return nil, err
		}

		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		})
		if err != nil {
			return nil, err
		}

		consumer, err := js.CreateOrUpdateConsumer(ctx, name, jetstream.ConsumerConfig{
			Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: leaseTime, MaxAckPending: -1,
		})
		if err != nil {
			return nil, err
		}

		for range share(clients, connections, i) {
			c, err := newJetStreamClient(nc, name, consumer)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// share is how many of the clients use connection i.
func share(clients, connections, i int) int {
	if i < clients%connections {
		return clients/connections + 1
	}
	return clients / connections
}

func newJetStreamClient(nc *nats.Conn, subject string, consumer jetstream.Consumer) (*bench.PeerClient, error) {
	js, err := jetstream.New(nc, patient) // one for each client, because each bounds what is published and not answered
	if err != nil {
		return nil, err
	}

	work := func(ctx context.Context, n int) (values [][]byte, err error) {
		batch, err := consumer.FetchNoWait(n)
		if err != nil {
			return nil, err
		}

		var last jetstream.Msg
		for m := range batch.Messages() {
			if last != nil {
				err = errors.Join(err, last.Ack())
			}
			last = m
			values = append(values, m.Data())
		}

		if err = errors.Join(err, batch.Error()); err == nil && last == nil {
			err = bench.ErrEmpty
		}
		if err != nil {
			return nil, err
		}
		return values, last.DoubleAck(ctx)
	}

	push := func(ctx context.Context, items []bench.PeerItem) error {
		if len(items) == 1 {
			_, err := js.Publish(ctx, subject, items[0].Value)
			return err
		}

		var futures []jetstream.PubAckFuture
		for _, item := range items {
			f, err := js.PublishAsync(subject, item.Value)
			if err != nil {
				return err
			}
			futures = append(futures, f)
		}

		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}

	return &bench.PeerClient{Push: push, Work: work, Pushes: both, Works: both}, nil
}
