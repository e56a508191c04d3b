package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStream is a work queue in a stream with file storage. It has no priorities, and no pop without
// an acknowledgement. Clients use Publish, for work FetchNoWait from one pull consumer and
// DoubleAck, for batches PublishAsync of all items, a fetch of all and an Ack for each, of which
// the last is answered.
func jetStream(program string) Peer {
	_, missing := find(program)
	return Peer{
		Name: "JetStream", Missing: missing, Without: []string{Pop, PopMany},
		Start: func(tb testing.TB, folder string) *Server {
			config := folder + "/nats.conf"
			text := fmt.Sprintf("jetstream {store_dir: %q, sync_interval: always}\n", folder)
			must(tb, os.WriteFile(config, []byte(text), 0o644))
			port := freePort(tb)
			s := start(tb, port, nil, program,
				"--config", config, "--addr", "127.0.0.1", "--port", port)
			s.await(func() error {
				nc, err := nats.Connect(s.address)
				if err != nil {
					return err
				}
				defer nc.Close()

				// This fails until JetStream has recovered its streams.
				js, err := jetstream.New(nc)
				if err == nil {
					_, err = js.AccountInfo(tb.Context())
				}

				return err
			})

			s.Connect = func(clients, connections, priorities int) (all []*Client) {
				name := queueName(priorities)
				conns := make([]*nats.Conn, connections)
				consumers := make([]jetstream.Consumer, connections)
				for i := range conns {
					conns[i], consumers[i] = bindConsumer(s, name)
				}

				for i := range clients {
					k := i % connections
					// One for each client, because each bounds what is published without an answer.
					js, err := jetstream.New(conns[k], patient)
					must(tb, err)
					all = append(all, jetStreamClient(js, name, consumers[k]))
				}

				return all
			}

			return s
		},
	}
}

// patient waits as long as a lease lasts. With a sync for each acknowledgement, batches of many
// clients take more than the default of five seconds.
var patient = jetstream.WithDefaultTimeout(leaseTime)

// bindConsumer connects to the server, and creates the stream and its consumer if necessary.
func bindConsumer(s *Server, name string) (*nats.Conn, jetstream.Consumer) {
	nc, err := nats.Connect(s.address)
	must(s.tb, err)
	s.onStop(nc.Close)
	js, err := jetstream.New(nc, patient)
	must(s.tb, err)

	_, err = js.CreateOrUpdateStream(s.tb.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})

	must(s.tb, err)
	consumer, err := js.CreateOrUpdateConsumer(s.tb.Context(), name, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: leaseTime, MaxAckPending: -1,
	})

	must(s.tb, err)
	return nc, consumer
}

func jetStreamClient(js jetstream.JetStream, subject string, consumer jetstream.Consumer) *Client {
	return &Client{
		Push: func(ctx context.Context, items []Item) error {
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
		},
		Work: func(ctx context.Context, n int) ([][]byte, error) {
			batch, err := consumer.FetchNoWait(n)
			if err != nil {
				return nil, err
			}

			var all []jetstream.Msg
			for m := range batch.Messages() {
				all = append(all, m)
			}

			done, err := values(all, jetstream.Msg.Data)
			if err := errors.Join(err, batch.Error()); err != nil {
				return nil, err
			}

			last := len(all) - 1
			for _, m := range all[:last] {
				err = errors.Join(err, m.Ack())
			}

			return done, errors.Join(err, all[last].DoubleAck(ctx))
		},
	}
}
