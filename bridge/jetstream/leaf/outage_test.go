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

// When the server comes back, the connection and its subscriptions do too, and it knows nothing of
// earlier interest. Until then it is offline. Of several servers, it connects to another one.
func TestRestart(t *testing.T) {
	h, other := newHub(t, "", ""), newHub(t, "", "")
	r := run(t, h.leafURL(), func(c *leaf.Config) {
		c.URLs = []string{fmt.Sprintf("127.0.0.1:%d", harness.Port(t)), h.leafURL()}
		c.Subjects = []leaf.Subscription{{Subject: "a"}}
	})
	if s := r.waitConnected(); s.Server != "hub" || !strings.Contains(h.leafURL(), s.Address) {
		t.Errorf("connected to %+v", s)
	}

	subscribe(t, h.client(nats.NoReconnect()), "_INBOX.a")
	r.waitInterest("_INBOX.a", true)

	h.stop()
	r.wantFailure("closed the connection")
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
	r.waitConnected()
	if r.HasInterest("_INBOX.a") {
		t.Error("interest of the last connection is kept")
	}
	must(t, h.client().Publish("a", nil))

	next(t, r.received)

	// With two servers, stop the one that it is connected to.
	both := run(t, "", func(c *leaf.Config) { c.URLs = []string{h.leafURL(), other.leafURL()} })
	first := both.waitConnected()

	if gone := h; strings.Contains(gone.leafURL(), first.Address) {
		gone.stop()
		defer gone.start() // for its cleanup
	} else {
		other.stop()
		defer other.start()
	}
	if second := both.waitConnected(); second.Address == first.Address {
		t.Errorf("connected to %+v", second)
	}
}

// A connection to a server that answers no pings ends and is replaced. Until then, Flush waits no
// longer than its context.
func TestSilentServer(t *testing.T) {
	withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
		r.waitConnected()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()

		if err := r.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}

		flushed := make(chan error, 1)
		go func() { flushed <- r.Flush(context.Background()) }()
		r.wantFailure("the server is silent: no answer to 30 pings")

		if err := next(t, flushed); !errors.Is(err, leaf.ErrOffline) {
			t.Error(err)
		}

		r.waitConnected()
		r.flush()
	}, func(c *fakeConn) { c.welcome(); c.hear("nothing") }) // it reads, and never answers
}

// A connection to a server that reads nothing for ten seconds is replaced. Until then, it takes
// messages up to its limit, and refuses more.
func TestServerReadsNothing(t *testing.T) {
	const pending, size = 4 << 20, 1 << 20 // so that three messages with their lines fit
	withFake(t, leaf.Limits{Pending: pending}, func(t *testing.T, r *running) {
		r.waitConnected()
		m := &leaf.Message{Subject: "a", Payload: make([]byte, size)}
		taken, refused := 0, 0

		for ; len(r.states) == 0; time.Sleep(time.Second) {
			if err := r.Publish(m); err == nil {
				taken++
			} else if refused++; !errors.Is(err, leaf.ErrPending) &&
				!errors.Is(err, leaf.ErrOffline) {
				t.Fatal(err)
			}
		}
		if taken != 3 || refused < 4 {
			t.Errorf("%d messages were taken, %d refused", taken, refused)
		}
		r.wantFailure("the server is silent: it has not read for 10s")

		r.waitConnected()
		time.Sleep(time.Minute)
	}, func(c *fakeConn) { c.welcome(); time.Sleep(time.Minute) })
}

// The connection to a server that reads something every nine seconds stays.
func TestServerReadsSlowly(t *testing.T) {
	const messages, size = 8, 256 << 10
	withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
		r.waitConnected()
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

// When the network swallows a connection without telling the server, the next one replaces it
// there, so that every request arrives.
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
	r.waitConnected()
	close(swallow)

	r.wantFailure("closed the connection")

	r.waitConnected()

	nc := h.client()
	const requests = 200

	for range requests {
		must(t, nc.Publish("a", nil))
	}

	flushClient(t, nc)
	r.flush()
	if len(r.received) != requests {
		t.Errorf("%d requests of %d came", len(r.received), requests)
	}

	_ = dead.Close() // the server has closed it
}

// A message that comes while the server has not answered ten pings has waited for ten seconds: this
// process may have stood still. Once all pings are answered, messages are new again.
func TestOldMessages(t *testing.T) {
	const message = "LMSG a 1\r\nx\r\n"
	withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
		r.waitConnected()

		for _, want := range []time.Duration{0, 10 * time.Second, 0} {
			got := next(t, r.received).Waited
			if want == 0 && got != 0 || got < want || got > want+2*time.Second {
				t.Errorf("a message waited %v, want %v", got, want)
			}
		}
	}, func(c *fakeConn) {
		c.welcome()
		c.say(message)

		for range 10 { // pings that are not answered
			c.hear("PING")
		}

		c.say(message)
		c.hear("PING")

		for range 10 + 1 { // for the ten pings and the last
			c.say("PONG\r\n")
		}

		c.say(message)
		c.stay()
	})
}
