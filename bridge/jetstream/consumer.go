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

// consumer is what the face knows of a consumer of a queue. It is immutable but for noted: a
// changed consumer is another one with the same key.
type consumer struct {
	stream stream
	name   string
	end    fdbpq.End
	// config has JetStream's defaults where nothing is set. An AckWait of 0 means that of the
	// queue, and other limits of 0 or less mean no limit.
	config  jetstream.ConsumerConfig
	created time.Time
	noted   atomic.Int64 // until when its record says that it is used, in Unix nanoseconds
}

func (c *consumer) key() consumerKey { return consumerKey{c.stream, c.name} }

// unknownTime stands for when queues and their built-in consumers were created.
var unknownTime = time.Unix(0, 0).UTC()
