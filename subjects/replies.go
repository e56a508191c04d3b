package subjects

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// TimeLayout is how replies write times: RFC 3339 with microseconds. The time
// is in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// Pushed is the payload of the reply to a push.
type Pushed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Priority is nil in a FIFO queue.
	Priority *int64 `json:"priority,omitempty"`
}

// AppendPushed appends the JSON of a Pushed to b: {"queue":"jobs","id":"...",
// "priority":5}. It allocates nothing else. Queue names and ids need no
// escaping.
func AppendPushed(b []byte, kind Kind, queue, id string, priority int64) []byte {
	b = append(b, `{"queue":"`...)
	b = append(b, queue...)
	b = append(b, `","id":"`...)
	b = append(b, id...)
	b = append(b, '"')
	if kind == Priority {
		b = append(b, `,"priority":`...)
		b = strconv.AppendInt(b, priority, 10)
	}
	return append(b, '}')
}

// ParsePushed reads what AppendPushed wrote. It ignores members that it does not know,
// so that a newer bridge may add some.
func ParsePushed(payload []byte) (Pushed, error) {
	return parseReply[Pushed](payload)
}

// Length is the payload of the reply to a len.
type Length struct {
	Queue string `json:"queue"`
	Len   int64  `json:"len"`
}

// AppendLength appends the JSON of a Length to b: {"queue":"jobs","len":5}.
func AppendLength(b []byte, queue string, n int64) []byte {
	b = append(b, `{"queue":"`...)
	b = append(b, queue...)
	b = append(b, `","len":`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, '}')
}

// ParseLength reads what AppendLength wrote.
func ParseLength(payload []byte) (Length, error) {
	return parseReply[Length](payload)
}

func parseReply[T any](payload []byte) (T, error) {
	var reply T
	if err := json.Unmarshal(payload, &reply); err != nil {
		return reply, fmt.Errorf("reply %s: %w", quote(string(payload)), err)
	}
	return reply, nil
}

// ItemInfo is what the headers of a reply to pop and peek say about the item.
type ItemInfo struct {
	ID       string
	Priority int64     // 0 in a FIFO queue
	PushedAt time.Time // zero for an item that another program wrote
}

// ParseItemHeaders returns what the headers of a reply say about its item: the zero
// value if the reply had no room for them. Errors wrap [ErrPriority], or are those of
// parsing the time.
func ParseItemHeaders(h map[string][]string) (ItemInfo, error) {
	info := ItemInfo{ID: first(h, HeaderID)}
	var err error
	if text := first(h, HeaderPriority); text != "" {
		if info.Priority, err = ParsePriority(text); err != nil {
			return info, fmt.Errorf("header %s: %w", HeaderPriority, err)
		}
	}
	if text := first(h, HeaderPushedAt); text != "" {
		if info.PushedAt, err = time.Parse(TimeLayout, text); err != nil {
			return info, fmt.Errorf("header %s: %w", HeaderPushedAt, err)
		}
	}
	return info, nil
}
