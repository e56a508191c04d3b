// Package settings says what can be set for a queue: [Settings] has the values, and a table of
// [Setting] has the name, bounds and default of each. How settings look in the store (package
// fdbpq), on the wire and on the command line (package subjects) follows from the table.
//
// A new setting is a field of Settings and a row of the table, besides what it does. The package
// does no I/O.
package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of leases and delays, in settings and elsewhere.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = 12 * time.Hour
	MinTTL   = time.Second
	// MaxDelay is ten years, also for the time after which items expire.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// Bounds of settings alone.
const (
	// MaxBackoffs is the most elements of a Backoff.
	MaxBackoffs   = 100
	MaxMaxDeliver = 1_000_000
	// MaxCount is for MaxLeased, MaxItems and MaxLeasedPerGroup.
	MaxCount = 1_000_000_000
	// MaxTotalBytes is for MaxBytes.
	MaxTotalBytes = 1 << 50
)

// Defaults of settings whose zero value means something else than none.
const (
	DefaultLease           = 30 * time.Second
	DefaultDuplicateWindow = 2 * time.Minute
)

// NoDuplicateWindow is the DuplicateWindow of a queue that remembers no message ids.
const NoDuplicateWindow time.Duration = -1

// Values of Settings.Discard.
const (
	// DiscardNew refuses pushes that exceed a limit.
	DiscardNew = "new"
	// DiscardOld makes room for them: it removes the items with the largest keys, that is the
	// largest priority and, among equals, the newest; in a FIFO queue the oldest. It removes none
	// that are leased, and refuses a push that would have to go itself.
	DiscardOld = "old"
)

// Settings are the settings of a queue. The zero value of a field means that it is not set.
type Settings struct {
	// AckWait is the length of leases whose length nothing else says, MinLease to MaxLease. Not
	// set, it is DefaultLease.
	AckWait time.Duration
	// Backoff is how long an item stays back when its lease has run out, or after a negative
	// acknowledgement that does not say: the first element after the first delivery, and so on,
	// and the last after all later ones. At most MaxBackoffs elements, 0 to MaxDelay. Not set, the
	// item comes back at once.
	Backoff []time.Duration
	// MaxDeliver is how many deliveries an item may have, up to MaxMaxDeliver. When the last has
	// failed, the item moves to the dead-letter queue. Not set, there is no limit.
	MaxDeliver int64
	// DeadLetter is the name of the dead-letter queue, which is of the same kind and in the same
	// keyspace. Not set, it is that of the queue with "-dead" appended.
	DeadLetter string
	// TTL is after how long items expire that are pushed or redriven later and say nothing about
	// it, MinTTL to MaxDelay. Dead letters say that they do not. Not set, they do not expire.
	TTL time.Duration
	// PauseUntil is when pops and leases go on, to the microsecond, in a year from 1970 to 9999;
	// until then they find nothing. Not set, or past, they are not paused.
	PauseUntil time.Time
	// MaxLeased is how many items may be leased at a time, up to MaxCount. Not set, there is no
	// limit.
	MaxLeased int64
	// MaxItems is how many items a push may leave in the queue: ready, leased and delayed, up to
	// MaxCount. Not set, there is no limit.
	MaxItems int64
	// MaxBytes is how many bytes these may have together after a push, values and headers, up to
	// MaxTotalBytes. Not set, there is no limit.
	MaxBytes int64
	// Discard says what becomes of pushes beyond MaxItems and MaxBytes: DiscardNew or DiscardOld.
	// Not set, it is DiscardNew.
	Discard string
	// DuplicateWindow is how long a second push with the same message id is a duplicate: MinLease
	// to MaxDelay, or NoDuplicateWindow. That of the first push counts. Not set, it is
	// DefaultDuplicateWindow.
	DuplicateWindow time.Duration
	// MaxLeasedPerGroup is how many items of one group may be leased at a time, up to MaxCount. Pops
	// and leases pass over the items of a group that has as many. Items without a group are not
	// limited. Not set, there is no limit.
	MaxLeasedPerGroup int64
	// Rate is how often items of the queue may be delivered, as text that ParseRate reads, such as
	// "10/1s": 10 in any second, or 10 at once after a pause. Each delivery counts, a repeated one,
	// too. Not set, there is no limit.
	Rate string
	// RatePerGroup is the same for the items of each group. Pops and leases pass over the items of a
	// group that has used it up. Items without a group are not limited.
	RatePerGroup string
	// Source is the JSON of a Source, from which the queue draws. Not set, it draws from none.
	Source string
}

// LimitsGroups reports whether there is a limit for each group.
func (s *Settings) LimitsGroups() bool { return s.MaxLeasedPerGroup > 0 || s.RatePerGroup != "" }

// Clone returns a copy that shares no memory.
func (s *Settings) Clone() *Settings {
	c := *s
	c.Backoff = append([]time.Duration(nil), s.Backoff...) // nil if it is empty

	return &c
}

// LeaseWait is the length of leases whose length nothing else says.
func (s *Settings) LeaseWait() time.Duration {
	if s.AckWait > 0 {
		return s.AckWait
	}
	return DefaultLease
}

// BackoffAfter is the delay after the given number of deliveries.
func (s *Settings) BackoffAfter(deliveries int64) time.Duration {
	if len(s.Backoff) == 0 {
		return 0
	}
	return s.Backoff[max(min(deliveries, int64(len(s.Backoff))), 1)-1]
}

// Exhausted reports whether an item has had its last delivery.
func (s *Settings) Exhausted(deliveries int64) bool {
	return s.MaxDeliver > 0 && deliveries >= s.MaxDeliver
}

// Window is how long message ids are remembered, 0 or less if they are not.
func (s *Settings) Window() time.Duration {
	if s.DuplicateWindow == 0 {
		return DefaultDuplicateWindow
	}
	return s.DuplicateWindow
}

// Bounds of rates.
const (
	MaxRateCount = 1_000_000
	MinRatePer   = time.Second
	MaxRatePer   = 24 * time.Hour
)

// Rate is how often items may be delivered: Count of them in each Per, and as many at once after a
// pause.
type Rate struct {
	Count int64
	Per   time.Duration
}

// ParseRate reads a rate such as "10/1s". "" is the zero Rate, which is no limit.
func ParseRate(text string) (r Rate, err error) {
	if text == "" {
		return r, nil
	}

	count, per, _ := strings.Cut(text, "/")
	r.Count, err = strconv.ParseInt(count, 10, 64)
	if err == nil {
		r.Per, err = time.ParseDuration(per)
	}
	if err != nil || strconv.FormatInt(r.Count, 10) != count || r.Count < 1 || r.Count > MaxRateCount || r.Per < MinRatePer || r.Per > MaxRatePer {
		return Rate{}, badRate(text)
	}
	return r, nil
}

func badRate(text string) error {
	return fmt.Errorf(`%+.130q: want n/duration, such as "10/1s", with 1 to %d and 1s to 24h`, text, MaxRateCount)
}

// Interval is the time after which one more item may be delivered. It is rounded up, so that no
// period has more than Count.
func (r Rate) Interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// checkRate returns what is wrong with the text of a rate.
func checkRate(text string) error {
	if text == "" { // no limit is not set
		return badRate(text)
	}
	_, err := ParseRate(text)
	return err
}

// MaxQueueName is the longest queue name, in bytes.
const MaxQueueName = 128

// DeadSuffix ends the names of dead-letter queues that no setting names.
const DeadSuffix = "-dead"

// DeadLetterQueue returns the name of the dead-letter queue of the queue with this name: DeadLetter,
// or the name with "-dead" appended. A long name gets that in place of its end, as often as it takes
// to make another name.
func (s *Settings) DeadLetterQueue(name string) string {
	if s.DeadLetter != "" && s.DeadLetter != name {
		return s.DeadLetter
	}

	for suffix := DeadSuffix; len(suffix) < MaxQueueName; suffix += DeadSuffix {
		if dead := Cut(name, MaxQueueName-len(suffix)) + suffix; dead != name {
			return dead
		}
	}
	return strings.TrimPrefix(DeadSuffix, "-") // name is little else than suffixes
}

// MaxHolder is the longest name of a lease's holder, in bytes.
const MaxHolder = 128

// CheckHolder returns an error if the text cannot be the name of a lease's holder. "" is none.
func CheckHolder(name string) error {
	if len(name) > MaxHolder || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("a holder %.140q: want at most %d bytes of UTF-8 without control characters", name, MaxHolder)
	}
	return nil
}

// Cut cuts a text at n bytes, or before the rune there.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := n; i > max(n-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(text[i]) {
			return text[:i]
		}
	}
	return text[:n] // not UTF-8
}
