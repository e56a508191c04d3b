package client_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// slowLink is a connection to NATS that holds back what the server says, from its first message on.
type slowLink struct {
	net.Conn
	until string // what the client sends to end that

	held, gone        chan struct{}
	holdOnce, endOnce sync.Once
}

// dialSlowly returns a client's connection over a slowLink.
func dialSlowly(t *testing.T, e *testenv.Env, until string) (*nats.Conn, *slowLink) {
	l := &slowLink{until: until, held: make(chan struct{}), gone: make(chan struct{})}
	return e.Connect(nats.SetCustomDialer(l)), l
}

func (l *slowLink) Dial(network, address string) (_ net.Conn, err error) {
	l.Conn, err = net.Dial(network, address)
	return l, err
}

func (l *slowLink) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("MSG ")) {
		l.holdOnce.Do(func() { close(l.held) })
		<-l.gone
	}
	return n, err
}

func (l *slowLink) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if bytes.Contains(b, []byte(l.until)) {
		l.end()
	}
	return n, err
}

func (l *slowLink) Close() error {
	l.end()
	return l.Conn.Close()
}

func (l *slowLink) end() { l.endOnce.Do(func() { close(l.gone) }) }

// An item that is on its way from NATS when its pop is given up cannot go back, so the pop returns it.
func TestItemUnderWayAsItsPopIsGivenUp(t *testing.T) {
	for name, pop := range pops {
		t.Run(name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{})
			pushed(t, client.New(e.Conn).PriorityQueue("jobs"), 1, "a")
			nc, link := dialSlowly(t, e, "UNSUB ")
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() (string, error) { return pop(ctx, client.New(nc).PriorityQueue("jobs")) })
			<-link.held
			cancel()
			if got := <-done; got.err != nil || got.values != "a" {
				t.Errorf("got %q, %v", got.values, got.err)
			}
		})
	}
}

// A call whose context has ended returns, even if NATS says nothing any more.
func TestGivenUpWithoutNATS(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	pushed(t, client.New(e.Conn).PriorityQueue("jobs"), 1, "a")
	nc, link := dialSlowly(t, e, "never sent")
	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() (string, error) { return one(client.New(nc).PriorityQueue("jobs").PopMin(ctx)) })
	<-link.held
	cancel()
	if got := <-done; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, client.ErrUnknownOutcome) {
		t.Errorf("got %q, %v", got.values, got.err)
	}
	nc.Close()
}
