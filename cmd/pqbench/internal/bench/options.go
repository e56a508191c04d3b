// Package bench measures a pqbridge against a bare echo service on the same
// NATS server: the most requests per second that any service behind NATS could
// answer there. The two are reached by the same code over the same
// connections, so the ratio between them is the price of the queue.
//
// It starts the processes it needs, stops them and removes their data, also
// when its context ends early.
package bench

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Options say what to measure and with what.
type Options struct {
	// Pqbridge is the program to measure. If empty, the service that
	// already listens is measured, without its memory and processor time.
	Pqbridge string
	// NATSServer is the nats-server program to start. If empty, the one at
	// Server is used.
	NATSServer string
	// Server is the URL of the NATS server if none is started.
	Server string
	// Echo is the command line of the echo service. It reads NATS_URL, answers
	// requests on EchoSubject with their own payload, and prints a line when it is
	// ready. Required.
	Echo []string

	// Dir is where the temporary folder with the data is made.
	Dir string
	// Store is the service's PQ_STORE; empty means its default. With StoreFDB the
	// naive recipe is measured too.
	Store string
	// ClusterFile is that of the FoundationDB cluster to use, where its items below
	// the key prefixes pq-bench and q-bench come and go. If empty, a private one
	// of one process is started.
	ClusterFile string
	// PriorityPrefix and FIFOPrefix are the service's subject prefixes.
	PriorityPrefix, FIFOPrefix string
	// Queue is the name of the queue used; it must be empty at the start.
	Queue string

	// Duration is how long each operation is measured, in so many Rounds: the
	// operations and the echo service take turns, since a machine that others
	// use too changes its pace from one second to the next.
	Duration time.Duration
	Rounds   int
	// Payload is the size of an item, in bytes.
	Payload int
	// Clients is the number of clients, each with one request under way.
	Clients int
	// Connections is the number of connections the clients share.
	Connections int
	// Lean makes the clients cost little processor time, see leanConn. They
	// answer in bursts, as a crowd of real clients does not, which helps the echo
	// service most.
	Lean bool
	// Priorities is the number of different priorities pushed.
	Priorities int

	// Backlogs are the numbers of queued items to compare; none means not to.
	Backlogs []int
	// Queues is the number of queues to compare with one; 0 means not to.
	Queues int
	// Bridges are the numbers of bridges to compare on one queue; none means not
	// to.
	Bridges []int

	// Progress, if not nil, is told what is being done.
	Progress func(done, all int, what string)
	// Log is where the ends of the logs of failed processes go. Required.
	Log io.Writer
}

// StoreFDB is the PQ_STORE that is FoundationDB.
const StoreFDB = "fdb"

// EchoSubject is where the echo service listens.
const EchoSubject = "bench.echo"

// Validate returns all problems of the options, joined.
func (o *Options) Validate() error {
	var problems []error
	atLeast := func(name string, value, least int) {
		if value < least {
			problems = append(problems, fmt.Errorf("%s is %d: want at least %d", name, value, least))
		}
	}
	atLeast("payload", o.Payload, 0)
	atLeast("clients", o.Clients, 1)
	atLeast("connections", o.Connections, 1)
	atLeast("priorities", o.Priorities, 1)
	atLeast("rounds", o.Rounds, 1)
	atLeast("queues", o.Queues, 0)
	for _, n := range o.Backlogs {
		atLeast("backlog", n, 2)
	}
	for _, n := range o.Bridges {
		atLeast("bridges", n, 1)
	}
	if o.Duration <= 0 || o.Duration < time.Duration(o.Rounds) {
		problems = append(problems, fmt.Errorf("the time for each operation is %v: want more than 0, and a nanosecond for each round", o.Duration))
	}
	if o.Clients < o.Connections {
		problems = append(problems, fmt.Errorf("%d clients cannot share %d connections: want at least one client each", o.Clients, o.Connections))
	}
	if o.NATSServer != "" && o.Pqbridge == "" {
		problems = append(problems, errors.New("a new nats-server has no service to measure: name the pqbridge program too"))
	}
	if len(o.Backlogs) > 0 && o.Pqbridge == "" {
		problems = append(problems, errors.New("backlogs are measured in services of their own: name the pqbridge program"))
	}
	return errors.Join(append(problems, o.validateStore()...)...)
}

func (o *Options) validateStore() []error {
	var problems []error
	if o.Store != "" && o.Pqbridge == "" {
		problems = append(problems, errors.New("the store is that of a service to start: name the pqbridge program"))
	}
	if o.Store == StoreFDB {
		return problems
	}
	if o.ClusterFile != "" {
		problems = append(problems, errors.New("a cluster file is for the store fdb"))
	}
	if len(o.Bridges) > 0 {
		problems = append(problems, errors.New("several bridges share the store fdb only"))
	}
	return problems
}
