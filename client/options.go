package client

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// LeaseOption changes a lease: [AckWait], [Holder], or any [PopOption].
type LeaseOption interface{ apply(*subjects.PopOptions) }

// PopOption changes a pop: [MaxBytes], [Expires], [IdleHeartbeat] or [NoWait].
type PopOption interface {
	LeaseOption
	plain() // it is not only for leases
}

// AckWait is the length of a lease, 100 ms to 12 h. 0, the default, means as the settings of the
// queue say, 30 s unless they do.
type AckWait time.Duration

func (w AckWait) apply(o *subjects.PopOptions) { o.AckWait = time.Duration(w) }

// Holder is the name of who takes a lease, for people who ask what is held by whom: up to 128 bytes of
// UTF-8 without control characters. "", the default, is none; the lease of a [Delivery.Next] keeps the
// name of the one before.
type Holder string

func (h Holder) apply(o *subjects.PopOptions) { o.Holder = string(h) }

// DefaultHolder names this process: its host and process id and, if it has one, the name of the
// connection (nats.Name).
func DefaultHolder(nc *nats.Conn) Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s pid %d", host, os.Getpid())
	if nc != nil && nc.Opts.Name != "" {
		name += " " + nc.Opts.Name
	}

	// A host or a connection may have any name.
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	return Holder(settings.Cut(name, settings.MaxHolder))
}

// MaxBytes is the most bytes of values and headers that a call returns, with 4 bytes more for each
// header. The first item that exceeds it stays in the queue. 0, the default, means no limit.
type MaxBytes int

func (n MaxBytes) apply(o *subjects.PopOptions) { o.MaxBytes = int(n) }
func (n MaxBytes) plain()                       {}

// Expires makes a pop or lease of an empty queue wait for that long, 1 ms to 1 h: it returns as
// soon as there is an item, or with [ErrEmpty]. The pop that has waited longest comes first. A pop
// of several items waits until it has all of them; when the time is over, it returns what it has. 0, the default, means not to wait.
//
// Without a reply the call gives up 5 s after that time, with [ErrUnknownOutcome], even if its
// context lasts longer.
type Expires time.Duration

func (d Expires) apply(o *subjects.PopOptions) { o.Expires = time.Duration(d) }
func (d Expires) plain()                       {}

// IdleHeartbeat is how often the bridge confirms that a call with [Expires] still waits, 100 ms or
// more. If nothing comes for twice that time, the call returns [ErrNoHeartbeat]. 0, the default,
// means no heartbeats.
type IdleHeartbeat time.Duration

func (d IdleHeartbeat) apply(o *subjects.PopOptions) { o.IdleHeartbeat = time.Duration(d) }
func (d IdleHeartbeat) plain()                       {}

// NoWait makes a call for several items with [Expires] return at once if there are some, though
// fewer than it asked for. If there is none, it waits as without NoWait. It changes nothing for
// other calls.
func NoWait() PopOption { return noWait{} }

type noWait struct{}

func (noWait) apply(o *subjects.PopOptions) { o.NoWait = true }
func (noWait) plain()                       {}

// popOptions returns the options of a pop of up to n items, 0 for one without batches.
func popOptions(n int, options []PopOption) subjects.PopOptions {
	o := subjects.PopOptions{Batch: n}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// leaseOptions is popOptions for leases.
func leaseOptions(n int, options []LeaseOption) subjects.PopOptions {
	o := subjects.PopOptions{Batch: n, Lease: true}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// Backoff is a delay of Nak: as long as the settings of the queue say.
const Backoff time.Duration = math.MinInt64

// NakOption changes a Nak: [Reason].
type NakOption interface{ nak(*subjects.Ack) }

// Reason says why an item was given back. If the item ends up in a dead-letter queue, the last
// Reason becomes the Error of its DeadLetter. It is cut at 1,024 bytes.
type Reason string

func (r Reason) nak(a *subjects.Ack) { a.Reason = cut(string(r), maxSentReason) }

// maxSentReason keeps a reason from exceeding what NATS carries. The bridge keeps less.
const maxSentReason = 4096

// cut cuts a text at a number of bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
