package jetstream

import (
	"cmp"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxShown is how many bytes of a description a QueueConsumer has, so that all consumers of a queue
// fit into one reply.
const maxShown = 200

// Describe returns the stored consumers of a queue, for programs that do not use JetStream's API. A
// consumer whose record cannot be read has only its name.
func Describe(stored []fdbpq.Record) (shown []subjects.QueueConsumer) {
	for i := range stored {
		consumer := subjects.QueueConsumer{Name: stored[i].Name}
		if r, err := parseRecord(stored[i].Value); err == nil && r != nil {
			c := &r.Config
			consumer.Order, consumer.Created = cmp.Or(c.Metadata[metaOrder], orderMin), r.Created
			consumer.AckWait, consumer.InactiveThreshold = c.AckWait, max(c.InactiveThreshold, 0)
			consumer.MaxDeliver = max(c.MaxDeliver, 0)
			consumer.MaxAckPending = max(c.MaxAckPending, 0)

			// A character may be cut.
			cut := c.Description[:min(len(c.Description), maxShown)]
			consumer.Description = strings.ToValidUTF8(cut, "")
		}
		shown = append(shown, consumer)
	}

	return shown
}
