package jetstream

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// stream is a queue, as the API names it.
type stream struct {
	kind subjects.Kind
	name string
}

// consumerKey names a consumer.
type consumerKey struct {
	stream stream
	name   string
}

// consumer is what the face knows of a consumer of a queue. It is not changed: a changed consumer is
// another one with the same key.
type consumer struct {
	stream stream
	name   string
	end    fdbpq.End
	// config has JetStream's defaults where nothing is set. An AckWait of 0 is that of the queue, and
	// other limits of 0 or less are none.
	config  jetstream.ConsumerConfig
	created time.Time
	noted   atomic.Int64 // until when its use is written down, in nanoseconds
}

func (c *consumer) key() consumerKey { return consumerKey{c.stream, c.name} }

// unknownTime is when queues and the consumers that each has were created.
var unknownTime = time.Unix(0, 0).UTC()
