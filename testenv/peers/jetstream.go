package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// jetStream is a work queue in a stream with file storage. It has no priorities, and no pop without
// an acknowledgement. Clients use Publish, for work FetchNoWait from one pull consumer and
// DoubleAck, for batches PublishAsync of all items, a fetch of all and an Ack for each, the last
// with an answer.
func jetStream(program string) Peer {
	return Peer{
		Name: "JetStream", Does: []string{Push, Work, PushMany, WorkMany}, dial: dialJetStream,
		command: func(s *Server, folder, port string) *exec.Cmd {
			config := folder + "/nats.conf"
			text := fmt.Sprintf("jetstream {store_dir: %q, sync_interval: always}\n", folder)
			must(s.tb, os.WriteFile(config, []byte(text), 0o644))
			return harness.Command(program,
				"--config", config, "--addr", "127.0.0.1", "--port", port)
		},
	}
}

// patient waits as long as a lease lasts. With a sync for each acknowledgement, batches of many
// clients take more than the default of five seconds.
var patient = jetstream.WithDefaultTimeout(leaseTime)

// dialJetStream creates the stream and its consumer if necessary.
func dialJetStream(s *Server, name string, _ int) (func() (*Client, error), error) {
	nc, err := nats.Connect(s.address, nats.Timeout(leaseTime))
	if err != nil {
		return nil, err
	}

	s.onStop(nc.Close)
	js, err := jetstream.New(nc, patient)
	if err != nil {
		return nil, err
	}

	// This fails until JetStream has recovered its streams.
	stream, err := js.CreateOrUpdateStream(s.tb.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, err
	}

	consumer, err := stream.CreateOrUpdateConsumer(s.tb.Context(), jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: leaseTime, MaxAckPending: -1,
	})
	return func() (*Client, error) {
		// One for each client, because each bounds the messages published without an answer.
		js, err := jetstream.New(nc, patient)
		return jetStreamClient(js, name, consumer), err
	}, err
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

			done, err := values(all, batch.Error(), jetstream.Msg.Data)
			if err != nil {
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
