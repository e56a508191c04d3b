package client

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// BenchmarkReadFrames reads messages of a hundred items, of a pop and of a lease.
func BenchmarkReadFrames(b *testing.B) {
	const (
		popped = "Pq-Id: 5-0000000000000017a3\r\nPq-Priority: 5\r\nPq-Pushed-At: " +
			"2026-11-24T23:36:36.123456Z\r\n"
		leased = "Pq-Deliveries: 1\r\nPq-Lease-Until: 2026-11-24T23:37:36.123456Z\r\nPq-Token: " +
			"5-0000000000000017a3-1-1234567890123\r\n"
		items = 100
	)
	for name, headers := range map[string]string{"pop": popped, "lease": popped + leased} {
		m := &nats.Msg{Header: nats.Header{subjects.HeaderFrames: {"100"}}}
		for range items {
			frame := subjects.Frame{
				Headers: []byte("NATS/1.0\r\n" + headers + "\r\n"),
				Value:   bytes.Repeat([]byte("v"), 128),
			}
			m.Data = subjects.AppendFrame(m.Data, frame)
		}

		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var q Queue
			var last any // as somebody who keeps it

			for b.Loop() {
				n, err := readFrames(m, "pq.jobs.ack.", items, func(r *received) error {
					if r.ack == "" {
						last = r.item()
						return nil
					}

					d, err := q.delivery(r)
					last = d
					return err
				})
				if n != items || err != nil || last == nil {
					b.Fatal(n, last, err)
				}
			}
		})
	}
}
