// Package settings says what can be set for a queue. [Settings] has the values, and a table of
// [Setting], see [All], has the name, bounds and default of each. How settings look in the store
// (package fdbpq), on the wire and on the command line (package subjects) follows from the table.
//
// A new setting is a field of Settings and a row of the table, and the code that obeys it. The
// package does no I/O. A Settings is a plain value: it is not safe for concurrent use while it
// changes.
package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Bounds of leases and delays, in settings and elsewhere.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = 12 * time.Hour
	MinTTL   = time.Second
	MinKeep  = time.Second
	MinJoin  = time.Second // for which a joiner waits
	// MaxDelay is ten years. It also bounds the time after which items expire, and for which jobs
	// that are done are kept.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// Bounds of settings alone.
const (
	// MaxBackoffs is the most elements of a Backoff.
	MaxBackoffs   = 100
	MaxMaxDeliver = 1_000_000
	// MaxCount bounds MaxLeased, MaxItems, MaxLeasedPerGroup and KeepItems.
	MaxCount = 1_000_000_000
	// MaxTotalBytes bounds MaxBytes.
	MaxTotalBytes = 1 << 50
	// MaxPausedGroups is the most names in PausedGroups, MaxGroup the longest one, in bytes.
	MaxPausedGroups = 64
	MaxGroup        = 128
	// MaxNext is the most names in Next.
	MaxNext = 16
	// MaxTrail bounds Trail.
	MaxTrail = 16
)

// Defaults of settings whose zero value does not mean none.
const (
	DefaultLease           = 30 * time.Second
	DefaultDuplicateWindow = 2 * time.Minute
	DefaultKeepItems       = 10_000
)

// NoDuplicateWindow is the DuplicateWindow of a queue that remembers no message ids.
const NoDuplicateWindow time.Duration = -1

// Values of Settings.Discard.
const (
	// DiscardNew refuses pushes that exceed a limit.
	DiscardNew = "new"
	// DiscardOld removes other items to make room for such pushes: those with the largest priority
	// and, among equals, the newest; in a FIFO queue the oldest. It does not remove leased items,
	// and refuses a push that would have to go itself.
	DiscardOld = "old"
)

// Settings are the settings of a queue. The zero value of a field means that it is not set.
type Settings struct {
	// AckWait is how long a lease lasts if its request does not say: MinLease to MaxLease. Default:
	// DefaultLease.
	AckWait time.Duration
	// Backoff is how long an item is held back when its lease has run out, or after a negative
	// acknowledgement without a delay. The first element is for the first delivery, and so on; the
	// last one is for all later deliveries. At most MaxBackoffs elements, 0 to MaxDelay. Default:
	// the item comes back at once.
	Backoff []time.Duration
	// MaxDeliver is how many deliveries an item may have, up to MaxMaxDeliver. When the last one
	// has failed, the item moves to the dead-letter queue. Default: no limit.
	MaxDeliver int64
	// DeadLetter is the name of the dead-letter queue, which is of the same kind and in the same
	// keyspace. Default: the name of the queue with "-dead" appended.
	DeadLetter string
	// TTL is how long after their push or redrive items expire, MinTTL to MaxDelay. It applies to
	// items that come after it was set and have no TTL of their own. Dead letters do not expire.
	// Default: no item expires.
	TTL time.Duration
	// PauseUntil is when pops and leases continue, to the microsecond, in a year from 1970 to 9999.
	// Until then they find nothing. An unset or past time means that they are not paused.
	PauseUntil time.Time
	// MaxLeased is how many items may be leased at a time, up to MaxCount. Default: no limit.
	MaxLeased int64
	// MaxItems is how many items, ready, leased and delayed, a push may leave in the queue, up to
	// MaxCount. Default: no limit.
	MaxItems int64
	// MaxBytes is how many bytes of values and headers a push may leave in the queue, up to
	// MaxTotalBytes. Default: no limit.
	MaxBytes int64
	// Discard says what happens to pushes beyond MaxItems and MaxBytes: DiscardNew, the default, or
	// DiscardOld.
	Discard string
	// DuplicateWindow is how long a second push with the same message id is a duplicate: MinLease
	// to MaxDelay, or NoDuplicateWindow. The value at the first push counts. Default:
	// DefaultDuplicateWindow.
	DuplicateWindow time.Duration
	// MaxLeasedPerGroup is how many items of one group may be leased at a time, up to MaxCount.
	// Pops and leases pass over the items of a group at the limit. Items without a group are not
	// limited. Default: no limit.
	MaxLeasedPerGroup int64
	// Rate is how often items of the queue may be delivered, as text that ParseRate reads, such as
	// "10/1s": 10 in any second, or 10 at once after a pause. Repeated deliveries count as well.
	// Default: no limit.
	Rate string
	// RatePerGroup is the same for the items of each group. Pops and leases pass over the items of
	// a group that has used it up. Items without a group are not limited.
	RatePerGroup string
	// Source is the JSON of a Source, from which the queue draws. Default: none.
	Source string
	// PausedGroups are names of groups, up to MaxPausedGroups, each once. Pops and leases pass over
	// their items. Default: none.
	PausedGroups []string
	// Keep is for how long a job is kept once it is acknowledged, MinKeep to MaxDelay, unless its
	// push said so itself. Default: such jobs leave nothing behind.
	Keep time.Duration
	// KeepItems is how many finished jobs the queue keeps, up to MaxCount. The oldest go first, but
	// none in the first minute. Default: DefaultKeepItems.
	KeepItems int64
	// Next are the names of the queues to which acknowledgements of this queue may push, up to
	// MaxNext, each once. They are of the same kind and in the same keyspace. The queue itself may
	// be one. Default: none.
	Next []string
	// Trail is how many attempts are kept of a job, up to MaxTrail: the first, and the newest. If
	// it is lowered, those of the jobs in the queue go. Default: none is kept.
	Trail int64
}

// LimitsGroups reports whether there are groups that pops and leases may have to pass over.
func (s *Settings) LimitsGroups() bool {
	return s.MaxLeasedPerGroup > 0 || s.RatePerGroup != "" || len(s.PausedGroups) > 0
}

// PauseGroup adds a group to PausedGroups, or removes it.
func (s *Settings) PauseGroup(group string, paused bool) {
	others := func(name string) bool { return name == group }
	s.PausedGroups = slices.DeleteFunc(slices.Clone(s.PausedGroups), others)
	if paused {
		s.PausedGroups = append(s.PausedGroups, group)
	}
}

// Clone returns a copy that shares no memory.
func (s *Settings) Clone() *Settings {
	c := *s
	c.Backoff = append([]time.Duration(nil), s.Backoff...) // nil if it is empty
	c.PausedGroups = append([]string(nil), s.PausedGroups...)
	c.Next = append([]string(nil), s.Next...)
	return &c
}

// LeaseWait returns how long a lease lasts if its request does not say.
func (s *Settings) LeaseWait() time.Duration {
	return cmp.Or(max(s.AckWait, 0), DefaultLease)
}

// BackoffAfter returns the delay after the given number of deliveries.
func (s *Settings) BackoffAfter(deliveries int64) time.Duration {
	if len(s.Backoff) == 0 {
		return 0
	}
	return s.Backoff[max(min(deliveries, int64(len(s.Backoff))), 1)-1]
}

// LongestRetry bounds the delays of RetryAfter, unless the first one is longer.
const LongestRetry = time.Minute

// RetryAfter is BackoffAfter, and without a Backoff the first delay, doubled with each further
// delivery, up to LongestRetry or the first delay, whichever is longer.
func (s *Settings) RetryAfter(deliveries int64, first time.Duration) time.Duration {
	if len(s.Backoff) > 0 {
		return s.BackoffAfter(deliveries)
	}

	delay, longest := first, max(first, LongestRetry)
	for ; deliveries > 1 && 0 < delay && delay < longest; deliveries-- {
		delay *= 2
	}
	return min(delay, longest)
}

// Exhausted reports whether an item has had its last delivery.
func (s *Settings) Exhausted(deliveries int64) bool {
	return s.MaxDeliver > 0 && deliveries >= s.MaxDeliver
}

// Window returns how long message ids are remembered; 0 or less is not at all.
func (s *Settings) Window() time.Duration {
	return cmp.Or(s.DuplicateWindow, DefaultDuplicateWindow)
}

// MostKept returns how many finished jobs the queue keeps.
func (s *Settings) MostKept() int64 { return cmp.Or(s.KeepItems, DefaultKeepItems) }

// Bounds of rates.
const (
	MaxRateCount = 1_000_000
	MinRatePer   = time.Second
	MaxRatePer   = 24 * time.Hour
)

// Rate is how often items may be delivered: Count of them in each Per, or Count at once after a
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
		r.Per, err = strictjson.ParseDuration(per)
	}

	if err != nil || strconv.FormatInt(r.Count, 10) != count ||
		r.Count < 1 || r.Count > MaxRateCount || r.Per < MinRatePer || r.Per > MaxRatePer {
		return Rate{}, fmt.Errorf(`%+.130q: want n/duration, such as "10/1s", `+
			"with 1 to %d and 1s to 24h", text, MaxRateCount)
	}
	return r, nil
}

// Interval returns the time after which one more item may be delivered. It is rounded up, so that
// no period has more than Count.
func (r Rate) Interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// checkRate returns an error unless the text is a rate.
func checkRate(text string) error {
	_, err := ParseRate(text)
	return err
}

// MaxQueueName is the longest queue name, in bytes.
const MaxQueueName = 128

// DeadSuffix ends the names of dead-letter queues that no setting names.
const DeadSuffix = "-dead"

// DeadLetterQueue returns the name of the dead-letter queue of a queue: DeadLetter, or the name of
// the queue with "-dead" appended. In a long name, "-dead" replaces the end, as often as it takes
// to make a different name.
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

// MaxProgress is the most bytes of what a worker says of a job that it has leased.
const MaxProgress = 1024

// CheckHolder returns an error if the text cannot be the name of a lease's holder. "" is none.
func CheckHolder(name string) error {
	clean := utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
	if len(name) > MaxHolder || !clean {
		return fmt.Errorf("a holder %.140q: "+
			"want at most %d bytes of UTF-8 without control characters", name, MaxHolder)
	}
	return nil
}

// IsGroup reports whether the text can be the name of a group: 1 to MaxGroup bytes of UTF-8 in one
// line.
func IsGroup(name string) bool {
	return 1 <= len(name) && len(name) <= MaxGroup && !strings.ContainsAny(name, "\r\n") &&
		utf8.ValidString(name)
}

// CheckGroup returns an error if the text cannot be the name of a group in a setting. A push names
// its group in a header, where blanks around it do not count.
func CheckGroup(name string) error {
	if !IsGroup(name) || strings.Trim(name, " \t") != name {
		return fmt.Errorf("a group %+.130q: want 1 to %d bytes of UTF-8 in one line, "+
			"without blanks around it", name, MaxGroup)
	}
	return nil
}

// CleanText makes a client's text fit for a header: valid UTF-8 without control characters, cut at
// n bytes.
func CleanText(text string, n int) string {
	text = strings.ToValidUTF8(Cut(text, n), "\uFFFD")
	return Cut(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), n)
}

// Cut cuts a text at n bytes, or before a rune that goes across.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(text[i]) {
			return text[:i]
		}
	}
	return text[:n] // not UTF-8
}
