package subjects

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// QueueConsumer is a consumer of a queue, through which programs written for JetStream take its
// items. In JSON it leaves out what is 0 or empty:
//
//	{"name":"worker","order":"min","ack_wait":"1m0s","max_deliver":5,"max_ack_pending":1000,
//	 "created":"2026-11-23T08:37:57.685968Z","description":"sends the mail"}
type QueueConsumer struct {
	Name string
	// Order is the end of the queue where it begins: "min" or "max".
	Order string
	// AckWait is how long its leases are; 0 is the setting of the queue.
	AckWait time.Duration
	// MaxDeliver is after how many deliveries it gives an item up; 0 sets no limit besides that of the
	// queue.
	MaxDeliver int
	// MaxAckPending is the most items that it may have outstanding; 0 is no limit.
	MaxAckPending int
	// InactiveThreshold is after how long it goes if nobody pulls; 0 is never.
	InactiveThreshold time.Duration
	Created           time.Time
	// Description is its description, or the beginning of that.
	Description string
}

// members is what the object of a QueueConsumer may have.
func (c *QueueConsumer) members() members {
	const most = math.MaxInt64
	return members{
		{name: "name", to: &c.Name}, {name: "order", to: &c.Order}, {name: "ack_wait", to: &c.AckWait, most: most},
		{name: "max_deliver", to: &c.MaxDeliver, most: most}, {name: "max_ack_pending", to: &c.MaxAckPending, most: most},
		{name: "inactive_threshold", to: &c.InactiveThreshold, most: most}, {name: "created", to: &c.Created, most: 9999},
		{name: "description", to: &c.Description},
	}
}

// MarshalJSON implements json.Marshaler.
func (c QueueConsumer) MarshalJSON() ([]byte, error) {
	if object := c.members().encode(); object != nil {
		return object, nil
	}
	return []byte("{}"), nil
}

// UnmarshalJSON implements json.Unmarshaler. It ignores members that it does not know.
func (c *QueueConsumer) UnmarshalJSON(data []byte) error {
	*c = QueueConsumer{}
	list := c.members()
	return eachMember(data, func(name string, value json.RawMessage) error {
		if i := slices.IndexFunc(list, func(m member) bool { return m.name == name }); i >= 0 {
			return list[i].parse(value)
		}
		return nil
	})
}
