package client

import (
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// lateReply is how much later than promised a reply may come. If none does, the bridge was
// killed, or NATS lost the request or the reply.
const lateReply = 5 * time.Second

// Expires makes a pop or lease of an empty queue wait for that long, 1 ms to 1 h: it returns as
// soon as there is an item, or with [ErrEmpty]. Whoever waits longest comes first. A pop of
// several items waits until it has all of them, and returns those that it has when the time is
// over. 0, the default, means not to wait.
//
// Without a reply the call gives up 5 s after that time, with [ErrUnknownOutcome], even if its
// context lasts longer.
type Expires time.Duration

func (d Expires) apply(o *subjects.PopOptions) { o.Expires = time.Duration(d) }
func (d Expires) plain()                       {}

// IdleHeartbeat makes the bridge confirm that often, at least every 100 ms, that a call with
// [Expires] still waits. If nothing comes for twice that time, the call returns
// [ErrNoHeartbeat]. 0, the default, means no heartbeats.
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
