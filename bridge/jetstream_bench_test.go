package bridge_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkJetStreamConsume takes items with an acknowledgement each, with so many clients that
// fetch ahead.
func BenchmarkJetStreamConsume(b *testing.B) {
	for _, test := range []struct {
		name           string
		clients, ahead int
	}{{"1x500", 1, 500}, {"8x500", 8, 500}, {"8x10", 8, 10}, {"1x1", 1, 1}, {"8x1", 8, 1}} {
		b.Run(test.name, func(b *testing.B) { benchmarkConsume(b, test.clients, test.ahead) })
	}
}

func benchmarkConsume(b *testing.B, clients, ahead int) {
	e := newJetStreamEnv(b, testenv.Options{})
	queue := jobsOf(b, e)
	value := make([]byte, 128)
	for left := b.N; left > 0; left -= 1000 {
		_, err := kv.Transact(b.Context(), e.DB, func(tx kv.Transaction) (id fdbpq.ID, err error) {
			for range min(left, 1000) {
				if id, err = queue.Push(tx, 0, fdbpq.Message{Value: value}); err != nil {
					return id, err
				}
			}
			return id, nil
		})
		must(b, err)
	}

	var got atomic.Int64
	done := make(chan struct{})
	var all sync.WaitGroup
	js, err := jetstream.NewWithDomain(e.Conn, "pq")
	must(b, err)
	minOf(b, e.Conn)
	_, err = js.CreateOrUpdateConsumer(b.Context(), "jobs", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, AckWait: time.Hour})
	must(b, err)
	b.ResetTimer()
	for range clients {
		nc := e.Connect()
		js, err := jetstream.NewWithDomain(nc, "pq")
		must(b, err)
		c, err := js.Consumer(b.Context(), "jobs", "w")
		must(b, err)
		consuming, err := c.Consume(func(m jetstream.Msg) {
			if err := m.Ack(); err != nil {
				b.Error(err)
			}
			if got.Add(1) == int64(b.N) {
				close(done)
			}
		}, jetstream.PullMaxMessages(ahead))
		must(b, err)
		all.Go(func() { <-done; consuming.Stop(); <-consuming.Closed() })
	}
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.StopTimer()
	all.Wait()
}
