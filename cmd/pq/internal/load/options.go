// Package load puts load on one queue of a running service and measures the
// replies. With Verify it also checks, as a client can see it, that nothing was
// lost, served twice or served out of order.
//
// Items carry a mark, so that the load pops only its own. It refuses a queue with
// other items, and puts back one that turns up later.
package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Mode is what the clients do.
type Mode string

// The modes. Mixed alternates: each client pushes an item, then pops one.
const (
	Push  Mode = "push"
	Pop   Mode = "pop"
	Mixed Mode = "mixed"
)

// Options describe a load.
type Options struct {
	// Dial makes one connection. Required.
	Dial func() (*nats.Conn, error)
	// Grammar is that of the service. Required.
	Grammar subjects.Grammar
	// Queue is the name of the queue, FIFO or else a priority queue.
	Queue string
	FIFO  bool

	Mode Mode
	// Clients is the number of clients, each with one request under way, which
	// share the Connections.
	Clients, Connections int
	// MinSize and MaxSize bound the size of a value, in bytes; each size
	// between them is equally likely.
	MinSize, MaxSize int
	// Priorities is the number of different priorities pushed, from 0 up. A FIFO
	// queue ignores it.
	Priorities int
	// Rate is the most requests per second of all clients together; 0 means as
	// many as the service answers.
	Rate float64
	// Duration and Count end the load, whichever comes first; 0 means no limit,
	// and one of them must be set.
	Duration time.Duration
	Count    int64
	// Verify checks what was popped. The queue must be empty at the start, and
	// is emptied at the end.
	Verify bool

	// Progress, if not nil, is called a few times a second with the requests
	// answered so far.
	Progress func(answered int64, elapsed time.Duration)
}

// Validate returns all problems of the options, joined.
func (o *Options) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	check(o.Mode == Push || o.Mode == Pop || o.Mode == Mixed, "mode %q: want %s, %s or %s", o.Mode, Push, Pop, Mixed)
	check(o.Connections >= 1, "connections is %d: want at least 1", o.Connections)
	check(o.Clients >= o.Connections, "%d clients cannot share %d connections: want at least one client each", o.Clients, o.Connections)
	check(o.MinSize >= markSize && o.MaxSize >= o.MinSize,
		"size is %d to %d: want at least %d bytes, which mark the items of the load", o.MinSize, o.MaxSize, markSize)
	check(o.Priorities >= 1, "priorities is %d: want at least 1", o.Priorities)
	check(o.Rate >= 0, "rate is %v: want 0 or more requests per second", o.Rate)
	check(o.Duration >= 0 && o.Count >= 0 && (o.Duration > 0 || o.Count > 0),
		"duration is %v and count is %d: want one of them above 0", o.Duration, o.Count)
	check(!o.Verify || o.Mode != Pop, "mode %s with verify: there is nothing to compare with: want %s or %s", Pop, Push, Mixed)
	return errors.Join(problems...)
}
