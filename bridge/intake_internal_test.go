package bridge

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
)

type pipeDialer struct{ conn net.Conn }

func (d pipeDialer) Dial(string, string) (net.Conn, error) { return d.conn, nil }

// pipe returns a connection over a cable, and its other end.
func pipe(t *testing.T, full *atomic.Bool) (conn, other net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	l := newCable(func() (messages, bytes int) {
		if full.Load() {
			return intakeMessages, 0
		}
		return intakeMessages - 1, intakeBytes - 1
	})
	o := nats.Options{CustomDialer: pipeDialer{near}}
	if err := l.option(&o); err != nil {
		t.Fatal(err)
	}
	conn, err := o.CustomDialer.Dial("tcp", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // again, in some tests
		_ = far.Close()
	})
	return conn, far
}

// A connection is not read while its backlog is too large, and is read again
// afterwards.
func TestIntakeWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		conn, other := pipe(t, &full)
		go func() { _, _ = other.Write(make([]byte, 3*intakeStep)) }()
		full.Store(true)
		if _, err := io.ReadFull(conn, make([]byte, intakeStep)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(conn, make([]byte, 2*intakeStep))
			read <- err
		}()
		synctest.Wait()
		if len(read) > 0 {
			t.Error("the connection was read in spite of the backlog")
		}
		full.Store(false)
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

// A waiting read ends when the connection is closed.
func TestIntakeEndsWhenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		conn, other := pipe(t, &full)
		go func() { _, _ = other.Write(make([]byte, intakeStep)) }()
		if _, err := io.ReadFull(conn, make([]byte, intakeStep)); err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		read := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil {
			t.Error("a closed connection was read")
		}
	})
}
