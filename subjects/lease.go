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

// ParseBatchEnd reports whether a message with these headers ends the reply to a pop of
// several items, and how many items were sent.
func ParseBatchEnd(h map[string][]string) (sent int, ends bool, err error) {
	text := first(h, HeaderBatchCount)
	n, err := parseCount(HeaderBatchCount, text)
	return int(n), text != "", err
}

// FramesOf returns how many items a message with these headers carries in frames, 0 if it carries
// none in frames.
func FramesOf(h map[string][]string) (int, error) {
	text := first(h, HeaderFrames)
	n, err := parseCount(HeaderFrames, text)
	if err == nil && text != "" && (n < 1 || n > MaxFrames) {
		err = fmt.Errorf("header %s: %d: want 1 to %d", HeaderFrames, n, MaxFrames)
	}
	return int(n), err
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
