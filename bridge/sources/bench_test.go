package sources_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkSource draws messages of 128 bytes into an embedded store, which syncs.
func BenchmarkSource(b *testing.B) {
	for _, retention := range retentions {
		b.Run(retention.String(), func(b *testing.B) {
			const n = 100_000
			for b.Loop() {
				b.StopTimer()
				f := newFixture(b, testenv.Options{Engine: testenv.Pebble()})
				f.stream("S", retention)
				if retention == jetstream.InterestPolicy { // only a consumer makes it keep messages
					_, err := f.js.CreateConsumer(b.Context(), "S", jetstream.ConsumerConfig{Durable: "other"})
					f.must(err)
				}
				payload := make([]byte, 128)
				for i := range n {
					_, err := f.js.PublishAsync(fmt.Sprintf("S.%d", i%3), payload)
					f.must(err)
				}
				<-f.js.PublishAsyncComplete()
				b.StartTimer()
				began := time.Now()
				f.must(f.set(`{"stream":"S","priority":{"token":2}}`))
				f.drawn(n)
				b.ReportMetric(n/time.Since(began).Seconds(), "messages/s")
				b.StopTimer()
				f.must(f.Bridge.Stop())
				b.StartTimer()
			}
		})
	}
}
