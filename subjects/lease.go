package subjects

import (
	"time"
)

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does
// not check the bounds.
func (o PopOptions) Encode() []byte {
	var b object
	count := func(name string, n int) {
		if n != 0 {
			b.add(name, countJSON(n))
		}
	}
	duration := func(name string, d time.Duration) {
		if d != 0 {
			b.add(name, durationJSON(d))
		}
	}
	count("batch", o.Batch)
	if o.Lease && o.AckWait == 0 {
		b.add("ack_wait", countJSON(0))
	}
	duration("ack_wait", o.AckWait)
	count("max_bytes", o.MaxBytes)
	duration("expires", o.Expires)
	duration("idle_heartbeat", o.IdleHeartbeat)
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
		o.add("delay", durationJSON(a.Delay))
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
		if info.Deliveries, err = parseHeaderCount(HeaderDeliveries, text); err != nil {
			return info, err
		}
	}
	if text := first(h, HeaderLeaseUntil); text != "" {
		if info.Until, err = parseHeaderTime(HeaderLeaseUntil, text); err != nil {
			return info, err
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
	n, err := parseHeaderCount(HeaderBatchCount, text)
	return int(n), true, err
}

// IsHeartbeat reports whether a message with these headers only says that a pop still waits.
func IsHeartbeat(h map[string][]string) bool { return len(h[HeaderHeartbeat]) > 0 }
