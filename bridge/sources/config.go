package sources

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Max is how many sources a bridge draws from at a time. Others wait.
const Max = 100

// Pauses before another attempt.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
	// cleanEvery is the time between attempts to remove consumers of former sources.
	cleanEvery = time.Minute
	// lookEvery is the time between two looks at a consumer that delivers nothing, and refusedLook
	// the time after a look that failed, which may have held up messages for some seconds.
	lookEvery   = time.Minute
	refusedLook = 10 * time.Minute
)

const (
	// A transaction has up to maxMessages and about maxBytes of values.
	maxMessages = 1000
	maxBytes    = 1 << 20
	// prefetch is how many messages a puller asks for beyond the ones it has returned. Together
	// they have up to 4 times maxBytes, or the bytes of three of the largest.
	prefetch = 4 * maxMessages
	// heartbeat is how often JetStream shows that it still delivers. Two without one are an error.
	heartbeat = 5 * time.Second
)

// Config is what Sources needs of the bridge.
type Config struct {
	Dispatcher *dispatch.Dispatcher
	// Conn returns the connection to NATS.
	Conn func() *nats.Conn
	// Owns reports whether this bridge draws for the queue.
	Owns func(kind subjects.Kind, name string) bool
	// Configured has the setting source of queues that are given one at the start.
	Configured map[fdbpq.QueueName]string
	// Warn logs a problem. It may drop some.
	Warn func(message string, args ...any)
}
