package subjects

import (
	"fmt"
	"strconv"
	"time"
)

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does
// not check the bounds.
func (o PopOptions) Encode() []byte {
	var b []byte
	member := func(name string) []byte {
		start := `{"`
		if b != nil {
			start = `,"`
		}
		return append(b, start+name+`":`...)
	}
	if o.Batch != 0 {
		b = strconv.AppendInt(member("batch"), int64(o.Batch), 10)
	}
	if o.Lease || o.AckWait != 0 {
		b = strconv.AppendInt(member("ack_wait"), int64(o.AckWait), 10)
	}
	if o.MaxBytes != 0 {
		b = strconv.AppendInt(member("max_bytes"), int64(o.MaxBytes), 10)
	}
	if o.NoWait {
		b = append(member("no_wait"), "true"...)
	}
	if b != nil {
		b = append(b, '}')
	}
	return b
}

// Encode returns the payload that ParseAck reads. It does not check the bounds.
func (a Ack) Encode() []byte {
	switch a.Kind {
	case AckNak:
		switch {
		case a.Snooze:
			return fmt.Appendf(nil, `-NAK {"delay":%d,"snooze":true}`, int64(a.Delay))
		case a.Delay != 0:
			return fmt.Appendf(nil, `-NAK {"delay":%d}`, int64(a.Delay))
		}
		return []byte("-NAK")
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
