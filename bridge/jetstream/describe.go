package jetstream

import (
	"cmp"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxShown is how many bytes of a description a QueueConsumer has. All consumers of a queue are to
// fit into one reply.
const maxShown = 200

// Describe returns the consumers of a queue that are stored, for programs that do not speak
// JetStream's API. One that cannot be read has only its name.
func Describe(stored []fdbpq.Record) (shown []subjects.QueueConsumer) {
	for i := range stored {
		one := subjects.QueueConsumer{Name: stored[i].Name}
		if r, err := parseRecord(stored[i].Value); err == nil && r != nil {
			c := &r.Config
			one.Order, one.Created = cmp.Or(c.Metadata[metaOrder], orderMin), r.Created
			one.AckWait, one.InactiveThreshold = c.AckWait, max(c.InactiveThreshold, 0)
			one.MaxDeliver, one.MaxAckPending = max(c.MaxDeliver, 0), max(c.MaxAckPending, 0)
			one.Description = strings.ToValidUTF8(c.Description[:min(len(c.Description), maxShown)], "") // a character may be cut
		}
		shown = append(shown, one)
	}
	return shown
}
