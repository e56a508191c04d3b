package subjects

import (
	"fmt"
	"strconv"
	"time"
)

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does
// not check the bounds.
func (o PopOptions) Encode() []byte {
	var b object
	add := func(name string, value int64) {
		if value != 0 {
			b.add(name, strconv.AppendInt(nil, value, 10))
		}
	}
	add("batch", int64(o.Batch))
	if o.Lease || o.AckWait != 0 {
		b.add("ack_wait", strconv.AppendInt(nil, int64(o.AckWait), 10))
	}
	add("max_bytes", int64(o.MaxBytes))
	add("expires", int64(o.Expires))
	add("idle_heartbeat", int64(o.IdleHeartbeat))
	if o.NoWait {
		b.add("no_wait", []byte("true"))
	}
	if b == nil {
		return nil
	}
	return b.end()
}

// Encode returns the payload that ParseAck reads. It does not check the bounds.
func (a Ack) Encode() []byte {
	switch a.Kind {
	case AckNak:
		return a.encodeNak()
	case AckTerm:
		if a.Reason != "" {
			return []byte("+TERM " + a.Reason)
		}
		return []byte("+TERM")
	case AckProgress:
		return []byte("+WPI")
	case AckNext:
		if options := a.Next.Encode(); options != nil {
			return append([]byte("+NXT "), options...)
		}
		return []byte("+NXT")
	default:
		return []byte("+ACK")
	}
}

func (a Ack) encodeNak() []byte {
	var o object
	if a.HasDelay {
		o.add("delay", strconv.AppendInt(nil, int64(a.Delay), 10))
	}
	if a.Snooze {
		o.add("snooze", []byte("true"))
	}
	if a.Reason != "" {
		o.add("reason", textJSON(a.Reason))
	}
	if o == nil {
		return []byte("-NAK")
	}
	return append([]byte("-NAK "), o.end()...)
}

// LeaseInfo is what the headers of a reply say about the lease of its item.
type LeaseInfo struct {
	// Deliveries is how many times the item was delivered, this time included.
	Deliveries int64
	// Until is when the lease is over, by the bridge's clock.
	Until time.Time
}

// ParseLeaseHeaders returns what the headers of a reply say about a lease: the zero value if
// the reply had no room for them.
func ParseLeaseHeaders(h map[string][]string) (LeaseInfo, error) {
	var info LeaseInfo
	var err error
	if text := first(h, HeaderDeliveries); text != "" {
		if info.Deliveries, err = strconv.ParseInt(text, 10, 64); err != nil {
			return info, fmt.Errorf("header %s: %w", HeaderDeliveries, err)
		}
	}
	if text := first(h, HeaderLeaseUntil); text != "" {
		if info.Until, err = time.Parse(TimeLayout, text); err != nil {
			return info, fmt.Errorf("header %s: %w", HeaderLeaseUntil, err)
		}
	}
	return info, nil
}

// ParseBatchEnd reports whether a message with these headers ends the reply to a pop of
// several items, and how many items were sent.
func ParseBatchEnd(h map[string][]string) (sent int, ends bool, err error) {
	text := first(h, HeaderBatchCount)
	if text == "" {
		return 0, false, nil
	}
	if sent, err = strconv.Atoi(text); err != nil {
		return 0, true, fmt.Errorf("header %s: %w", HeaderBatchCount, err)
	}
	return sent, true, nil
}

// IsHeartbeat reports whether a message with these headers only says that a pop still waits.
func IsHeartbeat(h map[string][]string) bool { return len(h[HeaderHeartbeat]) > 0 }
