package jetstream

import (
	"maps"
	"sync"
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
	consumerKey
	end fdbpq.End
	// config has JetStream's defaults where nothing is set. An AckWait of 0 means the queue's, and
	// other limits of 0 or less mean no limit.
	config  jetstream.ConsumerConfig
	created time.Time
	noted   atomic.Int64 // until when its record says that it is used, in Unix nanoseconds
}

// minThreshold is how long an unused consumer is kept at least, because bridges do not write down
// each use.
const minThreshold = time.Minute

// unknownTime stands for when queues and their built-in consumers were created.
var unknownTime = time.Unix(0, 0).UTC()

const (
	// cacheLife is how long another bridge's change of a consumer may go unnoticed.
	cacheLife = time.Second
	maxCached = 4096 // queues
)

// consumerCache caches the consumers of queues that were used lately, for pulls. It cannot say that
// a consumer does not exist: another bridge may have created it.
type consumerCache struct {
	sync.Mutex
	streams map[stream]cachedConsumers
	changed time.Time // when this bridge changed a consumer last
}

type cachedConsumers struct {
	began  time.Time // when the read began
	byName map[string]*consumer
}

// find returns a consumer, nil if it is not known.
func (c *consumerCache) find(s stream, name string) *consumer {
	c.Lock()
	defer c.Unlock()

	of := c.streams[s]
	if time.Since(of.began) >= cacheLife {
		return nil
	}
	return of.byName[name]
}

// keep caches a read, unless it may be older than a change.
func (c *consumerCache) keep(s stream, read cachedConsumers) {
	c.Lock()
	defer c.Unlock()

	if !read.began.After(c.changed) {
		return
	}

	// The rest is read again within a second anyway.
	if len(c.streams) >= maxCached {
		old := func(_ stream, of cachedConsumers) bool { return time.Since(of.began) >= cacheLife }
		maps.DeleteFunc(c.streams, old)
	}
	c.streams[s] = read
}

// drop drops the consumers of a queue, because this bridge has changed one.
func (c *consumerCache) drop(s stream) {
	c.Lock()
	defer c.Unlock()
	c.changed = time.Now()
	delete(c.streams, s)
}
