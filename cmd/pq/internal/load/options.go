// Package load puts load on queues of a running service and measures the replies.
//
// Items carry a mark, so that the load takes only its own. It refuses a queue with
// other items. One that turns up later was only leased, and goes back to its place:
// plain pops, which remove items, need a queue whose name says that it is for loads.
package load

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Mode is what the clients do.
type Mode string

const (
	Push  Mode = "push"
	Pop   Mode = "pop"
	Mixed Mode = "mixed" // each client pushes, then leases and acknowledges
	Lease Mode = "lease" // leases items, and acknowledges them with another request
	Work  Mode = "work"  // a client.Worker for each connection, whose jobs do nothing
)

// Modes are all modes, in the order of the help.
var Modes = []Mode{Push, Pop, Mixed, Lease, Work}

// Options describe a load.
type Options struct {
	// Dial makes one connection. Required.
	Dial func() (*nats.Conn, error)
	// Grammar has the prefixes of the service. Required.
	Grammar subjects.Grammar
	// Queue is the name of the queue, FIFO or else a priority queue.
	Queue string
	FIFO  bool
	// Queues is how many queues share the load, by turns. If there are several, a hyphen and a
	// number, from 1 up, follow the Queue in their names.
	Queues int

	Mode Mode
	// Batch is the number of items in a request. A Worker decides that itself.
	Batch int
	// Clients is the number of clients, each with one request under way, which
	// share the Connections.
	Clients, Connections int
	// Size of a value, in bytes.
	Size int
	// Priorities is how many different ones are pushed, from 0 up. A FIFO queue ignores it.
	Priorities int
	// Result is how many bytes each acknowledgement gives as the result of its job; 0 is no result.
	// They are kept if the queue keeps its jobs.
	Result int
	// Groups is how many groups the items belong to, in turns; 0 is none.
	Groups int
	// Rate is the most items per second of all clients together; 0 means no limit.
	Rate float64
	// Timeout bounds each request. Required.
	Timeout time.Duration
	// Duration and Count, of items, end the load, whichever comes first; 0 means no
	// limit, and one of them must be set.
	Duration time.Duration
	Count    int64
}

// takes reports whether the mode takes items that are in the queue already.
func (m Mode) takes() bool { return m == Pop || m == Lease || m == Work }

// Validate returns all problems of the options, joined.
func (o *Options) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	check(slices.Contains(Modes, o.Mode), "mode %q: want one of %s", o.Mode,
		strings.Trim(fmt.Sprint(Modes), "[]"))
	check(o.Mode != Pop || o.Queue == ownQueue || strings.HasPrefix(o.Queue, ownQueue+"-"),
		"mode %s of queue %s: a plain pop removes whatever comes first, so the name of the queue "+
			"must be %s or begin with %s-; mode %s works on any, and gives back what is not "+
			"its own", Pop, o.Queue, ownQueue, ownQueue, Lease)
	check(o.Batch >= 1 && o.Batch <= subjects.MaxPopBatch, "batch is %d: want 1 to %d", o.Batch,
		subjects.MaxPopBatch)
	check(o.Batch == 1 || o.Mode != Work, "mode %s takes no batch: "+
		"its workers decide how much they ask for",
		Work)
	check(o.Queues >= 1 && o.Queues <= maxQueues, "queues is %d: want 1 to %d", o.Queues, maxQueues)
	check(o.Queues <= 1 || o.Mode != Work, "mode %s of several queues: a Worker works on one", Work)
	check(o.Connections >= 1 && o.Connections <= 1000, "connections is %d: want 1 to 1000",
		o.Connections)
	check(o.Clients >= o.Connections && o.Clients <= 10_000,
		"clients is %d: want at least one client each for connections, at most 10000", o.Clients)
	check(o.Size >= len(mark),
		"size is %d: want at least %d bytes, which mark the items of the load", o.Size, len(mark))
	check(o.Priorities >= 1, "priorities is %d: want at least 1", o.Priorities)
	check(o.Result >= 0, "result is %d: want 0 or more bytes", o.Result)
	check(o.Groups >= 0, "groups is %d: want 0 or more", o.Groups)
	check(o.Rate >= 0, "rate is %v: want 0 or more items per second", o.Rate)
	check(o.Duration >= 0 && o.Count >= 0 && (o.Duration > 0 || o.Count > 0),
		"duration is %v and count is %d: want one of them above 0", o.Duration, o.Count)
	return errors.Join(problems...)
}
