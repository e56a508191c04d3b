package jetstream

import (
	"maps"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	// cacheLife is how long another bridge's change of a consumer may go unnoticed.
	cacheLife = time.Second
	maxCached = 4096 // queues
)

// consumerCache has the consumers of queues that were used lately, for pulls. It never says that there
// is no consumer: another bridge may have created it. Pulls of those that it does not have wait for a
// read of their queue that begins after they came, of which there is one at a time. So a flood of
// pulls that nobody can serve costs little more than one.
type consumerCache struct {
	sync.Mutex
	streams map[stream]*cachedConsumers
	waiting int // pulls
	changes int // of consumers at this bridge: what was read before is not kept
}

type cachedConsumers struct {
	until   time.Time // when they are to be read again
	byName  map[string]*consumer
	reading bool
	pulls   []waitingPull // for the next read
}

// waitingPull is a pull of a consumer that is not known yet.
type waitingPull struct {
	name    string
	message *leaf.Message
}

// find returns a consumer. If it is not known, the pull waits if fewer than the most do, and whoever
// is the first of a queue has to read it.
func (c *consumerCache) find(s stream, p waitingPull, most int) (known *consumer, first, room bool) {
	c.Lock()
	defer c.Unlock()
	of := c.streams[s]
	if of == nil {
		if len(c.streams) >= maxCached { // they are read again within a second anyway
			maps.DeleteFunc(c.streams, func(_ stream, of *cachedConsumers) bool { return !of.reading })
		}
		of = new(cachedConsumers)
		c.streams[s] = of
	}
	if known = of.byName[p.name]; known != nil && time.Now().Before(of.until) {
		return known, false, true
	}
	if c.waiting >= most {
		return nil, false, false
	}
	c.waiting++
	of.pulls = append(of.pulls, p)
	first, of.reading = !of.reading, true
	return nil, first, true
}

// begin returns the pulls that the read which begins is for, and how many changes it surely sees.
func (c *consumerCache) begin(s stream) (pulls []waitingPull, changes int) {
	c.Lock()
	defer c.Unlock()
	of := c.streams[s]
	pulls, of.pulls = of.pulls, nil
	c.waiting -= len(pulls)
	return pulls, c.changes
}

// end keeps what was read, unless it may be older than a change, and reports whether more pulls wait.
func (c *consumerCache) end(s stream, byName map[string]*consumer, changes int) (more bool) {
	c.Lock()
	defer c.Unlock()
	of := c.streams[s]
	if of.byName = nil; changes == c.changes {
		of.byName, of.until = byName, time.Now().Add(cacheLife)
	}
	of.reading = len(of.pulls) > 0
	return of.reading
}

// drop drops the consumers of a queue, because this bridge has changed one.
func (c *consumerCache) drop(s stream) {
	c.Lock()
	defer c.Unlock()
	c.changes++
	if of := c.streams[s]; of != nil {
		of.byName = nil
	}
}
