package subjects

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// QueueInfo is the payload of the reply to an info, a JSON object:
//
//	{"queue":"jobs","ready":3,"leased":1,"delayed":0,"priorities":{"1":2,"5":1},
//	 "oldest_age_s":12.5,"next_due":"2026-11-20T08:37:57.685968Z","settings":{"max_deliver":5}}
type QueueInfo struct {
	Queue string `json:"queue"`
	// Ready, Leased and Delayed are the number of items in each state.
	Ready   int64 `json:"ready"`
	Leased  int64 `json:"leased"`
	Delayed int64 `json:"delayed"`
	// Finished is how many jobs are done and kept. Records that are over count until a sweep.
	Finished int64 `json:"finished,omitzero"`
	// Priorities has the number of ready items of each priority, in order; nil in a FIFO queue.
	Priorities PriorityCounts `json:"priorities"`
	// PrioritiesMore means that there are too many: Priorities has some of the smallest and of the
	// largest.
	PrioritiesMore bool `json:"priorities_more,omitzero"`
	// Groups has the groups with the most items, by name; nil if there are none. GroupsMore means
	// that there are others.
	Groups     map[string]GroupCount `json:"groups,omitzero"`
	GroupsMore bool                  `json:"groups_more,omitzero"`
	// GroupsAtLimit is how many groups with ready items pops pass over: at a limit, or paused.
	GroupsAtLimit int `json:"groups_at_limit,omitzero"`
	// OldestAge is the time since the push of the oldest ready item, nil if there is none.
	OldestAge *time.Duration `json:"-"`
	// NextDue is when something next falls due in the queue, such as the end of a lease; nil if
	// nothing will.
	NextDue *time.Time `json:"next_due"`
	// Settings has the zero value for settings that are not set.
	Settings settings.Settings `json:"-"`
	// Consumers were created by JetStream's programs, in the order of their names; nil if there are
	// none.
	Consumers []QueueConsumer `json:"consumers,omitzero"`
	// Source says how far the source of the queue is drawn; nil without a source.
	Source *settings.SourceState `json:"source,omitzero"`
}

// PriorityCount is the number of ready items of one priority.
type PriorityCount struct{ Priority, Count int64 }

// GroupCount is the number of items of a group.
type GroupCount struct {
	Ready  int64 `json:"ready"`
	Leased int64 `json:"leased"`
}

// MayHaveGroup reports whether an item of a group may be ready or leased.
func (i *QueueInfo) MayHaveGroup(name string) bool {
	return i.GroupsMore || i.Groups[name] != GroupCount{}
}

// queueInfo is a QueueInfo as JSON.
type queueInfo struct {
	*QueueInfo
	OldestAge *float64       `json:"oldest_age_s"`
	Settings  jsontext.Value `json:"settings"`
}

// Encode returns the JSON that [ParseQueueInfo] reads.
func (i *QueueInfo) Encode() []byte {
	o := queueInfo{QueueInfo: i, Settings: EncodeSettings(&i.Settings)}
	if i.OldestAge != nil {
		age := i.OldestAge.Seconds()
		o.OldestAge = &age
	}
	return strictjson.Marshal(&o)
}

// ParseQueueInfo reads the payload of the reply to an info. It ignores unknown members, so that a
// newer bridge may add some.
func ParseQueueInfo(payload []byte) (*QueueInfo, error) {
	o := queueInfo{QueueInfo: &QueueInfo{}}
	if strictjson.UnmarshalReply(payload, &o) != nil {
		return nil, notReply(payload)
	}

	if o.OldestAge != nil {
		age := time.Duration(*o.OldestAge * float64(time.Second))
		o.QueueInfo.OldestAge = &age
	}
	if o.Settings != nil {
		set, err := ParseSettings(o.Settings)
		if err != nil {
			return nil, err
		}
		o.QueueInfo.Settings = *set
	}
	return o.QueueInfo, nil
}

// PriorityCounts is a JSON object with a member for each priority, such as {"1":2,"5":1}, in the
// order of the priorities.
type PriorityCounts []PriorityCount

// MarshalJSON implements json.Marshaler.
func (p PriorityCounts) MarshalJSON() ([]byte, error) {
	if p == nil {
		return null, nil
	}
	var o object
	for _, count := range p {
		o.add(strconv.FormatInt(count.Priority, 10), strconv.AppendInt(nil, count.Count, 10))
	}
	return o.end(), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *PriorityCounts) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, null) {
		return nil
	}

	var members map[int64]int64
	if err := strictjson.UnmarshalReply(data, &members); err != nil {
		return err
	}

	*p = make(PriorityCounts, 0, len(members))
	for priority, count := range members {
		*p = append(*p, PriorityCount{priority, count})
	}

	slices.SortFunc(*p, func(a, b PriorityCount) int { return cmp.Compare(a.Priority, b.Priority) })
	return nil
}

// QueueConsumer is a consumer that a program written for JetStream has created on a queue. Its JSON
// leaves out what is 0 or empty:
//
//	{"name":"worker","order":"min","ack_wait":"1m0s","max_deliver":5,"max_ack_pending":1000,
//	 "created":"2026-11-23T08:37:57.685968Z","description":"sends the mail"}
type QueueConsumer struct {
	Name string `json:"name,omitzero"`
	// Order is the end of the queue that it takes items from: "min" or "max".
	Order string `json:"order,omitzero"`
	// AckWait is the length of its leases; 0 means the setting of the queue.
	AckWait time.Duration `json:"ack_wait,omitzero"`
	// MaxDeliver is the number of deliveries after which an item becomes a dead letter; 0 means the
	// setting of the queue.
	MaxDeliver int `json:"max_deliver,omitzero"`
	// MaxAckPending is the most items that may be leased through it at a time; 0 means no limit.
	MaxAckPending int `json:"max_ack_pending,omitzero"`
	// InactiveThreshold is the time after which it is removed if nobody pulls; 0 means never.
	InactiveThreshold time.Duration `json:"inactive_threshold,omitzero"`
	Created           time.Time     `json:"created,omitzero"`
	// Description is the start of its description.
	Description string `json:"description,omitzero"`
}
