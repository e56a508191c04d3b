package subjects

import (
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// QueueConsumer is a consumer of a queue, through which programs written for JetStream take its
// items. In JSON it leaves out what is 0 or empty:
//
//	{"name":"worker","order":"min","ack_wait":"1m0s","max_deliver":5,"max_ack_pending":1000,
//	 "created":"2026-11-23T08:37:57.685968Z","description":"sends the mail"}
type QueueConsumer struct {
	Name string `json:"name,omitzero"`
	// Order is the end of the queue where it begins: "min" or "max".
	Order string `json:"order,omitzero"`
	// AckWait is how long its leases are; 0 is the setting of the queue.
	AckWait time.Duration `json:"ack_wait,omitzero"`
	// MaxDeliver is after how many deliveries it gives an item up; 0 sets no limit besides that of the
	// queue.
	MaxDeliver int `json:"max_deliver,omitzero"`
	// MaxAckPending is the most items that it may have outstanding; 0 is no limit.
	MaxAckPending int `json:"max_ack_pending,omitzero"`
	// InactiveThreshold is after how long it goes if nobody pulls; 0 is never.
	InactiveThreshold time.Duration `json:"inactive_threshold,omitzero"`
	Created           time.Time     `json:"created,omitzero"`
	// Description is its description, or the beginning of that.
	Description string `json:"description,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (c QueueConsumer) MarshalJSON() ([]byte, error) {
	type plain QueueConsumer
	return strictjson.Marshal(plain(c)), nil
}

// UnmarshalJSON implements json.Unmarshaler. It ignores members that it does not know.
func (c *QueueConsumer) UnmarshalJSON(data []byte) error {
	type plain QueueConsumer
	*c = QueueConsumer{}
	return strictjson.UnmarshalReply(data, (*plain)(c))
}
