package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	defaultAckPending = 1000
	maxText           = 1 << 10 // of a description, and of metadata

	// defaultThreshold is how long a consumer without a durable name stays if nobody pulls.
	defaultThreshold = 5 * time.Second
)

// consumerConfig is what a client asks for.
type consumerConfig struct {
	jetstream.ConsumerConfig
	PriorityPolicy string `json:"priority_policy"` // the type for it does not know "none"
	Direct         bool   `json:"direct"`
	Sourcing       bool   `json:"sourcing"`
}

// refusal is a reason why a queue cannot have a consumer, and JetStream's code for it.
type refusal struct {
	applies bool
	code    jetstream.ErrorCode
	reason  string
}

// firstOf returns the first refusal that applies.
func firstOf(refusals []refusal) error {
	for _, r := range refusals {
		if r.applies {
			return refuse(r.code, "%s", r.reason)
		}
	}
	return nil
}

// checkName returns why a queue cannot have a consumer with this name.
func checkName(name string) error {
	const limit = fdbpq.MaxRecordName
	return firstOf([]refusal{
		{strings.ContainsAny(name, `\/`), 10127, "Consumer name can not contain path separators"},
		{len(name) > limit, 10102,
			fmt.Sprintf("consumer name is too long, maximum allowed is %d", limit)},
		{fdbpq.CheckConsumer(name) != nil, errStreamConfig, "consumer name is empty, " +
			"or has dots, spaces, '*', '>', control characters or what is not UTF-8"},
	})
}

// checkConfig returns why a queue cannot have a consumer, whatever its name and filter.
func checkConfig(c *consumerConfig) error {
	if err := cmp.Or(checkDelivery(c), checkGroups(c), checkOptions(c)); err != nil {
		return err
	}
	if err := settings.CheckBounds(c.AckWait, fdbpq.MinLease, fdbpq.MaxLease); err != nil {
		return refuse(errConfig, "ack_wait %v", err)
	}
	return nil
}

// checkDelivery accepts pull consumers of everything, with explicit acknowledgements.
func checkDelivery(c *consumerConfig) error {
	return firstOf([]refusal{
		{c.DeliverSubject != "" || c.DeliverGroup != "", errConfig,
			"push consumers are not supported: pull, without deliver_subject"},
		{c.Direct || c.Sourcing, 10090, "consumer direct requires a push based consumer: " +
			"a queue cannot be a source or mirror of a stream"},
		{c.AckPolicy == jetstream.AckNonePolicy, 10084, "consumer in pull mode requires " +
			"explicit ack policy on workqueue stream: a queue has no ordered consumers either"},
		{c.AckPolicy != jetstream.AckExplicitPolicy, 10098,
			"workqueue stream requires explicit ack"},
		{c.DeliverPolicy != jetstream.DeliverAllPolicy, 10101,
			"consumer must be deliver all on workqueue stream"},
		{c.OptStartSeq > 0 || c.OptStartTime != nil, 10094,
			"consumer delivery policy is deliver all, but optional start is also set"},
		{c.ReplayPolicy != jetstream.ReplayInstantPolicy, 10182,
			"consumer replay policy invalid: want instant"},
		{c.RateLimit > 0, 10086,
			"consumer in pull mode can not have rate limit set: rate is a setting of the queue"},
		{c.IdleHeartbeat > 0, 10088, "consumer idle heartbeat requires a push based consumer"},
		{c.FlowControl, 10089, "consumer flow control requires a push based consumer"},
	})
}

// checkGroups accepts no priority groups.
func checkGroups(c *consumerConfig) error {
	hasPolicy := c.PriorityPolicy != "" && c.PriorityPolicy != "none"
	hasGroups := len(c.PriorityGroups) > 0
	return firstOf([]refusal{
		{hasPolicy && hasGroups, errConfig,
			"priority_policy and priority_groups are not supported: " + noPriorityGroups},
		{hasPolicy, 10159, "Setting PriorityPolicy requires at least one PriorityGroup " +
			"to be set: " + noPriorityGroups},
		{hasGroups, 10196,
			"consumer can not have priority groups when policy is none: " + noPriorityGroups},
		{c.PinnedTTL > 0, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"},
	})
}

// checkOptions checks all other options.
func checkOptions(c *consumerConfig) error {
	return firstOf([]refusal{
		{len(c.BackOff) > 0, errConfig, "backoff is a setting of the queue: leave it out here"},
		{c.PauseUntil != nil && !c.PauseUntil.IsZero(), errConfig, pausedAsWhole},
		{c.HeadersOnly, errConfig, "headers_only is not supported: items come with their values"},
		{c.SampleFrequency != "", 10095, "failed to parse consumer sampling " +
			"configuration: sample_freq is not supported, metrics of the service count deliveries"},
		{c.Replicas > 1, 10126, "consumer config replica count exceeds parent stream"},
		{c.Replicas < 0, 10133, "replicas count cannot be negative"},
		{c.AckWait < 0, 10183, "consumer ack wait needs to be positive"},
		{c.MaxRequestExpires > 0 && c.MaxRequestExpires < time.Millisecond, 10115,
			"consumer max request expires needs to be >= 1ms"},
		{len(c.Description) > maxText, 10107,
			fmt.Sprintf("consumer description is too long, maximum allowed is %d", maxText)},
	})
}

// setDefaults fills in unset options.
func setDefaults(c *jetstream.ConsumerConfig) {
	if c.Durable == "" && c.InactiveThreshold <= 0 {
		c.InactiveThreshold = defaultThreshold
	}
	c.MaxDeliver = cmp.Or(c.MaxDeliver, -1)
	c.MaxAckPending = cmp.Or(c.MaxAckPending, defaultAckPending)
	c.MaxWaiting = cmp.Or(max(c.MaxWaiting, 0), defaultMaxWaiting)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[metaOrder] = cmp.Or(c.Metadata[metaOrder], orderMin)
}

// checkFilters accepts the one subject that a queue has, or none.
func (f *Face) checkFilters(s stream, c *consumerConfig) error {
	subject := f.pushSubject(s)
	other := func(filter string) bool { return filter != "" && filter != subject }
	return firstOf([]refusal{
		{c.FilterSubject != "" && len(c.FilterSubjects) > 0, 10136,
			"consumer cannot have both FilterSubject and FilterSubjects specified"},
		{slices.Contains(c.FilterSubjects, ""), 10139,
			"consumer filter in FilterSubjects cannot be empty"},
		{len(c.FilterSubjects) > 1, 10138, "consumer subject filters cannot overlap"},
		{other(c.FilterSubject) || slices.ContainsFunc(c.FilterSubjects, other), 10093,
			"consumer filter subject is not a valid subset of the interest subjects: " +
				"want " + subject + ", or none"},
	})
}

// checkMetadata accepts anything that fits, but of names with pq. only the order.
func checkMetadata(s stream, c *consumerConfig) error {
	size := 0
	for name, value := range c.Metadata {
		size += len(name) + len(value)
		if !strings.HasPrefix(name, "pq.") {
			continue
		}

		ok := value == orderMin || value == orderMax && s.kind != subjects.FIFO
		if name != metaOrder || !ok {
			return refuse(errConfig, "metadata %.40q is %.20q: of the names that "+
				"begin with pq. only %s is known: want min, or max for a priority queue",
				name, value, metaOrder)
		}
	}

	if size > maxText {
		return refuse(10135, "consumer metadata exceeds maximum size of 1KB")
	}
	return nil
}

// consumerCreate answers CONSUMER.CREATE.<stream>[.<consumer>[.<filter>]] and
// CONSUMER.DURABLE.CREATE.<stream>.<consumer>.
func (f *Face) consumerCreate(ctx context.Context, r *request) (any, error) {
	var asked struct {
		Stream   string         `json:"stream_name"`
		Config   consumerConfig `json:"config"`
		Action   string         `json:"action"`
		Pedantic bool           `json:"pedantic"`
	}
	if err := decode(r.payload, &asked); err != nil {
		return nil, err
	}

	// The subject has the name and the filter, if any.
	c := &asked.Config
	named, filter := len(r.args) > 0, ""
	if named {
		c.Name, filter = r.args[0], strings.Join(r.args[1:], ".")
	} else if c.Name == "" {
		c.Name = nuid.Next()
	}
	err := cmp.Or(
		firstOf([]refusal{
			{!slices.Contains([]string{"", "create", "update"}, asked.Action), errJSON,
				"invalid JSON: action is neither create nor update"},
			{asked.Stream != r.stream.name, errNameMismatch,
				"stream name in subject does not match request: want " + r.stream.name},
			{r.row.name == durableCreate && c.Durable == "", 10018,
				"consumer expected to be durable but a durable name was not set"},
			{!named && c.Durable != "", 10020,
				"consumer expected to be ephemeral but a durable name was set in request"},
			{c.Durable != "" && c.Durable != c.Name, 10017,
				"consumer name in subject does not match durable name in request"},
			{filter != "" && len(c.FilterSubjects) > 0, 10137,
				"consumer with multiple subject filters cannot use subject based API"},
			{filter != "" && filter != c.FilterSubject, 10131,
				"Consumer create request did not match filtered subject from create subject"},
		}),
		checkName(c.Name), checkConfig(c), f.checkFilters(r.stream, c), checkMetadata(r.stream, c),
	)
	if err != nil {
		return nil, err
	}
	return f.createConsumer(ctx, r.stream, c, asked.Action)
}

// createConsumer creates or changes a consumer whose configuration was checked.
func (f *Face) createConsumer(
	ctx context.Context, s stream, c *consumerConfig, action string,
) (any, error) {
	c.PauseUntil = nil // the nats tool sends a zero time

	own := f.builtin(s, c.Name)
	if own == nil {
		setDefaults(&c.ConsumerConfig)
		if err := f.setRecord(ctx, s, &c.ConsumerConfig, action); err != nil {
			return nil, err
		}
	}
	q, err := f.readQueue(ctx, s)
	if err != nil {
		return nil, err
	}

	// A built-in consumer accepts any filter, threshold and storage, and otherwise only what it is.
	if own != nil {
		is := f.consumerInfoOf(own, q).Config
		is.FilterSubject, is.FilterSubjects = c.FilterSubject, c.FilterSubjects
		is.InactiveThreshold = c.InactiveThreshold
		is.Replicas, is.MemoryStorage = c.Replicas, c.MemoryStorage
		if field := differs(c.ConsumerConfig, is); field != "" {
			return nil, refuse(10013, "consumer name already in use: leave out %s, "+
				"or choose another name: each queue has a consumer %s, which cannot be changed",
				field, own.name)
		}
	}

	return f.infoOfConsumer(c.Name, q)
}

// infoOfConsumer returns the info of a consumer that readQueue has read.
func (f *Face) infoOfConsumer(name string, q *queueState) (any, error) {
	c := q.consumers[name]
	if c == nil {
		return nil, refuse(errNoConsumer, "consumer not found")
	}
	f.consumerChanged(c)
	return f.consumerInfoOf(c, q), nil
}

// consumerInfoOf returns the info of a consumer, with what this bridge knows of its deliveries.
func (f *Face) consumerInfoOf(c *consumer, q *queueState) *jetstream.ConsumerInfo {
	config := c.config
	if config.AckWait == 0 {
		config.AckWait = q.settings.LeaseWait()
	}

	n, now := f.counts(c.consumerKey), f.config.Now()
	acked := n.Delivered - min(n.Delivered, uint64(max(n.AckPending, 0)))
	info := &jetstream.ConsumerInfo{
		Stream: c.stream.name, Name: c.name, Created: c.created, Config: config,
		Delivered:     jetstream.SequenceInfo{Consumer: n.Delivered, Stream: n.Delivered},
		AckFloor:      jetstream.SequenceInfo{Consumer: acked, Stream: acked},
		NumAckPending: n.AckPending, NumRedelivered: n.Redelivered, NumWaiting: n.Waiting,
		NumPending: uint64(max(q.info.Ready, 0)), TimeStamp: now.UTC(),
	}
	if until := q.settings.PauseUntil; until.After(now) {
		info.Paused, info.PauseRemaining = true, until.Sub(now)
	}
	return info
}

// consumerInfo answers CONSUMER.INFO.
func (f *Face) consumerInfo(ctx context.Context, r *request) (any, error) {
	if err := expectEmpty(r.payload); err != nil {
		return nil, err
	}
	q, err := f.readQueue(ctx, r.stream)
	if err != nil {
		return nil, err
	}
	return f.infoOfConsumer(r.args[0], q)
}

// consumersFrom answers CONSUMER.NAMES and CONSUMER.LIST, from the offset in the request. All
// consumers fit into one page.
func (f *Face) consumersFrom(ctx context.Context, r *request) (any, error) {
	var asked query
	if err := decodeQuery(r.payload, &asked); err != nil {
		return nil, err
	}

	q, err := f.readQueue(ctx, r.stream)
	if err != nil {
		return nil, err
	}

	from := min(max(asked.Offset, 0), len(q.consumers))
	shown := []any{}
	for _, name := range slices.Sorted(maps.Keys(q.consumers))[from:] {
		if r.row.name == consumerList {
			shown = append(shown, f.consumerInfoOf(q.consumers[name], q))
		} else {
			shown = append(shown, name)
		}
	}
	return page{Total: len(q.consumers), Offset: from, Limit: maxConsumers, Consumers: shown}, nil
}

// consumerDelete answers CONSUMER.DELETE.
func (f *Face) consumerDelete(ctx context.Context, r *request) (any, error) {
	name := r.args[0]
	if err := expectEmpty(r.payload); err != nil {
		return nil, err
	}
	if f.builtin(r.stream, name) != nil {
		return nil, refuse(errBadRequest, "bad request: the consumer %s belongs to "+
			"each queue and cannot be deleted", name)
	}
	if fdbpq.CheckConsumer(name) != nil {
		return nil, refuse(errNoConsumer, "consumer not found")
	}
	if err := f.removeRecord(ctx, r.stream, name); err != nil {
		return nil, err
	}

	gone := consumerKey{r.stream, name}
	f.endMatching(deleted, func(p *pull) bool { return p.consumer.consumerKey == gone })
	return map[string]any{"success": true}, nil
}
