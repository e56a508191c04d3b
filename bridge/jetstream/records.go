package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// metaOrder says from which end of the queue a consumer takes items.
	metaOrder          = "pq.order"
	orderMin, orderMax = "min", "max"

	// builtinAckPending is small, because items fetched ahead are not in order with later pushes.
	builtinAckPending = 100
	builtinNote       = "What a client fetches ahead is not in strict order with later pushes, " +
		"so max_ack_pending is small."
	defaultMaxWaiting = 512

	// maxConsumers is the limit of a page: all that a queue can have, and the built-in ones.
	maxConsumers = fdbpq.MaxConsumers + 2

	maxPull = 1 << 10 // bytes of a request
)

// record is the stored form of a consumer.
type record struct {
	Config  jetstream.ConsumerConfig `json:"config"`
	Created time.Time                `json:"created"`
	// Expires is when the queue has not seen a consumer with an InactiveThreshold being used for
	// keptFor. Each use postpones it.
	Expires time.Time `json:"expires,omitzero"`
	// Kept is keptFor until that time comes. The queue keeps the consumer for once more as long,
	// without this member, and then removes it. So no clock that is set forward removes one that is
	// used: see pull.Heartbeat.
	Kept time.Duration `json:"kept,omitzero"`
}

// use postpones the end of the consumer, if it has one, to keptFor after a time.
func (r *record) use(until time.Time) {
	if r.Config.InactiveThreshold > 0 {
		r.Kept = keptFor(&r.Config)
		r.Expires = until.UTC().Add(r.Kept)
	}
}

// keptFor is how long an unused consumer with an InactiveThreshold is kept.
func keptFor(c *jetstream.ConsumerConfig) time.Duration {
	return max(c.InactiveThreshold, minThreshold)
}

// noConsumer answers a pull of a consumer that does not exist, or cannot be read. Like JetStream,
// it answers as NATS does if nobody listens.
func (f *Face) noConsumer(m *leaf.Message) {
	f.config.Counted(countedPull, true)
	f.status(m.Reply, 503, "")
}

// next starts a pull: at once if the consumer is known, else after a read.
func (f *Face) next(s stream, name string, m *leaf.Message) {
	if len(m.Payload) > maxPull { // many may wait
		f.config.Counted(countedPull, true)
		const text = "Bad Request - %d bytes: want at most %d"
		f.status(m.Reply, 400, fmt.Sprintf(text, len(m.Payload), maxPull))
		return
	}

	known := f.builtin(s, name)
	if known == nil {
		known = f.cache.find(s, name)
	}
	switch {
	case known != nil:
		f.startPull(known, m)
	case !f.later(func(ctx context.Context) { f.nextAfterRead(ctx, s, name, m) }):
		f.config.Counted(countedPull, true)
		f.status(m.Reply, maxWaiting.code, maxWaiting.text)
	}
}

// nextAfterRead starts a pull if its consumer exists. Many pulls share a read.
func (f *Face) nextAfterRead(ctx context.Context, s stream, name string, m *leaf.Message) {
	// Another pull may have read it while this one waited.
	c := f.cache.find(s, name)
	if c == nil {
		read := cachedConsumers{began: time.Now()}
		results, err := f.do(ctx, s, fdbpq.Op{Kind: fdbpq.OpConsumers})
		if err == nil {
			read.byName, err = f.parseRecords(s, results[0].Records)
		}
		if err != nil {
			const text = "the consumers of a queue could not be read"
			f.config.Warn(text, "queue", s.name, "error", err)
		}

		f.cache.keep(s, read)
		for _, c := range read.byName {
			f.consumerChanged(c)
		}
		c = read.byName[name]
	}
	if c == nil {
		f.noConsumer(m)
		return
	}
	f.startPull(c, m)
}

// builtin returns a consumer that each queue has, nil if it has none of that name.
func (f *Face) builtin(s stream, name string) *consumer {
	c := &consumer{consumerKey: consumerKey{s, name}, created: unknownTime}
	switch {
	case name == orderMin:
		c.end = fdbpq.Front
	case name == orderMax && s.kind == subjects.Priority:
		c.end = fdbpq.Back
	default:
		return nil
	}

	c.config = jetstream.ConsumerConfig{
		Name: name, Durable: name, Description: builtinNote, MaxDeliver: -1,
		MaxWaiting: defaultMaxWaiting, MaxAckPending: builtinAckPending,
		Metadata: map[string]string{metaOrder: name},
	}

	return c
}

// parseRecords returns the consumers of a queue by name, with the built-in ones.
func (f *Face) parseRecords(s stream, stored []fdbpq.Record) (map[string]*consumer, error) {
	all := map[string]*consumer{}
	for _, name := range []string{orderMin, orderMax} {
		if own := f.builtin(s, name); own != nil {
			all[name] = own
		}
	}

	for i := range stored {
		name := stored[i].Name
		r, err := parseRecord(stored[i].Value)
		if err != nil {
			return nil, err
		}

		key := consumerKey{s, name}
		c := &consumer{consumerKey: key, config: r.Config, created: r.Created}
		if r.Kept > 0 { // otherwise any use counts
			c.noted.Store(r.Expires.Add(-r.Kept).UnixNano())
		}
		if r.Config.Metadata[metaOrder] == orderMax {
			c.end = fdbpq.Back
		}
		all[name] = c
	}

	return all, nil
}

// parseRecord parses a record. It returns nil for an empty value.
func parseRecord(value []byte) (*record, error) {
	if len(value) == 0 {
		return nil, nil
	}
	r := &record{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, errors.Join(fdbpq.ErrCorrupt, err)
	}
	return r, nil
}

// change changes the record of a consumer to what to returns. A nil record is none.
func (f *Face) change(
	ctx context.Context, s stream, name string, to func(old *record) (*record, error),
) error {
	change := func(value []byte, _ time.Time) ([]byte, error) {
		old, err := parseRecord(value)
		if err != nil {
			return nil, err
		}

		r, err := to(old)
		if err != nil || r == nil {
			return nil, err
		}
		if r == old {
			return value, nil
		}
		return json.Marshal(r)
	}

	defer f.cache.drop(s) // even if the outcome is unknown
	_, err := f.do(ctx, s, fdbpq.Op{Kind: fdbpq.OpSetConsumer, Record: name, Change: change})
	if errors.Is(err, fdbpq.ErrMaxRecords) {
		const text = "maximum consumers limit reached: %d, besides those of each queue"
		return refuse(10026, text, fdbpq.MaxConsumers)
	}

	return err
}

// setRecord creates or changes a consumer, as the action says.
func (f *Face) setRecord(
	ctx context.Context, s stream, config *jetstream.ConsumerConfig, action string,
) error {
	now := f.config.Now().UTC()
	return f.change(ctx, s, config.Name, func(old *record) (*record, error) {
		same := old != nil && reflect.DeepEqual(&old.Config, config)
		switch {
		case old == nil && action == "update":
			return nil, refuse(10149, "consumer does not exist")
		case same && config.InactiveThreshold <= 0:
			return old, nil
		case old != nil && !same && action == "create":
			return nil, refuse(10148, "consumer already exists")
		}

		// A change keeps the time of the creation.
		r := &record{Config: *config, Created: now}
		if old != nil {
			r.Created = old.Created
		}
		r.use(now)
		return r, nil
	})
}

// removeRecord removes a consumer.
func (f *Face) removeRecord(ctx context.Context, s stream, name string) error {
	return f.change(ctx, s, name, func(old *record) (*record, error) {
		if old == nil {
			return nil, refuse(errNoConsumer, "consumer not found")
		}
		return nil, nil
	})
}

// touch records that a consumer is used until then. It does not wait.
func (f *Face) touch(c *consumer, until time.Time) {
	noted, keep := c.noted.Load(), keptFor(&c.config)
	if c.config.InactiveThreshold <= 0 || until.UnixNano()-noted <= int64(keep/3) {
		return
	}
	if !c.noted.CompareAndSwap(noted, until.UnixNano()) {
		return
	}

	// If the change fails, a later pull or heartbeat makes it.
	failed := func() { c.noted.CompareAndSwap(until.UnixNano(), noted) }
	begun := f.later(func(ctx context.Context) {
		err := f.change(ctx, c.stream, c.name, func(old *record) (*record, error) {
			if old == nil || !until.Add(keep).After(old.Expires) {
				return old, nil
			}
			r := *old
			r.use(until)
			return &r, nil
		})
		if err != nil {
			failed()
		}
	})
	if !begun {
		failed()
	}
}

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
