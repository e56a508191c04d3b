package subjects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// QueueInfo is the payload of the reply to an info, a JSON object:
//
//	{"queue":"jobs","ready":3,"leased":1,"delayed":0,"priorities":{"1":2,"5":1},
//	 "oldest_age_s":12.5,"next_due":"2026-11-20T08:37:57.685968Z","settings":{"max_deliver":5}}
type QueueInfo struct {
	Queue string
	// Ready, Leased and Delayed are the number of items in each state.
	Ready, Leased, Delayed int64
	// Priorities is the number of ready items of each priority, in order; nil in a FIFO queue.
	Priorities []PriorityCount
	// PrioritiesMore says that Priorities has only some of the smallest and of the largest.
	PrioritiesMore bool
	// Groups is how many items of each group are ready and leased, by name: those of the groups with
	// the most. It is nil without groups, and GroupsMore says that there are more of them.
	Groups     map[string]GroupCount
	GroupsMore bool
	// GroupsAtLimit is how many groups have ready items and are passed over because of a limit.
	GroupsAtLimit int
	// OldestAge is the time since the push of the oldest ready item, nil if there is none.
	OldestAge *time.Duration
	// NextDue is when the next thing in the queue falls due, such as the end of a lease; nil if
	// nothing will.
	NextDue *time.Time
	// Settings has the settings that are set.
	Settings Settings
	// Consumers is those that JetStream's programs have created, by name; nil without any.
	Consumers []QueueConsumer
	// Source is how far the source of the queue has been drawn; nil without one.
	Source *settings.SourceState
}

// PriorityCount is the number of ready items of one priority.
type PriorityCount struct{ Priority, Count int64 }

// GroupCount is the number of items of a group.
type GroupCount struct {
	Ready  int64 `json:"ready"`
	Leased int64 `json:"leased"`
}

// queueInfo is a QueueInfo as JSON.
type queueInfo struct {
	Queue          string         `json:"queue"`
	Ready          int64          `json:"ready"`
	Leased         int64          `json:"leased"`
	Delayed        int64          `json:"delayed"`
	Priorities     priorityCounts `json:"priorities"`
	PrioritiesMore bool           `json:"priorities_more,omitempty"`

	Groups        map[string]GroupCount `json:"groups,omitempty"`
	GroupsMore    bool                  `json:"groups_more,omitempty"`
	GroupsAtLimit int                   `json:"groups_at_limit,omitempty"`

	OldestAge *float64        `json:"oldest_age_s"`
	NextDue   *string         `json:"next_due"`
	Settings  json.RawMessage `json:"settings"`
	Consumers []QueueConsumer `json:"consumers,omitempty"`

	Source *settings.SourceState `json:"source,omitempty"`
}

// Encode returns the JSON.
func (i *QueueInfo) Encode() []byte {
	o := queueInfo{
		Queue: i.Queue, Ready: i.Ready, Leased: i.Leased, Delayed: i.Delayed,
		Priorities: i.Priorities, PrioritiesMore: i.PrioritiesMore, Settings: EncodeSettings(&i.Settings),
		Groups: i.Groups, GroupsMore: i.GroupsMore, GroupsAtLimit: i.GroupsAtLimit, Consumers: i.Consumers, Source: i.Source,
	}
	if i.OldestAge != nil {
		age := i.OldestAge.Seconds()
		o.OldestAge = &age
	}
	if i.NextDue != nil {
		due := i.NextDue.UTC().Format(TimeLayout)
		o.NextDue = &due
	}
	payload, _ := json.Marshal(&o) // never returns an error for these types
	return payload
}

// ParseQueueInfo reads what Encode wrote. It ignores members that it does not know.
func ParseQueueInfo(payload []byte) (*QueueInfo, error) {
	o, err := parseReply[queueInfo](payload)
	if err != nil {
		return nil, err
	}
	i := &QueueInfo{
		Queue: o.Queue, Ready: o.Ready, Leased: o.Leased, Delayed: o.Delayed,
		Priorities: o.Priorities, PrioritiesMore: o.PrioritiesMore,
		Groups: o.Groups, GroupsMore: o.GroupsMore, GroupsAtLimit: o.GroupsAtLimit, Consumers: o.Consumers, Source: o.Source,
	}
	if o.OldestAge != nil {
		age := time.Duration(*o.OldestAge * float64(time.Second))
		i.OldestAge = &age
	}
	if o.NextDue != nil {
		due, err := time.Parse(TimeLayout, *o.NextDue)
		if err != nil {
			return nil, fmt.Errorf("reply %s: next_due: %w", quote(string(payload)), err)
		}
		i.NextDue = &due
	}
	if o.Settings != nil {
		set, err := ParseSettings(o.Settings)
		if err != nil {
			return nil, err
		}
		i.Settings = *set
	}
	return i, nil
}

// priorityCounts is a JSON object with a member for each priority, in their order.
type priorityCounts []PriorityCount

// MarshalJSON implements json.Marshaler.
func (p priorityCounts) MarshalJSON() ([]byte, error) {
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
func (p *priorityCounts) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, null) {
		return nil
	}
	var members map[int64]int64
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	*p = make(priorityCounts, 0, len(members))
	for priority, count := range members {
		*p = append(*p, PriorityCount{priority, count})
	}
	slices.SortFunc(*p, func(a, b PriorityCount) int { return cmp.Compare(a.Priority, b.Priority) })
	return nil
}
