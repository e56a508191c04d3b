package sources_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkSource draws messages of 128 bytes into an embedded store, which syncs. "alone" is the
// same consumer without a queue.
func BenchmarkSource(b *testing.B) {
	for _, retention := range retentions {
		for name, draw := range map[string]func(f *fixture, n int){
			"queue": func(f *fixture, n int) {
				f.must(f.setSource(`{"stream":"S","priority":{"token":2}}`))
				f.waitUntilDrawn(uint64(n))
			},
			"alone": (*fixture).consume,
		} {
			b.Run(retention.String()+"/"+name, func(b *testing.B) {
				const n = 100_000
				for b.Loop() {
					f := newFixture(b, testenv.Options{Engine: testenv.Pebble()})
					f.createStream("S", retention)

					// Only a consumer makes it keep messages.
					if retention == jetstream.InterestPolicy {
						_, err := f.js.CreateConsumer(b.Context(), "S",
							jetstream.ConsumerConfig{Durable: "other"})
						f.must(err)
					}

					payload := make([]byte, 128)
					for i := range n {
						wait := jetstream.WithStallWait(testenv.Patience)
						_, err := f.js.PublishAsync(fmt.Sprintf("S.%d", i%3), payload, wait)
						f.must(err)
					}

					<-f.js.PublishAsyncComplete()
					began := time.Now()
					draw(f, n)
					b.ReportMetric(float64(n)/time.Since(began).Seconds(), "messages/s")
					f.must(f.Bridge.Stop())
				}
			})
		}
	}
}

// consume has a consumer deliver all messages of the stream, and acknowledges them.
func (f *fixture) consume(n int) {
	s, err := f.js.Stream(f.Context(), "S")
	f.must(err)
	every, policy := 1, jetstream.AckExplicitPolicy

	if s.CachedInfo().Config.Retention == jetstream.LimitsPolicy {
		every, policy = 1000, jetstream.AckAllPolicy
	}

	c, err := s.CreateConsumer(f.Context(),
		jetstream.ConsumerConfig{Durable: "alone", AckPolicy: policy, MaxAckPending: -1})
	f.must(err)
	messages, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(4000, 4<<20))
	f.must(err)

	defer messages.Stop()
	for i := 1; i <= n; i++ {
		m, err := messages.Next()
		f.must(err)

		if i%every == 0 {
			f.must(m.Ack())
		}
	}
	f.must(f.Conn.Flush())
}
