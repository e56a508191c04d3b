package leaf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A server that comes back is found again, and what is subscribed to there. Of several servers the
// next one is.
func TestRestart(t *testing.T) {
	h, other := newHub(t, "", ""), newHub(t, "", "")
	r := run(t, h.leafURL(), func(c *leaf.Config) {
		c.URLs = []string{fmt.Sprintf("127.0.0.1:%d", harness.Port(t)), h.leafURL()}
		c.Subjects = []leaf.Subscription{{Subject: "a"}}
	})
	if s := r.connected(); s.Server != "hub" || !strings.Contains(h.leafURL(), s.Address) {
		t.Errorf("connected to %+v", s)
	}
	subscribe(t, h.client(nats.NoReconnect()), "_INBOX.a")
	r.interest("_INBOX.a", true)

	h.stop()
	r.fails("closed the connection")
	if r.HasInterest("_INBOX.a") || len(r.gone) > 0 {
		t.Error("interest is not forgotten, or reported as gone")
	}
	if err := r.Publish(&leaf.Message{Subject: "a"}); !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}
	if err := r.Flush(context.Background()); !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}
	h.start()
	r.connected()
	if r.HasInterest("_INBOX.a") {
		t.Error("interest of the last connection is kept")
	}
	must(t, h.client().Publish("a", nil))
	next(t, r.received)

	both := run(t, "", func(c *leaf.Config) { c.URLs = []string{h.leafURL(), other.leafURL()} })
	first := both.connected()
	if gone := h; strings.Contains(gone.leafURL(), first.Address) {
		gone.stop()
		defer gone.start() // for its cleanup
	} else {
		other.stop()
		defer other.start()
	}
	if second := both.connected(); second.Address == first.Address {
		t.Errorf("connected to %+v", second)
	}
}

// A server that is stopped, or a network that swallows everything, is noticed, and left. Nobody who
// publishes or flushes meanwhile waits for longer than he says.
func TestSilentServer(t *testing.T) {
	withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
		r.connected()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := r.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- r.Flush(context.Background()) }()
		r.fails("the server is silent: no answer to 3 pings")
		if err := next(t, flushed); !errors.Is(err, leaf.ErrOffline) {
			t.Error(err)
		}
		r.connected()
		r.flush()
	}, func(c *fakeConn) { c.welcome(); c.hear("nothing") }) // it reads
}

// A server that reads nothing is left; until then as much is taken as may wait.
func TestServerReadsNothing(t *testing.T) {
	withFake(t, leaf.Limits{Pending: 4 << 20}, func(t *testing.T, r *running) {
		r.connected()
		m := &leaf.Message{Subject: "a", Payload: make([]byte, 1<<20)}
		taken, refused := 0, 0
		for ; len(r.states) == 0; time.Sleep(time.Second) {
			if err := r.Publish(m); err == nil {
				taken++
			} else if refused++; !errors.Is(err, leaf.ErrPending) && !errors.Is(err, leaf.ErrOffline) {
				t.Fatal(err)
			}
		}
		if taken != 3 || refused < 4 {
			t.Errorf("%d messages were taken, %d refused", taken, refused)
		}
		r.fails("the server is silent: it has not read for 10s")
		r.connected()
		time.Sleep(time.Minute)
	}, func(c *fakeConn) { c.welcome(); time.Sleep(time.Minute) })
}

// A server that reads slowly is not left while it does.
func TestServerReadsSlowly(t *testing.T) {
	const messages, size = 8, 256 << 10
	withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
		r.connected()
		for range messages {
			r.publish(&leaf.Message{Subject: "a", Payload: make([]byte, size)})
		}
		r.flush()
		if n := len(r.states); n > 0 {
			t.Errorf("%d changes of the connection", n)
		}
	}, func(c *fakeConn) {
		c.welcome()
		for range messages {
			time.Sleep(9 * time.Second)
			_, _ = io.CopyN(io.Discard, c.in, size)
			c.say("PING\r\n") // it is not silent
		}
		c.stay()
	})
}

// When the network swallows a connection, the server does not know. The next one replaces it there, so
// that no request goes to the dead one.
func TestHalfOpen(t *testing.T) {
	h := newHub(t, "", "")
	var dead net.Conn // to the server
	swallow := make(chan struct{})
	dial := func(context.Context, string) (net.Conn, error) {
		up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", h.leafPort))
		if err != nil || dead != nil {
			return up, err
		}
		dead = up
		client, proxy := net.Pipe()
		go func() { _, _ = io.Copy(proxy, up) }()
		go func() { _, _ = io.Copy(up, proxy) }()
		go func() { <-swallow; _ = proxy.Close() }() // which the server does not hear of
		return client, nil
	}
	r := runLimited(t, h.leafURL(), func(c *leaf.Config) {
		c.Subjects = []leaf.Subscription{{Subject: "a", Queue: "q"}}
	}, leaf.Limits{Dial: dial, Login: testenv.Patience})
	r.connected()
	close(swallow)
	r.fails("closed the connection")
	r.connected()

	nc := h.client()
	const requests = 200
	for range requests {
		must(t, nc.Publish("a", nil))
	}
	flushed(t, nc)
	r.flush()
	if len(r.received) != requests {
		t.Errorf("%d requests of %d came", len(r.received), requests)
	}
	_ = dead.Close() // the server has closed it
}
