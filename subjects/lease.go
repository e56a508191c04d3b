package subjects

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Encode returns the payload that ParsePopOptions reads, nil if o asks for nothing. It does
// not check the bounds.
func (o PopOptions) Encode() []byte {
	if b := o.object(); b != nil {
		return b.end()
	}
	return nil
}

// object returns the members, nil if there are none.
func (o PopOptions) object() (b object) {
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
	if o.Frames {
		b.add("frames", []byte("true"))
	}
	text := func(name, value string) {
		if value != "" {
			b.add(name, textJSON(value))
		}
	}
	text("id", o.ID)
	text("cancel", o.Cancel)
	return b
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
		return a.encodeDone("+NXT", a.Next.object())
	default:
		return a.encodeDone("+ACK", nil)
	}
}

// encodeDone returns an acknowledgement that an item is done, with the members of an object that it has so far.
func (a Ack) encodeDone(verb string, o object) []byte {
	if len(a.Also) > 0 {
		o.add("also", textsJSON(a.Also))
	}
	if o == nil {
		return []byte(verb)
	}
	return append(append([]byte(verb), ' '), o.end()...)
}

// textsJSON returns an array of texts.
func textsJSON(list []string) []byte {
	b := []byte{'['}
	for i, text := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, textJSON(text)...)
	}
	return append(b, ']')
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

// FramesOf returns how many items a message with these headers carries in frames, 0 if it carries none in frames.
func FramesOf(h map[string][]string) (int, error) {
	text := first(h, HeaderFrames)
	if text == "" {
		return 0, nil
	}
	n, err := parseHeaderCount(HeaderFrames, text)
	if err == nil && (n < 1 || n > MaxFrames) {
		err = fmt.Errorf("header %s: %d: want 1 to %d", HeaderFrames, n, MaxFrames)
	}
	return int(n), err
}

// IsHeartbeat reports whether a message with these headers only says that a pop still waits.
func IsHeartbeat(h map[string][]string) bool { return len(h[HeaderHeartbeat]) > 0 }

// FormatLost returns the value of HeaderLost: numbers of leases, such as "0,3". 0 is the lease of the subject, and
// 1 the first of Ack.Also.
func FormatLost(lost []int) string {
	var b []byte
	for i, n := range lost {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// ParseLost returns what HeaderLost says about an acknowledgement of that many leases: ascending numbers, nil
// without a header.
func ParseLost(h map[string][]string, leases int) (lost []int, err error) {
	text := first(h, HeaderLost)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n >= leases || len(lost) > 0 && n <= lost[len(lost)-1] {
			return nil, fmt.Errorf("header %s: %s: want ascending numbers from 0 to %d", HeaderLost, quote(text), leases-1)
		}
		lost = append(lost, n)
	}
	return lost, nil
}
