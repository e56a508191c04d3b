// Package peers compares a pqbridge with other programs that queues are kept in: the same load at
// the same durability, each answer after a sync of the disk where the peer can, all in turns within
// one run. Servers are started for the run, with their data in a temporary folder; missing ones are
// named and left out.
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

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Operations that are measured. A request of the first three is for one item of one client, and is
// a message or a command of its own. In the shared ones, the client library sends together what the
// clients of a connection ask for at the same time.
const (
	Push       = "push"
	Pop        = "pop"
	Work       = "work"
	PushShared = "push_shared"
	PopShared  = "pop_shared"
	WorkShared = "work_shared"
	PushMany   = "push_100"
	PopMany    = "pop_100"
	WorkMany   = "work_100"
)

var operations = []string{
	Push, Pop, Work, PushShared, PopShared, WorkShared, PushMany, PopMany, WorkMany,
}

// Peer is a program that keeps queues.
type Peer struct {
	Name string
	// Missing names the programs that are not installed; "" if the peer can start.
	Missing string
	// Does are the operations that it has.
	Does []string

	// command returns the command of a server on a port of 127.0.0.1, with its data in a folder.
	// The server syncs the disk before it answers.
	command func(s *Server, folder, port string) *exec.Cmd
	// dial opens a connection, which ends with the server, to a queue that is meant for that many
	// priorities. It returns what makes the clients that share the connection. It fails until the
	// server is ready.
	dial func(s *Server, queue string, priorities int) (func() (*Client, error), error)
}

// Item is an item to push. The most urgent priority is 0.
type Item struct {
	Priority int
	Value    []byte
}

// ErrEmpty means that there is no item.
var ErrEmpty = client.ErrEmpty

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
	// Shared does the shared operations, if there are any.
	Shared *Client
}

// leaseTime is longer than any step.
const leaseTime = time.Minute

// emptyAfter is how long a consumer waits for an item before it takes the queue for empty: longer
// than a busy server takes to send the first.
const emptyAfter = 2 * time.Second

// Server is a running server of a peer.
type Server struct {
	Version string // if it matters to the adapter

	peer    Peer
	tb      testing.TB
	cmd     *exec.Cmd
	address string
	signal  os.Signal // ends it
	exited  chan struct{}
	closers []func() // of connections; the last is closed first
}

// does says whether it has an operation.
func (p Peer) does(operation string) bool { return slices.Contains(p.Does, operation) }

// Start starts the server with its data in a folder, which may have the data of an earlier start.
// It ends with the test.
func (p Peer) Start(tb testing.TB, folder string) *Server {
	tb.Helper()
	port := freePort(tb)
	s := &Server{
		peer: p, tb: tb, address: net.JoinHostPort("127.0.0.1", port), signal: syscall.SIGTERM,
		exited: make(chan struct{}),
	}

	var log harness.Transcript
	s.cmd = p.command(s, folder, port)
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	must(tb, s.cmd.Start())

	go func() {
		_ = s.cmd.Wait() // Stop ends some with a signal
		close(s.exited)
	}()
	tb.Cleanup(s.Stop)

	testenv.Eventually(tb, func() error {
		select {
		case <-s.exited:
			tb.Fatalf("%s has ended:\n%s", s.cmd.Path, harness.Shorten("peer", log.String()))
		default:
		}
		_, err := s.dial(1)
		s.disconnect()
		return err
	})
	return s
}

// dial opens a connection to the queue that is meant for that many priorities.
func (s *Server) dial(priorities int) (newClient func() (*Client, error), err error) {
	return s.peer.dial(s, fmt.Sprintf("queue_%d", priorities), priorities)
}

// Connect returns clients that share connections to a queue that is meant for that many priorities.
func (s *Server) Connect(clients, connections, priorities int) []*Client {
	s.tb.Helper()
	dialed := make([]func() (*Client, error), connections)
	all := make([]*Client, clients)
	var err error
	for i := range dialed {
		dialed[i], err = s.dial(priorities)
		must(s.tb, err)
	}

	for i := range all {
		all[i], err = dialed[i%connections]()
		must(s.tb, err)
	}

	return all
}

// PID returns the id of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// onStop adds what closes a connection. Nothing is under way on it any more.
func (s *Server) onStop(closer func()) { s.closers = append(s.closers, closer) }

func (s *Server) disconnect() {
	for _, closer := range slices.Backward(s.closers) {
		closer()
	}
	s.closers = nil
}

// Stop disconnects the clients and stops the process; it leaves the data. It may be called again.
func (s *Server) Stop() {
	s.disconnect()
	_ = s.cmd.Process.Signal(s.signal) // fails only if it has exited
	<-s.exited
}

// freePort returns a port of 127.0.0.1 that nobody else gets.
func freePort(tb testing.TB) string { return strconv.Itoa(harness.Port(tb)) }

// find returns the path of a program, or else says that it is missing. Folders may be patterns;
// PATH comes last.
func find(program string, folders ...string) (path, missing string) {
	for _, folder := range append(folders, filepath.SplitList(os.Getenv("PATH"))...) {
		matches, err := filepath.Glob(filepath.Join(folder, program))
		if err == nil && len(matches) > 0 {
			return matches[len(matches)-1], ""
		}
	}

	return "", program + " is not in PATH"
}

// values returns the values of items that were taken, or ErrEmpty if there are none.
func values[T any](items []T, err error, value func(T) []byte) ([][]byte, error) {
	if err == nil && len(items) == 0 {
		err = ErrEmpty
	}
	if err != nil {
		return nil, err
	}

	all := make([][]byte, len(items))
	for i, item := range items {
		all[i] = value(item)
	}
	return all, nil
}

// receive returns the next item that a consumer is sent, or ErrEmpty if none comes.
func receive[T any](ctx context.Context, from <-chan T) (item T, err error) {
	select {
	case item, ok := <-from:
		if !ok {
			err = errors.New("the consumer was cancelled")
		}
		return item, err
	case <-time.After(emptyAfter):
		return item, ErrEmpty
	case <-ctx.Done():
		return item, context.Cause(ctx)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
