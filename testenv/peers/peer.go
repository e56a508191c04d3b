// Package peers compares a pqbridge with other programs that queues are kept in: the same load at
// the same durability, each answer after a sync of the disk where the peer can, all in turns within
// one run. Servers are started for the run, with their data in a temporary folder; those that are
// not installed are named and left out.
//
// It is a module of its own, because the client libraries of others are none of the programs'
// business.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Operations that are measured.
const (
	Push     = "push"
	Pop      = "pop"
	Work     = "work"
	PushMany = "push_100"
	PopMany  = "pop_100"
	WorkMany = "work_100"
)

// Peer is a program that keeps queues.
type Peer struct {
	Name string
	// Missing says what is not installed; empty if the peer can start.
	Missing string
	// Without are the operations that it does not have.
	Without []string
	// Start starts the server with its data in a folder, which may have the data of an earlier
	// start. The server syncs the disk before it answers. It ends with the test.
	Start func(tb testing.TB, folder string) *Server
}

// Item is an item to push. The most urgent priority is 0.
type Item struct {
	Priority int
	Value    []byte
}

// ErrEmpty means that there is no item.
var ErrEmpty = errors.New("the queue is empty")

// Client is one client, used by one goroutine at a time.
type Client struct {
	// Push returns when the items are on disk.
	Push func(ctx context.Context, items []Item) error
	// Pop removes at most n items and returns their values, or ErrEmpty.
	Pop func(ctx context.Context, n int) ([][]byte, error)
	// Work reserves at most n items, acknowledges them, and returns their values, or ErrEmpty. A
	// worker that dies between the two leaves the items to others.
	Work func(ctx context.Context, n int) ([][]byte, error)
	// Rest, if not nil, is called at the end of a turn: the client gives back items that it was
	// sent and did not ask for yet.
	Rest func() error
}

// leaseTime is longer than any step.
const leaseTime = time.Minute

// Server is a running server of a peer.
type Server struct {
	Version string // if it matters to the adapter
	// Connect returns clients of a queue that is meant for that many priorities. Those of one call
	// may share connections.
	Connect func(clients, connections, priorities int) []*Client

	tb      testing.TB
	cmd     *exec.Cmd
	log     harness.Transcript
	address string
	signal  os.Signal // ends it
	exited  chan struct{}
	stops   []func() // what comes before the end of the process; the last first
}

// freePort returns a port of 127.0.0.1 that nobody else gets.
func freePort(tb testing.TB) string { return strconv.Itoa(harness.Port(tb)) }

// start starts a server that is to listen on a port. Setup, if not nil, changes the command before.
func start(tb testing.TB, port string, setup func(*exec.Cmd), name string, args ...string) *Server {
	tb.Helper()
	s := &Server{
		tb: tb, address: net.JoinHostPort("127.0.0.1", port), signal: syscall.SIGTERM,
		cmd: harness.Command(name, args...), exited: make(chan struct{}),
	}

	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if setup != nil {
		setup(s.cmd)
	}

	must(tb, s.cmd.Start())

	go func() {
		_ = s.cmd.Wait() // Stop ends some with a signal
		close(s.exited)
	}()
	tb.Cleanup(s.Stop)
	return s
}

// await waits until ready returns nil.
func (s *Server) await(ready func() error) {
	s.tb.Helper()
	testenv.Eventually(s.tb, func() error {
		select {
		case <-s.exited:
			s.tb.Fatalf("%s has ended:\n%s", s.cmd.Path, harness.Shorten("peer", s.log.String()))
		default:
		}
		return ready()
	})
}

// PID returns the id of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// onStop adds what Stop does before it stops the process.
func (s *Server) onStop(stop func()) { s.stops = append(s.stops, stop) }

// Stop disconnects the clients and stops the process; it leaves the data. It may be called again.
func (s *Server) Stop() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	s.stops = nil
	_ = s.cmd.Process.Signal(s.signal) // fails only if it has exited
	<-s.exited
}

// find returns the path of a program, or else says that it is missing. Folders may be patterns;
// PATH comes last.
func find(program string, folders ...string) (path, missing string) {
	for _, folder := range folders {
		matches, err := filepath.Glob(filepath.Join(folder, program))
		if err == nil && len(matches) > 0 {
			return matches[len(matches)-1], ""
		}
	}

	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Sprintf("%s is not in PATH", program)
	}

	return path, ""
}

// queueName is the name of a queue that is meant for that many priorities.
func queueName(priorities int) string { return "queue_" + strconv.Itoa(priorities) }

// values returns the values of items, or ErrEmpty if there are none.
func values[T any](items []T, value func(T) []byte) ([][]byte, error) {
	if len(items) == 0 {
		return nil, ErrEmpty
	}
	all := make([][]byte, len(items))
	for i, item := range items {
		all[i] = value(item)
	}
	return all, nil
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
