package subjects_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// BenchmarkOptions measures reading and writing the options of pops and acknowledgements.
func BenchmarkOptions(b *testing.B) {
	lease := subjects.PopOptions{Batch: 10, Lease: true, AckWait: 30 * time.Second}
	wait := lease
	wait.Expires, wait.IdleHeartbeat = time.Minute, 5*time.Second
	wait.Frames, wait.ID = true, "Q7dYw3kLmN0pRs"
	next := subjects.Ack{Kind: subjects.AckNext, Next: lease, Also: []string{"token1", "token2"}}
	pop := func(payload []byte) error { _, err := subjects.ParsePopOptions(payload); return err }
	ack := func(payload []byte) error { _, err := subjects.ParseAck(payload); return err }

	for _, c := range []struct {
		name  string
		write func() []byte
		read  func([]byte) error
	}{
		{"batch", subjects.PopOptions{Batch: 10}.Encode, pop},
		{"lease", lease.Encode, pop},
		{"wait", wait.Encode, pop},
		{"next", next.Encode, ack},
		{"ack", subjects.Ack{Also: next.Also}.Encode, ack},
		{"nak", subjects.Ack{Kind: subjects.AckNak, Delay: time.Second, Reason: "r"}.Encode, ack},
	} {
		b.Run("write/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.write()
			}
		})

		payload := c.write()
		b.Run("read/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.read(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
