package subjects

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	r := headerReader{h: h}
	info := LeaseInfo{Deliveries: r.count(HeaderDeliveries), Until: r.time(HeaderLeaseUntil)}
	return info, r.err
}

// ParseBatchEnd reports whether a message with these headers ends the reply to a pop of
// several items, and how many items were sent.
func ParseBatchEnd(h map[string][]string) (sent int, ends bool, err error) {
	r := headerReader{h: h}
	sent = int(r.count(HeaderBatchCount))
	return sent, first(h, HeaderBatchCount) != "", r.err
}

// FramesOf returns how many items a message with these headers carries in frames, 0 if it carries
// none in frames.
func FramesOf(h map[string][]string) (int, error) {
	r := headerReader{h: h}
	n := r.count(HeaderFrames)
	if r.err == nil && first(h, HeaderFrames) != "" && (n < 1 || n > MaxFrames) {
		r.err = fmt.Errorf("header %s: %d: want 1 to %d", HeaderFrames, n, MaxFrames)
	}
	return int(n), r.err
}

// IsHeartbeat reports whether a message with these headers only says that a pop still waits.
func IsHeartbeat(h map[string][]string) bool { return len(h[HeaderHeartbeat]) > 0 }

// FormatLost returns the value of HeaderLost: numbers of leases, such as "0,3". 0 is the lease of
// the subject, and 1 the first of Ack.Also.
func FormatLost(lost []int) string { return string(appendList(nil, lost)) }

// ParseLost returns what HeaderLost says about an acknowledgement of that many leases: ascending
// numbers, nil without a header.
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
