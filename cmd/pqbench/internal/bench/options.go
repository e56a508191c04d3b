// Package bench measures a pqbridge against a bare echo service on the same NATS server.
// No service behind NATS can answer more requests per second than the echo service. The
// same code sends requests to both over the same connections, so the ratio of the two is
// the price of the queue.
//
// It starts the processes it needs, stops them and removes their data, even if its context
// ends early.
package bench

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Options say what to measure and with what.
type Options struct {
	// Pqbridge and NATSServer are the programs to start and measure. Required.
	Pqbridge, NATSServer string
	// Echo is the command line of the echo service. The program reads NATS_URL
	// and answers requests on EchoSubject with their own payload. Required.
	Echo []string

	// Dir is the folder for the temporary folder with the data.
	Dir string
	// Store is the service's PQ_STORE; empty means its default. With StoreFDB the
	// naive recipe is measured too.
	Store string
	// ClusterFile names the FoundationDB cluster to use, below key prefixes of its own,
	// which are cleared in the end. If empty, a private cluster of one
	// process is started.
	ClusterFile string

	// Duration is how long each operation is measured, split into Rounds. The
	// operations and the echo service take turns, because the speed of a shared
	// machine changes from one second to the next.
	Duration time.Duration
	Rounds   int
	// Payload is the size of an item, in bytes.
	Payload int
	// Clients is the number of clients, each with one request in flight.
	Clients int
	// Connections is the number of connections the clients share.
	Connections int
	// Priorities is the number of different priorities pushed.
	Priorities int

	// Only, if not nil, selects operations, and the rows of Groups, by their names in the report.
	// The echo service and push are always measured.
	Only *regexp.Regexp

	// Backlogs are the numbers of queued items to compare; none skips this.
	Backlogs []int
	// Queues is the number of queues to compare with one; 0 skips this.
	Queues int
	// Memory is how many pops wait, queues are in use and items are leased to see how much memory each
	// takes; 0 skips this.
	Memory int
	// Groups is the number of items of a large group beside small ones; 0 skips this.
	Groups int
	// Bridges are the numbers of bridges to compare on one queue; none skips this.
	Bridges []int
	// JetStream has programs that use JetStream's API compared, and nothing else.
	JetStream bool

	// Progress, if not nil, is called before each step.
	Progress func(done, all int, what string)
	// Log receives problems with cleaning up. Required.
	Log io.Writer
}

// StoreFDB is the value of PQ_STORE for FoundationDB.
const StoreFDB = "fdb"

// EchoSubject is the subject of the echo service.
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
	atLeast("groups", o.Groups, 0)
	atLeast("memory", o.Memory, 0)
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
	if o.Pqbridge == "" || o.NATSServer == "" {
		problems = append(problems, errors.New("name the programs to measure: pqbridge and nats-server"))
	}
	return errors.Join(append(problems, o.validateStore()...)...)
}

func (o *Options) validateStore() []error {
	var problems []error
	if o.Store == StoreFDB {
		return problems
	}
	if o.ClusterFile != "" {
		problems = append(problems, errors.New("a cluster file is only for the store fdb"))
	}
	if len(o.Bridges) > 0 {
		problems = append(problems, errors.New("several bridges can only share the store fdb"))
	}
	return problems
}
