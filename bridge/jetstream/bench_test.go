package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkConsume has programs that use package jetstream of nats.go consume and acknowledge b.N
// items of 128 bytes: from a queue of the embedded store, and from work queues of JetStream in
// memory and in files, which sync as the store does. The last acknowledgement is confirmed, and
// with it those before.
//
//	go test -run '^$' -bench Consume -count 6 ./bridge/jetstream | tee consume.txt
//	go tool benchstat -row /consumers,/prefetch -col /queue consume.txt
func BenchmarkConsume(b *testing.B) {
	env := testenv.New(b, testenv.Options{
		Engine: testenv.Pebble(), JetStream: true,
		NATS: func(o *server.Options) {
			o.JetStream = true
			o.StoreDir = b.TempDir()
			o.SyncAlways = true
		},
	})

	queues := []*workQueue{
		{name: "pqbridge", subject: "pq.bench.push", domain: "pq"},
		{name: "memory", subject: "memory", storage: jetstream.MemoryStorage},
		{name: "file", subject: "file"},
	}

	for _, consumers := range []int{1, 8} {
		for _, prefetch := range []int{1, 10, 500} {
			for _, q := range queues {
				b.Run(fmt.Sprintf("consumers=%d/prefetch=%d/queue=%s", consumers, prefetch, q.name),
					func(b *testing.B) {
						all := q.open(b, env, consumers)
						q.fill(b, b.N)
						b.ResetTimer()
						consume(b, all, prefetch)
						b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
					})
			}
		}
	}
}

// workQueue is a queue that clients use through package jetstream.
type workQueue struct {
	name, subject, domain string
	storage               jetstream.StorageType
	js                    jetstream.JetStream // to push with
}

// open returns the consumer of the queue, over a connection each.
func (q *workQueue) open(
	b *testing.B, env *testenv.Env, connections int,
) (all []jetstream.Consumer) {
	for range connections {
		nc := env.Connect()
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testenv.Patience))
		stream := q.name

		if q.domain != "" {
			js, err = jetstream.NewWithDomain(nc, q.domain,
				jetstream.WithDefaultTimeout(testenv.Patience))
			stream = "bench"
		}
		check(b, err)

		q.js = js

		_, err = js.CreateOrUpdateStream(b.Context(), jetstream.StreamConfig{
			Name:      stream,
			Subjects:  []string{q.subject},
			Retention: jetstream.WorkQueuePolicy,
			Storage:   q.storage,
		})
		check(b, err)

		c, err := js.CreateOrUpdateConsumer(b.Context(), stream, jetstream.ConsumerConfig{
			Durable:       "workers",
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       testenv.Patience,
			MaxAckPending: -1,
		})
		check(b, err)

		all = append(all, c)
	}
	return all
}

// fill pushes n items.
func (q *workQueue) fill(b *testing.B, n int) {
	const most = 1000 // whose answers are not there: the client refuses more than 4,000
	for ; n > 0; n -= most {
		for range min(n, most) {
			_, err := q.js.PublishAsync(q.subject, make([]byte, 128))
			check(b, err)
		}
		<-q.js.PublishAsyncComplete()
	}
}

// consume returns when b.N items are acknowledged.
func consume(b *testing.B, consumers []jetstream.Consumer, prefetch int) {
	ctx, done := context.WithTimeoutCause(b.Context(), testenv.Patience,
		errors.New("not all items were delivered"))
	defer done()
	var acknowledged atomic.Int64

	handle := func(m jetstream.Msg) {
		if acknowledged.Add(1) < int64(b.N) {
			if err := m.Ack(); err != nil {
				b.Error(err)
			}
			return
		}

		if err := m.DoubleAck(ctx); err != nil {
			b.Error(err)
		}

		done()
	}

	var running sync.WaitGroup
	for _, c := range consumers {
		// Consume of nats.go 1.55 at times stops pulling when it may have only one item.
		if prefetch == 1 {
			running.Go(func() {
				for ctx.Err() == nil {
					if m, err := c.Next(jetstream.FetchContext(ctx)); err == nil {
						handle(m)
					}
				}
			})
			continue
		}

		consuming, err := c.Consume(handle, jetstream.PullMaxMessages(prefetch))
		check(b, err)

		defer func() {
			consuming.Stop()
			<-consuming.Closed()
		}()
	}

	running.Wait()
	<-ctx.Done()
	b.StopTimer()

	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
