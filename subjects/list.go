package subjects

import (
	"cmp"
	"fmt"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// MaxList is the most queues that a list returns, and how many it does unless it is asked for
// fewer.
const MaxList = 1000

// ListOptions is the payload of a list, a JSON object: {"after":"jobs","limit":100}.
type ListOptions struct {
	// After is the name that the queues come after, "" for all.
	After string `json:"after,omitzero"`
	// Limit is the most queues to return, 1 to MaxList; 0 means MaxList.
	Limit int `json:"limit,omitzero"`
}

// ParseListOptions reads the payload of a list. The Limit is never 0. Errors wrap ErrOptions.
func ParseListOptions(payload []byte) (o ListOptions, err error) {
	if len(payload) > 0 {
		err = readObject(payload, &o)
	}
	if err != nil {
		return ListOptions{}, err
	}
	o.Limit = cmp.Or(o.Limit, MaxList)
	return o, nil
}

// Encode returns the payload that ParseListOptions reads.
func (o ListOptions) Encode() []byte { return strictjson.Marshal(o) }

func (o *ListOptions) check() error {
	if o.After != "" {
		if err := checkToken(o.After); err != nil {
			return fmt.Errorf("after: %w", err)
		}
	}
	return within("limit", &o.Limit, 0, MaxList)
}

// QueueList is the payload of the reply to a list.
type QueueList struct {
	// Queues are sorted by name.
	Queues []QueueCounts `json:"queues"`
	// Next is the After of the next page, nil if this is the last one.
	Next *string `json:"next"`
}

// QueueCounts is a queue, and how many items it has in each state.
type QueueCounts struct {
	Queue   string `json:"queue"`
	Ready   int64  `json:"ready"`
	Leased  int64  `json:"leased"`
	Delayed int64  `json:"delayed"`
}

// Encode returns the JSON.
func (l *QueueList) Encode() []byte {
	if l.Queues == nil {
		l.Queues = []QueueCounts{}
	}
	return EncodeReply(l)
}
