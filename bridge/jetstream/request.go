package jetstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// pullRequest is the payload of a pull. Times are in nanoseconds.
type pullRequest struct {
	Expires       time.Duration `json:"expires"`
	Batch         int           `json:"batch"`
	MaxBytes      int           `json:"max_bytes"`
	NoWait        bool          `json:"no_wait"`
	Heartbeat     time.Duration `json:"idle_heartbeat"`
	MinPending    int64         `json:"min_pending"`
	MinAckPending int64         `json:"min_ack_pending"`
	PinID         string        `json:"id"`
	Priority      int           `json:"priority"`

	limited bool // MaxBytes limits the pull
}

// maxExpires is how long a pull waits at most, and by default.
const maxExpires = subjects.MaxExpires

// parsePull parses the payload of a pull, as JetStream does: JSON, a number of messages, or
// anything else for one message. The result has an Expires of 0 if the pull does not wait. A pull
// that is refused ends with the second result.
func parsePull(payload []byte, c *jetstream.ConsumerConfig) (r pullRequest, refused *ending) {
	payload = bytes.TrimSpace(payload)
	var err error
	if len(payload) == 0 || payload[0] != '{' {
		if r.Batch, err = strconv.Atoi(string(payload)); err != nil {
			r.Batch = 1
		}
	} else if err = json.Unmarshal(payload, &r); err != nil {
		// The error may repeat a number, of any length.
		return r, &ending{code: 400, text: "Bad Request - " + wire.Shorten(err.Error())}
	}

	code, text := 0, ""
	switch {
	case r.Heartbeat > 0 && r.Heartbeat > r.Expires/2:
		code, text = 400, "Bad Request - heartbeat value too large"
	case c.MaxRequestBatch > 0 && r.Batch > c.MaxRequestBatch:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestBatch of %d", c.MaxRequestBatch)
	case c.MaxRequestExpires > 0 && r.Expires > c.MaxRequestExpires:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestExpires of %v", c.MaxRequestExpires)
	case c.MaxRequestMaxBytes > 0 && r.MaxBytes > c.MaxRequestMaxBytes:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestMaxBytes of %d", c.MaxRequestMaxBytes)
	case r.MinPending != 0 || r.MinAckPending != 0:
		code, text = 400, "Bad Request - Not a Overflow Priority consumer"
	case r.PinID != "":
		code, text = 400, "Bad Request - Not a Pinned Client Priority consumer"
	case r.Priority < 0 || r.Priority > 9:
		code, text = 400, "Bad Request - Priority must be between 0 and 9"
	}

	if code > 0 {
		return r, &ending{code: code, text: text}
	}

	r.limited = r.MaxBytes > 0
	r.Batch, r.MaxBytes = max(r.Batch, 1), max(r.MaxBytes, 0)
	if r.Heartbeat > 0 {
		r.Heartbeat = max(r.Heartbeat, subjects.MinIdleHeartbeat)
	}
	switch {
	case r.Expires == 0 && !r.NoWait:
		r.Expires = maxExpires
	case r.Expires != 0:
		r.Expires = min(max(r.Expires, 1), maxExpires)
	}

	return r, nil
}
